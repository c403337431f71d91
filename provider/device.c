// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * libferroce: a provider of rdma-core for ferroce. It speaks rdma_rxe's user ABI, as librxe does, and asks for more of
 * it (Documentation/provider.rst).
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/ib_user_ioctl_verbs.h>

#include "ferroce.h"

/* --- Devices and contexts --------------------------------------------------------------------- */

/* The name of the kernel module, which sysfs shows of each of its devices. */
#define MODULE "ferroce"

static struct context *context_of(struct ibv_context *context)
{
	return container_of(context, struct context, verbs.context);
}

static int context_query_device(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
				struct ibv_device_attr_ex *attr, size_t size)
{
	struct ib_uverbs_ex_query_device_resp response;
	size_t response_size = sizeof(response);
	uint64_t version;
	int error;

	error = ibv_cmd_query_device_any(context, input, attr, size, &response, &response_size);
	if (error)
		return error;
	if (context_of(context)->features & FERROCE_FEATURE_XRC) {
		attr->orig_attr.device_cap_flags |= IBV_DEVICE_XRC;
		if (size >= offsetof(struct ibv_device_attr_ex, device_cap_flags_ex) + sizeof(attr->device_cap_flags_ex))
			attr->device_cap_flags_ex |= IBV_DEVICE_XRC;
	}
	version = response.base.fw_ver;
	snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver), "%u.%u.%u",
		 (unsigned int)(version >> 32) & 0xffff, (unsigned int)(version >> 16) & 0xffff,
		 (unsigned int)version & 0xffff);
	return 0;
}

static int context_query_port(struct ibv_context *context, uint8_t number, struct ibv_port_attr *attr)
{
	struct ibv_query_port command;

	return ibv_cmd_query_port(context, number, attr, &command, sizeof(command));
}

static struct ibv_ah *ah_create(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct {
		struct ib_uverbs_create_ah_resp core;
		struct rxe_create_ah_resp driver;
	} response = {};
	struct ah *ah = calloc(1, sizeof(*ah));
	int error;

	if (!ah)
		return NULL;
	error = ibv_cmd_create_ah(pd, &ah->ah, attr, &response.core, sizeof(response));
	if (error) {
		free(ah);
		errno = error;
		return NULL;
	}
	ah->number = response.driver.ah_num;
	return &ah->ah;
}

static int ah_destroy(struct ibv_ah *ah)
{
	int error = ibv_cmd_destroy_ah(ah);

	if (!error)
		free(container_of(ah, struct ah, ah));
	return error;
}

static void context_free(struct ibv_context *context)
{
	struct context *ours = context_of(context);

	verbs_uninit_context(&ours->verbs);
	free(ours);
}

/* Events need nothing of us, nor does arming a completion queue. */
static const struct verbs_context_ops operations = {
	.advise_mr = ibv_cmd_advise_mr,
	.alloc_mw = mw_alloc,
	.alloc_parent_domain = parent_domain_alloc,
	.alloc_pd = pd_alloc,
	.alloc_td = td_alloc,
	.attach_mcast = ibv_cmd_attach_mcast,
	.bind_mw = qp_bind_mw,
	.close_xrcd = xrcd_close,
	.create_ah = ah_create,
	.create_cq = cq_create,
	.create_cq_ex = cq_create_ex,
	.create_qp = qp_create,
	.create_qp_ex = qp_create_ex,
	.create_srq = srq_create,
	.create_srq_ex = srq_create_ex,
	.dealloc_mw = mw_dealloc,
	.dealloc_pd = pd_dealloc,
	.dealloc_td = td_dealloc,
	.dereg_mr = mr_dereg,
	.destroy_ah = ah_destroy,
	.destroy_cq = cq_destroy,
	.destroy_qp = qp_destroy,
	.destroy_srq = srq_destroy,
	.detach_mcast = ibv_cmd_detach_mcast,
	.free_context = context_free,
	.get_srq_num = srq_number,
	.import_mr = mr_import,
	.import_pd = pd_import,
	.modify_cq = cq_modify,
	.modify_qp = qp_modify,
	.modify_srq = srq_modify,
	.open_qp = qp_open,
	.open_xrcd = xrcd_open,
	.poll_cq = cq_poll,
	.post_recv = qp_post_recv,
	.post_send = qp_post_send,
	.post_srq_recv = srq_post_recv,
	.query_device_ex = context_query_device,
	.query_port = context_query_port,
	.query_qp = qp_query,
	.query_srq = srq_query,
	.reg_dmabuf_mr = mr_reg_dmabuf,
	.reg_mr = mr_reg,
	.req_notify_cq = ibv_cmd_req_notify_cq,
	.rereg_mr = mr_rereg,
	.resize_cq = cq_resize,
	.unimport_mr = mr_unimport,
	.unimport_pd = pd_unimport,
};

static struct verbs_context *context_alloc(struct ibv_device *device, int cmd_fd, void *private_data)
{
	struct {
		struct ib_uverbs_get_context_resp core;
		struct ferroce_alloc_ucontext_resp driver;
	} response = {};
	struct ibv_get_context command;
	struct context *context;

	context = verbs_init_and_alloc_context(device, cmd_fd, context, verbs, RDMA_DRIVER_RXE);
	if (!context)
		return NULL;
	if (ibv_cmd_get_context(&context->verbs, &command, sizeof(command), &response.core, sizeof(response))) {
		context_free(&context->verbs.context);
		return NULL;
	}
	context->features = response.driver.features;
	verbs_set_ops(&context->verbs, &operations);
	return &context->verbs;
}

/* Of another process that has sent its file. A module that lets contexts be imported has XRC, too. */
static struct verbs_context *context_import(struct ibv_device *device, int cmd_fd)
{
	struct context *context;
	int error;

	context = verbs_init_and_alloc_context(device, cmd_fd, context, verbs, RDMA_DRIVER_RXE);
	if (!context)
		return NULL;
	error = ibv_cmd_query_context(&context->verbs.context, NULL);
	if (error) {
		context_free(&context->verbs.context);
		errno = error;
		return NULL;
	}
	context->features = FERROCE_FEATURE_XRC;
	verbs_set_ops(&context->verbs, &operations);
	return &context->verbs;
}

/*
 * The kernel gives our devices the driver id of rdma_rxe, or librxe would not take them. Those that are rdma_rxe's own
 * are left to librxe: they have no such attribute.
 */
static bool device_match(struct verbs_sysfs_dev *sysfs_dev)
{
	char text[64];

	return sysfs_dev->match && ibv_read_ibdev_sysfs_file(text, sizeof(text), sysfs_dev, "hca_type") > 0 &&
	       !strcmp(text, MODULE);
}

static struct verbs_device *device_alloc(struct verbs_sysfs_dev *sysfs_dev)
{
	return calloc(1, sizeof(struct verbs_device));
}

static void device_free(struct verbs_device *device)
{
	free(device);
}

static const struct verbs_match_ent matches[] = {
	VERBS_DRIVER_ID(RDMA_DRIVER_RXE),
	{},
};

static const struct verbs_device_ops device_operations = {
	.name = "ferroce",
	.match_min_abi_version = 2,
	.match_max_abi_version = 2,
	.match_table = matches,
	.match_device = device_match,
	.alloc_device = device_alloc,
	.uninit_device = device_free,
	.alloc_context = context_alloc,
	.import_context = context_import,
};
PROVIDER_DRIVER(ferroce, device_operations);
