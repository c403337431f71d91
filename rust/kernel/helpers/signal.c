// SPDX-License-Identifier: GPL-2.0

#include <linux/sched/signal.h>

__rust_helper int rust_helper_fatal_signal_pending(struct task_struct *p)
{
	return fatal_signal_pending(p);
}
