// SPDX-License-Identifier: GPL-2.0

#include <linux/workqueue.h>

__rust_helper long rust_helper_work_on_cpu(int cpu, long (*function)(void *), void *argument)
{
	return work_on_cpu(cpu, function, argument);
}
