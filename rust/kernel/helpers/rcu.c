// SPDX-License-Identifier: GPL-2.0

#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

__rust_helper void rust_helper_init_rcu_work(struct rcu_work *work, work_func_t func)
{
	INIT_RCU_WORK(work, func);
}

__rust_helper void rust_helper_kfree_rcu_mightsleep(const void *ptr)
{
	kfree_rcu_mightsleep(ptr);
}
