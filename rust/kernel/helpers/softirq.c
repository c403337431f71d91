// SPDX-License-Identifier: GPL-2.0

#include <linux/bottom_half.h>
#include <linux/preempt.h>

__rust_helper void rust_helper_local_bh_disable(void)
{
	local_bh_disable();
}

__rust_helper void rust_helper_local_bh_enable(void)
{
	local_bh_enable();
}

/* With PREEMPT_RT spinlocks sleep, and what has bottom halves off may be preempted anyway. */
__rust_helper void rust_helper_preempt_disable_without_rt(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_disable();
}

__rust_helper void rust_helper_preempt_enable_without_rt(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_enable();
}

/* What belongs to the softirqs of this CPU may be used. */
__rust_helper bool rust_helper_owns_softirq(void)
{
	return in_softirq() && !in_hardirq() && !in_nmi();
}
