/* SPDX-License-Identifier: MIT */
/* What the fuzz targets share: each is one file with the entry that libFuzzer calls. */
#ifndef INBOXD_TESTS_FUZZ_H
#define INBOXD_TESTS_FUZZ_H

#include "base/fd.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
