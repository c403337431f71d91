// SPDX-License-Identifier: GPL-2.0

#include <linux/module.h>

/* As in Cargo.toml. The macro module!, in which all else of this kind is, has no key for it. */
MODULE_VERSION("0.1.0");
