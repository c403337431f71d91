// SPDX-License-Identifier: GPL-2.0

#include <linux/vmalloc.h>

#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>

__rust_helper bool rust_helper_ib_device_try_get(struct ib_device *dev)
{
	return ib_device_try_get(dev);
}

__rust_helper struct ib_device *rust_helper_rdma_device_to_ibdev(struct device *device)
{
	return rdma_device_to_ibdev(device);
}

__rust_helper u16 rust_helper_rdma_get_udp_sport(u32 flow_label, u32 local, u32 remote)
{
	return rdma_get_udp_sport(flow_label, local, remote);
}

/* Memory for vm_insert_page(), charged to the caller's memory cgroup. */
__rust_helper void *rust_helper_vmalloc_zeroed_accounted(unsigned long size)
{
	return __vmalloc(size, GFP_KERNEL_ACCOUNT | __GFP_NOWARN | __GFP_ZERO);
}
