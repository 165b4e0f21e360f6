/* SPDX-License-Identifier: MIT */
/* The one place that holds the version. */
#ifndef INBOXD_BASE_VERSION_H
#define INBOXD_BASE_VERSION_H

#define INBOXD_VERSION "0.1.0"

#endif
