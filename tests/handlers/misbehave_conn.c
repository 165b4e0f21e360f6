/* SPDX-License-Identifier: MIT */
/* misbehave.c with the raw connection: its `commit` is a real one. */
#define MISBEHAVE_USES_CONN
#include "misbehave.c"
