// SPDX-License-Identifier: GPL-2.0

#include <linux/rcupdate.h>
#include <linux/workqueue.h>

__rust_helper void rust_helper_init_rcu_work(struct rcu_work *work, work_func_t func)
{
	INIT_RCU_WORK(work, func);
}
