/* SPDX-License-Identifier: MIT */
/* effect.c of the next version: its keys begin with "next ". */
#define EFFECT_KEY "'next ' || $1"
#include "effect.c"
