/* SPDX-License-Identifier: MIT */
/* Exports a function where the constant should be. */
int inboxd_handler(void);
int inboxd_handler(void)
{
	return 1;
}
