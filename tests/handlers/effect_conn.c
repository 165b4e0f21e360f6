/* SPDX-License-Identifier: MIT */
/* effect.c with the raw connection: its `commit` is a real one. */
#define EFFECT_USES_CONN
#include "effect.c"
