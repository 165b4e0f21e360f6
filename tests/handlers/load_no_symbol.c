/* SPDX-License-Identifier: MIT */
/* A shared object that is no handler. */
int something_else(void);
int something_else(void)
{
	return 1;
}
