// SPDX-License-Identifier: GPL-2.0

#include <linux/workqueue.h>

struct worker_call {
	struct work_struct work;
	void (*function)(void *argument);
	void *argument;
};

static void worker_call_run(struct work_struct *work)
{
	struct worker_call *call = container_of(work, struct worker_call, work);

	call->function(call->argument);
}

/* As work_on_cpu(), but by a worker that is bound to no CPU: a real-time program does not keep it waiting. */
__rust_helper void rust_helper_call_in_worker(void (*function)(void *argument), void *argument)
{
	struct worker_call call = { .function = function, .argument = argument };

	INIT_WORK_ONSTACK(&call.work, worker_call_run);
	queue_work(system_dfl_wq, &call.work);
	flush_work(&call.work);
	destroy_work_on_stack(&call.work);
}
