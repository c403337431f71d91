// SPDX-License-Identifier: GPL-2.0
/*
 * As long as it is loaded, the devices named in the parameter `devices` may be given alternate paths.
 *
 * ib_core refuses IB_QP_ALT_PATH unless the port has the protocol InfiniBand ("Today the core code can
 * only handle alternate paths and APM for IB"): here a RoCE port has both. That confuses what else asks
 * for the protocol, IPoIB above all, so this is for the selftest `migration` only, in a VM of its own.
 */

#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>

#define PORT 1

static char *devices[2];
static int count;
module_param_array(devices, charp, &count, 0444);
MODULE_PARM_DESC(devices, "names of devices");

static bool is_named(const struct ib_device *device)
{
	int i;

	for (i = 0; i < count; i++) {
		if (!strcmp(dev_name(&device->dev), devices[i]))
			return true;
	}
	return false;
}

static int alternate_paths_add(struct ib_device *device)
{
	if (!is_named(device))
		return -EOPNOTSUPP;
	device->port_data[PORT].immutable.core_cap_flags |= RDMA_CORE_CAP_PROT_IB;
	return 0;
}

static void alternate_paths_remove(struct ib_device *device, void *data)
{
	device->port_data[PORT].immutable.core_cap_flags &= ~RDMA_CORE_CAP_PROT_IB;
}

static struct ib_client client = {
	.name = "alternate_paths",
	.add = alternate_paths_add,
	.remove = alternate_paths_remove,
};

static int __init alternate_paths_init(void)
{
	return ib_register_client(&client);
}

static void __exit alternate_paths_exit(void)
{
	ib_unregister_client(&client);
}

module_init(alternate_paths_init);
module_exit(alternate_paths_exit);
MODULE_DESCRIPTION("Alternate paths for RoCE, for a selftest");
MODULE_LICENSE("GPL");
