// SPDX-License-Identifier: GPL-2.0

#include <linux/percpu.h>

__rust_helper void __percpu *rust_helper_alloc_percpu(size_t size, size_t align)
{
	/* The caller reports the failure. The allocator would add a backtrace. */
	return __alloc_percpu_gfp(size, align, GFP_KERNEL | __GFP_NOWARN);
}

__rust_helper void rust_helper_this_cpu_add_u64(u64 __percpu *value, u64 n)
{
	this_cpu_add(*value, n);
}

__rust_helper u64 rust_helper_per_cpu_u64(u64 __percpu *value, unsigned int cpu)
{
	return READ_ONCE(*per_cpu_ptr(value, cpu));
}
