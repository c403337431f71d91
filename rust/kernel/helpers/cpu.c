// SPDX-License-Identifier: GPL-2.0

#include <linux/cpumask.h>
#include <linux/nodemask.h>
#include <linux/sched/clock.h>
#include <linux/sched/isolation.h>

__rust_helper u64 rust_helper_local_clock(void)
{
	return local_clock();
}

__rust_helper bool rust_helper_cpu_online(unsigned int cpu)
{
	return cpu_online(cpu);
}

__rust_helper bool rust_helper_cpu_possible(unsigned int cpu)
{
	return cpu_possible(cpu);
}

__rust_helper unsigned int rust_helper_next_housekeeping_cpu(unsigned int cpu)
{
	return cpumask_next_and_wrap(cpu, cpu_online_mask, housekeeping_cpumask(HK_TYPE_DOMAIN));
}

__rust_helper unsigned int rust_helper_num_online_cpus(void)
{
	return num_online_cpus();
}

__rust_helper int rust_helper_num_online_nodes(void)
{
	return num_online_nodes();
}
