// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "command.h"

int command_write(const struct ibv_context *context, int number, void *bytes, size_t size, size_t answer_size)
{
	struct ib_uverbs_cmd_hdr *header = bytes;

	*header = (struct ib_uverbs_cmd_hdr){
		.command = number,
		.in_words = size / 4,
		.out_words = answer_size / 4,
	};
	return write(context->cmd_fd, bytes, size) == (ssize_t)size ? 0 : errno;
}

int command_method(const struct ibv_context *context, unsigned int object, unsigned int method,
		   struct ib_uverbs_attr *attributes, unsigned int count)
{
	struct {
		struct ib_uverbs_ioctl_hdr header;
		struct ib_uverbs_attr attributes[COMMAND_ATTRIBUTES];
	} command = {
		.header = {
			.length = sizeof(command.header) + count * sizeof(*attributes),
			.object_id = object,
			.method_id = method,
			.num_attrs = count,
			.driver_id = RDMA_DRIVER_RXE,
		},
	};
	unsigned int i;

	if (count > COMMAND_ATTRIBUTES)
		return E2BIG;
	memcpy(command.attributes, attributes, count * sizeof(*attributes));
	for (i = 0; i < count; i++)
		command.attributes[i].flags = UVERBS_ATTR_F_MANDATORY;
	if (ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &command))
		return errno;
	memcpy(attributes, command.attributes, count * sizeof(*attributes));
	return 0;
}

int command_modify_cq(const struct ibv_cq *cq, const struct ibv_modify_cq_attr *attr)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_ex_cmd_hdr extended;
		struct ib_uverbs_ex_modify_cq core;
	} bytes = {
		.header = {
			.command = IB_USER_VERBS_EX_CMD_MODIFY_CQ | IB_USER_VERBS_CMD_FLAG_EXTENDED,
			/* In units of 8 bytes. */
			.in_words = sizeof(bytes.core) / 8,
		},
		.core = {
			.cq_handle = cq->handle,
			.attr_mask = attr->attr_mask,
			.attr = { attr->moderate.cq_count, attr->moderate.cq_period },
		},
	};

	return write(cq->context->cmd_fd, &bytes, sizeof(bytes)) == sizeof(bytes) ? 0 : errno;
}

int command_doorbell(const struct ibv_context *context, uint32_t qp_handle)
{
	struct ib_uverbs_post_send_resp answer;
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_post_send core;
	} bytes = {
		.core = {
			.response = (uintptr_t)&answer,
			.qp_handle = qp_handle,
			.wqe_size = sizeof(struct ib_uverbs_send_wr),
		},
	};

	return command_write(context, IB_USER_VERBS_CMD_POST_SEND, &bytes, sizeof(bytes), sizeof(answer));
}
