// SPDX-License-Identifier: GPL-2.0
/*
 * Raises a WARN as it is loaded, for the selftest `planted`: that a test fails which has one in its time.
 */

#include <linux/bug.h>
#include <linux/init.h>
#include <linux/module.h>

static int __init warning_init(void)
{
	WARN(1, "raised on purpose, for a selftest");
	return 0;
}

static void __exit warning_exit(void)
{
}

module_init(warning_init);
module_exit(warning_exit);
MODULE_DESCRIPTION("A WARN, for a selftest");
MODULE_LICENSE("GPL");
