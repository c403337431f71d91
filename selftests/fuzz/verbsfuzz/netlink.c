// SPDX-License-Identifier: GPL-2.0
/* Dumps of resources and statistics by netlink: see verbsfuzz.c. */

#define _GNU_SOURCE
#include <errno.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <string.h>
#include <sys/socket.h>

#include "endpoint.h"
#include "verbsfuzz.h"

struct question {
	struct nlmsghdr header;
	uint8_t attributes[256];
};

static void question_add(struct question *question, uint16_t type, uint32_t value)
{
	struct nlattr *attribute = (void *)((uint8_t *)question + question->header.nlmsg_len);

	attribute->nla_type = type;
	attribute->nla_len = NLA_HDRLEN + sizeof(value);
	memcpy(attribute + 1, &value, sizeof(value));
	question->header.nlmsg_len += NLA_ALIGN(attribute->nla_len);
}

/* Sends it and takes all answers; the errno of the last one. */
static int question_ask(struct hand *hand, struct question *question)
{
	const struct nlmsghdr *header;
	unsigned int most = 100;
	ssize_t left;

	if (send(hand->netlink, question, question->header.nlmsg_len, MSG_DONTWAIT) < 0)
		return errno;
	while (most--) {
		left = recv(hand->netlink, hand->answer, ANSWER_ROOM, MSG_DONTWAIT);
		if (left < 0)
			return errno == EAGAIN ? 0 : errno;
		for (header = (void *)hand->answer; NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
			if (header->nlmsg_type == NLMSG_ERROR)
				return -((struct nlmsgerr *)NLMSG_DATA(header))->error;
			if (header->nlmsg_type == NLMSG_DONE || !(header->nlmsg_flags & NLM_F_MULTI))
				return 0;
		}
	}
	return 0;
}

static void question_start(struct hand *hand, struct question *question, uint32_t number)
{
	memset(question, 0, sizeof(*question));
	question->header.nlmsg_len = NLMSG_HDRLEN;
	question->header.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, number);
	question->header.nlmsg_flags = NLM_F_REQUEST;
	question_add(question, RDMA_NLDEV_ATTR_DEV_INDEX, below(&hand->choice, 4));
	hand->lies.lied = one_in(&hand->choice, LIE);
	while (hand->lies.lied && one_in(&hand->choice, 2))
		question_add(question, below(&hand->choice, RDMA_NLDEV_ATTR_MAX + 2), any(&hand->choice));
}

static int resources_dump(struct hand *hand)
{
	/* Only commands that ask, none that change anything. */
	static const uint8_t numbers[] = {
		RDMA_NLDEV_CMD_GET, RDMA_NLDEV_CMD_PORT_GET, RDMA_NLDEV_CMD_RES_GET, RDMA_NLDEV_CMD_RES_QP_GET,
		RDMA_NLDEV_CMD_RES_CM_ID_GET, RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_CMD_RES_MR_GET,
		RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_CMD_RES_CTX_GET, RDMA_NLDEV_CMD_RES_SRQ_GET,
		RDMA_NLDEV_CMD_SYS_GET,
	};
	struct question question;

	question_start(hand, &question, numbers[below(&hand->choice, ARRAY_SIZE(numbers))]);
	if (!one_in(&hand->choice, 4)) {
		question.header.nlmsg_flags |= NLM_F_DUMP;
	} else {
		question_add(&question, RDMA_NLDEV_ATTR_PORT_INDEX, PORT);
		question_add(&question, RDMA_NLDEV_ATTR_RES_LQPN, below(&hand->choice, 64));
		question_add(&question, RDMA_NLDEV_ATTR_RES_CQN, below(&hand->choice, 64));
		question_add(&question, RDMA_NLDEV_ATTR_RES_MRN, below(&hand->choice, 64));
		question_add(&question, RDMA_NLDEV_ATTR_RES_PDN, below(&hand->choice, 64));
	}
	return question_ask(hand, &question);
}

static int statistics_dump(struct hand *hand)
{
	struct question question;

	question_start(hand, &question, RDMA_NLDEV_CMD_STAT_GET);
	if (one_in(&hand->choice, 2)) {
		question.header.nlmsg_flags |= NLM_F_DUMP;
		question_add(&question, RDMA_NLDEV_ATTR_STAT_RES,
			     one_in(&hand->choice, 2) ? RDMA_NLDEV_ATTR_RES_QP : RDMA_NLDEV_ATTR_RES_MR);
	} else {
		question_add(&question, RDMA_NLDEV_ATTR_PORT_INDEX, PORT);
	}
	return question_ask(hand, &question);
}

const struct action netlink_actions[] = {
	{ "dump resources", resources_dump, .weight = 10 },
	{ "dump statistics", statistics_dump, .weight = 6 },
	{ .name = NULL },
};
