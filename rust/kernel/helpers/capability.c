// SPDX-License-Identifier: GPL-2.0

#include <linux/capability.h>

__rust_helper bool rust_helper_capable_sys_admin(void)
{
	return capable(CAP_SYS_ADMIN);
}
