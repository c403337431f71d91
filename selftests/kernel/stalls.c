// SPDX-License-Identifier: GPL-2.0
/*
 * While it is loaded, one CPU after the other stands still, as a virtual CPU that the hypervisor does not run: it
 * executes nothing, not even interrupts.
 */

#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/init.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/smp.h>

static unsigned int stall_ms = 10;
module_param(stall_ms, uint, 0444);
MODULE_PARM_DESC(stall_ms, "How long a CPU stands still, in milliseconds");

static unsigned int pause_ms = 30;
module_param(pause_ms, uint, 0444);
MODULE_PARM_DESC(pause_ms, "Between one and the next, in milliseconds");

static struct task_struct *thread;

static void stand_still(void *unused)
{
	mdelay(stall_ms);
}

static int stall_each(void *unused)
{
	unsigned int cpu = 0;

	while (!kthread_should_stop()) {
		cpu = cpumask_next_wrap(cpu, cpu_online_mask);
		/* A CPU that has gone offline is left out. */
		smp_call_function_single(cpu, stand_still, NULL, 1);
		msleep(pause_ms);
	}
	return 0;
}

static int __init stalls_init(void)
{
	thread = kthread_run(stall_each, NULL, "stalls");
	return PTR_ERR_OR_ZERO(thread);
}

static void __exit stalls_exit(void)
{
	kthread_stop(thread);
}

module_init(stalls_init);
module_exit(stalls_exit);
MODULE_DESCRIPTION("CPUs that stand still, for selftests");
MODULE_LICENSE("GPL");
