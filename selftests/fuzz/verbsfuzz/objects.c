// SPDX-License-Identifier: GPL-2.0
/* Files of uverbs, the objects in them, what can be asked of both, and events: see verbsfuzz.c. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_rxe.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "endpoint.h"
#include "verbsfuzz.h"

#define EVENT_FILES 16

int files[FILES];
static uint32_t generations[FILES];
/* The process that has opened each, or 0 if it was passed on: only that process uses write(). */
static pid_t openers[FILES];
static int event_files[EVENT_FILES];
/* Stands for the XRC domain that all processes have. */
static int domain_file;
static int channels[FILES];
/* Files are passed to each process by a pair of sockets of its own. */
static int mail[CREW][2];

void descriptor_set(int *place, int fd)
{
	int old = __atomic_exchange_n(place, fd, __ATOMIC_SEQ_CST);

	if (old >= 0)
		close(old);
}

void files_prepare(void)
{
	/* All bits set: -1. */
	memset(files, 0xff, sizeof(files));
	memset(channels, 0xff, sizeof(channels));
	memset(event_files, 0xff, sizeof(event_files));
}

void domain_prepare(void)
{
	domain_file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (domain_file < 0)
		die("a file for the domain: %s", strerror(errno));
}

void mail_open(void)
{
	unsigned int i;

	for (i = 0; i < CREW; i++) {
		if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, mail[i]))
			die("socketpair: %s", strerror(errno));
	}
}

void mail_close(void)
{
	unsigned int i;

	for (i = 0; i < CREW; i++) {
		close(mail[i][0]);
		close(mail[i][1]);
	}
}

int file_pick(struct hand *hand)
{
	uint32_t first = below(&hand->choice, FILES), i;

	for (i = 0; i < FILES; i++) {
		uint32_t at = (first + i) % FILES;

		if (files[at] < 0)
			continue;
		if (generations[at] == shared->files[at].generation)
			return at;
		descriptor_set(&files[at], -1);
	}
	return NOTHING;
}

struct object *object_pick_of(struct hand *hand, int file, enum kind kind, uint32_t pd)
{
	uint32_t first = below(&hand->choice, OBJECTS), i;

	for (i = 0; i < OBJECTS; i++) {
		struct object *object = &shared->files[file].objects[kind][(first + i) % OBJECTS];

		if (object->there && object->pd == pd)
			return object;
	}
	return object_pick(hand, file, kind);
}

struct object *object_pick(struct hand *hand, int file, enum kind kind)
{
	/* Objects that are used together must be of one protection domain: so there is a usual one. */
	uint32_t first = kind == PD && !one_in(&hand->choice, 6) ? 0 : below(&hand->choice, OBJECTS), i;

	for (i = 0; i < OBJECTS; i++) {
		struct object *object = &shared->files[file].objects[kind][(first + i) % OBJECTS];

		if (object->there)
			return object;
	}
	return NULL;
}

/* --- Commands ----------------------------------------------------------------------------- */

static struct lies *lies_for(struct hand *hand)
{
	memset(hand->answer, 0, 256);
	hand->lies.choice = &hand->choice;
	hand->lies.lied = false;
	return !hand->honest && one_in(&hand->choice, LIE) ? &hand->lies : NULL;
}

static int judged(struct hand *hand, int error)
{
	if (error == EAGAIN && !hand->lies.lied)
		count(&shared->limited);
	return error;
}

int run(struct hand *hand, struct command *command)
{
	bool by_write = openers[hand->file] == getpid() ? one_in(&hand->choice, 2) :
							  !hand->honest && one_in(&hand->choice, 20);

	return judged(hand, command_run(files[hand->file], command, hand->answer, by_write, lies_for(hand)));
}

int run_method(struct hand *hand, struct method *method)
{
	return judged(hand, method_run(files[hand->file], method, lies_for(hand)));
}

int run_command(struct hand *hand, uint32_t number, const void *core, size_t core_size, size_t answer_size,
		size_t driver_answer_size)
{
	struct command command;

	command_start(&command, number, core, core_size, answer_size);
	command.driver_answer_size = driver_answer_size;
	return run(hand, &command);
}

/* With an answer of the driver. */
#define RUN_BOTH(hand, name, core, answer, driver_answer)                                          \
	run_command(hand, IB_USER_VERBS_CMD_##name, core, sizeof(*(core)), sizeof(answer), sizeof(driver_answer))

static const struct {
	uint16_t object, method;
	/* By write(): the command, and where in it the handle stands. */
	uint32_t command;
	size_t core_size, handle_at, answer_size;
} ends[KINDS] = {
#define END(kind, write, core, ...)                                                                \
	[kind] = { UVERBS_OBJECT_##kind, UVERBS_METHOD_##kind##_DESTROY, IB_USER_VERBS_CMD_##write,   \
		   sizeof(struct ib_uverbs_##core), __VA_ARGS__ }
	END(PD, DEALLOC_PD, dealloc_pd, 0, 0),
	END(CQ, DESTROY_CQ, destroy_cq, 8, sizeof(struct ib_uverbs_destroy_cq_resp)),
	END(QP, DESTROY_QP, destroy_qp, 8, sizeof(struct ib_uverbs_destroy_qp_resp)),
	END(SRQ, DESTROY_SRQ, destroy_srq, 8, sizeof(struct ib_uverbs_destroy_srq_resp)),
	END(MR, DEREG_MR, dereg_mr, 0, 0),
	END(MW, DEALLOC_MW, dealloc_mw, 0, 0),
	END(AH, DESTROY_AH, destroy_ah, 0, 0),
	/* There is no method. */
	[XRCD] = { UVERBS_OBJECT_XRCD, 0, IB_USER_VERBS_CMD_CLOSE_XRCD, sizeof(struct ib_uverbs_close_xrcd), 0, 0 },
};

/* Counts what ends while a stream of messages uses it. */
static void end_note(int file, enum kind kind, uint32_t handle)
{
	unsigned int i;

	for (i = 0; i < CREW * 2 * HANDS; i++) {
		const struct used *used = &shared->used[i / (2 * HANDS)][i % (2 * HANDS)];

		if (used->busy && used->file == (uint32_t)file && used->handles[kind] == handle &&
		    used->generation == shared->files[file].generation) {
			count(&shared->under_use[kind]);
			return;
		}
	}
}

static int handle_end(struct hand *hand, enum kind kind, uint32_t handle)
{
	struct method method;
	uint64_t core[8] = { 0 };
	int error;

	if (kind == XRCD || one_in(&hand->choice, 2)) {
		memcpy((uint8_t *)core + ends[kind].handle_at, &handle, sizeof(handle));
		error = run_command(hand, ends[kind].command, core, ends[kind].core_size, ends[kind].answer_size, 0);
	} else {
		method_start(&method, ends[kind].object, ends[kind].method);
		/* The first attribute of each such method is the object, the second the answer. */
		method_object(&method, 0, handle);
		if (ends[kind].answer_size)
			method_out(&method, 1, hand->answer, ends[kind].answer_size);
		error = run_method(hand, &method);
	}
	if (!error && !hand->lies.lied)
		end_note(hand->file, kind, handle);
	return error;
}

static int object_end(struct hand *hand)
{
	struct object *object = hand->with[0];
	int error = handle_end(hand, hand->argument, object->handle);

	if (!error && !hand->lies.lied)
		object->there = false;
	return error;
}

/* Others may know it from now on; the one in whose place it stands is destroyed, which they may use. */
static int object_keep(struct hand *hand, enum kind kind, const struct object *made)
{
	struct object *place = &shared->files[hand->file].objects[kind][below(&hand->choice, OBJECTS)];
	struct lies lies = hand->lies;
	struct object old = *place;

	*place = *made;
	place->there = true;
	hand->made = *place;
	if (old.there)
		handle_end(hand, kind, old.handle);
	hand->lies = lies;
	return 0;
}

/* The same for what a command has made whose answer begins with the handle, and has the number there. */
static int answer_keep(struct hand *hand, enum kind kind, struct object *made, size_t number_at)
{
	memcpy(&made->handle, hand->answer, sizeof(made->handle));
	memcpy(&made->number, hand->answer + number_at, sizeof(made->number));
	return object_keep(hand, kind, made);
}

static void span_read(struct span *span, const uint8_t *from)
{
	struct mminfo info;

	memcpy(&info, from, sizeof(info));
	span->offset = info.offset;
	span->size = info.size;
}

/* --- Files -------------------------------------------------------------------------------- */

/* A message with room for a file in it, and the words that say which one it is. */
struct letter {
	uint32_t words[2];
	uint8_t control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct iovec vector;
	struct msghdr message;
};

static struct cmsghdr *letter_start(struct letter *letter)
{
	memset(letter, 0, sizeof(*letter));
	letter->vector.iov_base = letter->words;
	letter->vector.iov_len = sizeof(letter->words);
	letter->message.msg_iov = &letter->vector;
	letter->message.msg_iovlen = 1;
	letter->message.msg_control = letter->control;
	letter->message.msg_controllen = sizeof(letter->control);
	return CMSG_FIRSTHDR(&letter->message);
}

static int file_pass(struct hand *hand)
{
	struct letter letter;
	struct cmsghdr *header = letter_start(&letter);

	letter.words[0] = hand->file;
	letter.words[1] = generations[hand->file];
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &files[hand->file], sizeof(int));
	return sendmsg(mail[below(&hand->choice, CREW)][1], &letter.message, MSG_DONTWAIT) < 0 ? errno : 0;
}

static int file_take(struct hand *hand)
{
	struct letter letter;
	struct cmsghdr *header;
	int fd;

	(void)hand;
	letter_start(&letter);
	if (recvmsg(mail[crew_index][0], &letter.message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != sizeof(letter.words))
		return NOTHING;
	header = CMSG_FIRSTHDR(&letter.message);
	if (!header || header->cmsg_type != SCM_RIGHTS)
		return EMFILE;
	memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	generations[letter.words[0]] = letter.words[1];
	openers[letter.words[0]] = 0;
	descriptor_set(&files[letter.words[0]], fd);
	return 0;
}

static void event_file_keep(struct hand *hand, int fd)
{
	if (fd < 0)
		return;
	fcntl(fd, F_SETFL, O_NONBLOCK);
	descriptor_set(&event_files[below(&hand->choice, EVENT_FILES)], fd);
}

static int file_open(struct hand *hand)
{
	uint32_t file = below(&hand->choice, FILES), device = below(&hand->choice, 2);
	struct ib_uverbs_get_context_resp *answer = (void *)hand->answer;
	struct ib_uverbs_get_context core = { 0 };
	struct command command;
	struct method method;
	int fd, error;

	/* Most are to live for a while, also with others when this process has none yet: it may get them. */
	if (shared->files[file].generation && !one_in(&hand->choice, file_pick(hand) < 0 ? 8 : 40))
		return NOTHING;
	fd = open(known[device].path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno;
	/* Nobody knows the file yet, and nothing of it lies: see other_number(). */
	memset(hand->answer, 0, 256);
	if (one_in(&hand->choice, 2)) {
		command_start(&command, IB_USER_VERBS_CMD_GET_CONTEXT, &core, sizeof(core), sizeof(*answer));
		error = command_run(fd, &command, hand->answer, true, NULL);
		if (!error)
			event_file_keep(hand, answer->async_fd);
	} else {
		method_start(&method, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
		method_out(&method, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, hand->answer, 4);
		error = method_run(fd, &method, NULL);
	}
	if (error) {
		close(fd);
		return judged(hand, error);
	}
	memset(shared->files[file].objects, 0, sizeof(shared->files[file].objects));
	shared->files[file].device = device;
	generations[file] = __atomic_add_fetch(&shared->files[file].generation, 1, __ATOMIC_SEQ_CST);
	openers[file] = getpid();
	descriptor_set(&channels[file], -1);
	descriptor_set(&files[file], fd);
	hand->file = file;
	file_pass(hand);
	return 0;
}

static int file_close(struct hand *hand)
{
	unsigned int i;

	for (i = 0; i < 2 * HANDS; i++) {
		const struct used *used = &shared->used[crew_index][i];

		if (used->busy && used->file == (uint32_t)hand->file) {
			count(&shared->under_use[A_FILE]);
			break;
		}
	}
	descriptor_set(&files[hand->file], -1);
	return 0;
}

const struct action file_actions[] = {
	{ "open a file", file_open, .weight = 20 },
	{ "close a file", file_close, .weight = 2, .needs = { A_FILE } },
	{ "pass a file on", file_pass, .weight = 20, .needs = { A_FILE } },
	{ "take a file", file_take, .weight = 40 },
	{ .name = NULL },
};

/* --- Objects ------------------------------------------------------------------------------ */

int pd_alloc(struct hand *hand)
{
	struct ib_uverbs_alloc_pd core = { 0 };
	struct object made = { 0 };
	int error = RUN(hand, ALLOC_PD, &core, sizeof(struct ib_uverbs_alloc_pd_resp));

	if (error)
		return error;
	memcpy(&made.pd, hand->answer, sizeof(made.pd));
	return answer_keep(hand, PD, &made, 0);
}

int cq_create(struct hand *hand)
{
	struct ib_uverbs_create_cq core = {
		.cqe = 1 + below(&hand->choice, one_in(&hand->choice, 8) ? 4000 : 64) + 64 * hand->honest,
		.comp_channel = one_in(&hand->choice, 2) ? channels[hand->file] : -1,
	};
	struct object made = { 0 };
	struct ib_uverbs_attr *handle;
	struct method method;
	int error;

	if (one_in(&hand->choice, 2)) {
		error = RUN_BOTH(hand, CREATE_CQ, &core, struct ib_uverbs_create_cq_resp, struct rxe_create_cq_resp);
		span_read(&made.rings[0], hand->answer + sizeof(struct ib_uverbs_create_cq_resp));
		return error ? error : answer_keep(hand, CQ, &made, 0);
	}
	method_start(&method, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
	handle = method_object(&method, UVERBS_ATTR_CREATE_CQ_HANDLE, 0);
	method_value(&method, UVERBS_ATTR_CREATE_CQ_CQE, core.cqe, 4);
	method_value(&method, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 0, 8);
	method_value(&method, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0, 4);
	if (core.comp_channel >= 0)
		method_object(&method, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, core.comp_channel);
	method_out(&method, UVERBS_ATTR_CREATE_CQ_RESP_CQE, hand->answer, 4);
	method_out(&method, UVERBS_ATTR_UHW_OUT, hand->answer + 8, sizeof(struct rxe_create_cq_resp));
	error = run_method(hand, &method);
	made.handle = handle->data;
	span_read(&made.rings[0], hand->answer + 8);
	return error ? error : object_keep(hand, CQ, &made);
}

static int cq_resize(struct hand *hand)
{
	struct ib_uverbs_resize_cq core = { .cq_handle = hand->with[0]->handle, .cqe = 1 + below(&hand->choice, 128) };
	int error = RUN_BOTH(hand, RESIZE_CQ, &core, struct ib_uverbs_resize_cq_resp, struct rxe_resize_cq_resp);

	if (!error)
		span_read(&hand->with[0]->rings[0], hand->answer + sizeof(struct ib_uverbs_resize_cq_resp));
	return error;
}

/* With a timer that often runs when the CQ is armed, moderated again or destroyed. */
static int cq_moderate(struct hand *hand)
{
	struct ib_uverbs_ex_modify_cq core = {
		.cq_handle = hand->with[0]->handle,
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.attr = { below(&hand->choice, 4), below(&hand->choice, one_in(&hand->choice, 2) ? 1 << 16 : 100) },
	};
	struct command command;

	command_start(&command, IB_USER_VERBS_EX_CMD_MODIFY_CQ, &core, sizeof(core), 0);
	command.extended = true;
	return run(hand, &command);
}

static int cq_arm(struct hand *hand)
{
	struct ib_uverbs_req_notify_cq core = {
		.cq_handle = hand->with[0]->handle,
		.solicited_only = below(&hand->choice, 2),
	};

	return RUN(hand, REQ_NOTIFY_CQ, &core, 0);
}

static int qp_by_method(struct hand *hand, const struct ib_uverbs_create_qp *core, struct object *made)
{
	struct ib_uverbs_qp_cap *caps = (void *)(hand->answer + 512);
	struct ib_uverbs_attr *handle;
	struct method method;
	int error;

	caps->max_send_wr = core->max_send_wr;
	caps->max_recv_wr = core->max_recv_wr;
	caps->max_send_sge = core->max_send_sge;
	caps->max_recv_sge = core->max_recv_sge;
	caps->max_inline_data = core->max_inline_data;
	method_start(&method, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
	handle = method_object(&method, UVERBS_ATTR_CREATE_QP_HANDLE, 0);
	method_object(&method, UVERBS_ATTR_CREATE_QP_PD_HANDLE, core->pd_handle);
	method_object(&method, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, core->send_cq_handle);
	method_object(&method, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, core->recv_cq_handle);
	if (core->is_srq)
		method_object(&method, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, core->srq_handle);
	method_value(&method, UVERBS_ATTR_CREATE_QP_USER_HANDLE, 0, 8);
	method_in(&method, UVERBS_ATTR_CREATE_QP_CAP, caps, sizeof(*caps));
	method_value(&method, UVERBS_ATTR_CREATE_QP_TYPE, core->qp_type, 8);
	method_out(&method, UVERBS_ATTR_CREATE_QP_RESP_CAP, hand->answer, sizeof(*caps));
	method_out(&method, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, hand->answer + 64, 4);
	method_out(&method, UVERBS_ATTR_UHW_OUT, hand->answer + 128, sizeof(struct rxe_create_qp_resp));
	error = run_method(hand, &method);
	made->handle = handle->data;
	memcpy(&made->number, hand->answer + 64, 4);
	span_read(&made->rings[0], hand->answer + 128 + offsetof(struct rxe_create_qp_resp, rq_mi));
	span_read(&made->rings[1], hand->answer + 128 + offsetof(struct rxe_create_qp_resp, sq_mi));
	return error;
}

/* The argument is the type of the queue pair; 0 is for types that do not exist or are not for users. */
int qp_create(struct hand *hand)
{
	static const uint8_t others[] = { 0, 1, 5, 6, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_DRIVER, 77 };
	const size_t size = sizeof(struct ib_uverbs_create_qp_resp);
	struct choice *choice = &hand->choice;
	struct ib_uverbs_create_qp core = {
		.pd_handle = hand->with[0]->handle,
		.send_cq_handle = hand->with[1]->handle,
		.recv_cq_handle = hand->with[2]->handle,
		.max_send_wr = 1 + below(choice, 32),
		.max_recv_wr = 1 + below(choice, 32),
		.max_send_sge = 1 + below(choice, 4),
		.max_recv_sge = 1 + below(choice, 4),
		.max_inline_data = below(choice, 128),
		.sq_sig_all = hand->honest || one_in(choice, 2),
		.qp_type = hand->argument ? hand->argument : others[below(choice, ARRAY_SIZE(others))],
	};
	struct object made = { .type = core.qp_type, .pd = core.pd_handle }, *srq = object_pick(hand, hand->file, SRQ);
	int error;

	if (srq && core.qp_type != IBV_QPT_RAW_PACKET && one_in(choice, 4)) {
		core.is_srq = 1;
		core.srq_handle = srq->handle;
	}
	if (one_in(choice, 2)) {
		error = RUN_BOTH(hand, CREATE_QP, &core, struct ib_uverbs_create_qp_resp, struct rxe_create_qp_resp);
		memcpy(&made.handle, hand->answer, 4);
		memcpy(&made.number, hand->answer + offsetof(struct ib_uverbs_create_qp_resp, qpn), 4);
		span_read(&made.rings[0], hand->answer + size + offsetof(struct rxe_create_qp_resp, rq_mi));
		span_read(&made.rings[1], hand->answer + size + offsetof(struct rxe_create_qp_resp, sq_mi));
	} else {
		error = qp_by_method(hand, &core, &made);
	}
	if (core.is_srq)
		made.rings[0] = srq->rings[0];
	return error ? error : object_keep(hand, QP, &made);
}

int qp_step(struct hand *hand, const struct object *qp, enum ibv_qp_state state, uint32_t peer_device, uint32_t peer)
{
	bool sends = qp->type == IBV_QPT_RC || qp->type == IBV_QPT_XRC_SEND;
	bool receives = qp->type == IBV_QPT_RC || qp->type == IBV_QPT_XRC_RECV;
	bool connected = sends || receives || qp->type == IBV_QPT_UC;
	struct ib_uverbs_modify_qp core = {
		.qp_handle = qp->handle,
		.attr_mask = IBV_QP_STATE,
		.qp_state = state,
		.port_num = PORT,
		.qkey = QKEY,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1 + below(&hand->choice, 12),
		.timeout = 10 + below(&hand->choice, 6),
		.retry_cnt = below(&hand->choice, 8),
		.rnr_retry = below(&hand->choice, 7),
		.dest = {
			.sgid_index = known[shared->files[hand->file].device].gid_index,
			.hop_limit = 64,
			.is_global = 1,
			.port_num = PORT,
		},
	};

	if (qp->type == IBV_QPT_RC)
		core.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	memcpy(core.dest.dgid, known[peer_device].gid.raw, sizeof(core.dest.dgid));
	switch (state) {
	case IBV_QPS_INIT:
		core.attr_mask |= IBV_QP_PORT;
		if (qp->type != IBV_QPT_RAW_PACKET)
			core.attr_mask |= IBV_QP_PKEY_INDEX;
		if (connected)
			core.attr_mask |= IBV_QP_ACCESS_FLAGS;
		else if (qp->type == IBV_QPT_UD)
			core.attr_mask |= IBV_QP_QKEY;
		break;
	case IBV_QPS_RTR:
		if (connected)
			core.attr_mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
		if (receives)
			core.attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		break;
	case IBV_QPS_RTS:
		if (qp->type != IBV_QPT_RAW_PACKET)
			core.attr_mask |= IBV_QP_SQ_PSN;
		if (sends || receives)
			core.attr_mask |= IBV_QP_TIMEOUT;
		if (sends)
			core.attr_mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
		break;
	default:
		break;
	}
	return RUN(hand, MODIFY_QP, &core, 0);
}

static int qp_modify(struct hand *hand)
{
	struct object *peer = object_pick(hand, hand->file, QP);

	return qp_step(hand, hand->with[0], below(&hand->choice, IBV_QPS_UNKNOWN), shared->files[hand->file].device,
		       peer ? peer->number : 0);
}

int qps_connect(struct hand *hand, const int in[2], struct object *const qps[2])
{
	static const enum ibv_qp_state states[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };
	int error = 0;
	uint32_t i, j;

	for (i = 0; i < ARRAY_SIZE(states) && !error; i++) {
		for (j = 0; j < 2 && !error; j++) {
			hand->file = in[j];
			error = qp_step(hand, qps[j], states[i], shared->files[in[!j]].device, qps[!j]->number);
		}
	}
	return error;
}

/* Two queue pairs of any files, with each other; one of datagrams, for all. */
static int qp_connect_any(struct hand *hand)
{
	int in[2] = { hand->file, file_pick(hand) }, error;
	struct object *qps[2] = { hand->with[0] };

	qps[1] = in[1] < 0 ? NULL : object_pick(hand, in[1], QP);
	if (!qps[1])
		return NOTHING;
	hand->honest = !one_in(&hand->choice, LIE);
	error = qps_connect(hand, in, qps);
	hand->honest = false;
	return error;
}

static int qp_query(struct hand *hand)
{
	struct ib_uverbs_query_qp core = { .qp_handle = hand->with[0]->handle, .attr_mask = any(&hand->choice) };

	return RUN(hand, QUERY_QP, &core, sizeof(struct ib_uverbs_query_qp_resp));
}

/* Of this process's own, or the one that all have, by a file. */
static int domain_open(struct hand *hand)
{
	struct ib_uverbs_open_xrcd core = { .fd = one_in(&hand->choice, 2) ? domain_file : -1, .oflags = O_CREAT };
	struct object made = { 0 };
	int error = RUN(hand, OPEN_XRCD, &core, sizeof(struct ib_uverbs_open_xrcd_resp));

	return error ? error : answer_keep(hand, XRCD, &made, 0);
}

static int xrc_srq_create(struct hand *hand)
{
	struct ib_uverbs_create_xsrq core = {
		.srq_type = IB_UVERBS_SRQT_XRC,
		.xrcd_handle = hand->with[0]->handle,
		.pd_handle = hand->with[1]->handle,
		.cq_handle = hand->with[2]->handle,
		.max_wr = 1 + below(&hand->choice, 64),
		.max_sge = 1 + below(&hand->choice, 4),
	};
	struct object made = { .pd = core.pd_handle };
	int error = RUN_BOTH(hand, CREATE_XSRQ, &core, struct ib_uverbs_create_srq_resp, struct rxe_create_srq_resp);

	span_read(&made.rings[0], hand->answer + sizeof(struct ib_uverbs_create_srq_resp));
	return error ? error : answer_keep(hand, SRQ, &made, offsetof(struct ib_uverbs_create_srq_resp, srqn));
}

/* Nobody opens it: ib_uverbs_open_qp() leaves a mutex uninitialised, which lockdep reports when a group is left. */
static int target_create(struct hand *hand)
{
	struct ib_uverbs_create_qp core = {
		.pd_handle = hand->with[0]->handle,
		.max_send_wr = below(&hand->choice, 8),
		.qp_type = IBV_QPT_XRC_RECV,
	};
	struct object made = { .type = core.qp_type };
	int error = RUN(hand, CREATE_QP, &core, sizeof(struct ib_uverbs_create_qp_resp));

	return error ? error : answer_keep(hand, QP, &made, offsetof(struct ib_uverbs_create_qp_resp, qpn));
}

static int srq_create(struct hand *hand)
{
	struct ib_uverbs_create_srq core = {
		.pd_handle = hand->with[0]->handle,
		.max_wr = 1 + below(&hand->choice, 64),
		.max_sge = 1 + below(&hand->choice, 4),
	};
	struct object made = { .pd = core.pd_handle };
	struct ib_uverbs_attr *handle;
	struct method method;
	int error;

	if (one_in(&hand->choice, 2)) {
		error = RUN_BOTH(hand, CREATE_SRQ, &core, struct ib_uverbs_create_srq_resp, struct rxe_create_srq_resp);
		span_read(&made.rings[0], hand->answer + sizeof(struct ib_uverbs_create_srq_resp));
		return error ? error : answer_keep(hand, SRQ, &made, 0);
	}
	method_start(&method, UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE);
	handle = method_object(&method, UVERBS_ATTR_CREATE_SRQ_HANDLE, 0);
	method_object(&method, UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, core.pd_handle);
	method_value(&method, UVERBS_ATTR_CREATE_SRQ_TYPE, IB_UVERBS_SRQT_BASIC, 8);
	method_value(&method, UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, 0, 8);
	method_value(&method, UVERBS_ATTR_CREATE_SRQ_MAX_WR, core.max_wr, 4);
	method_value(&method, UVERBS_ATTR_CREATE_SRQ_MAX_SGE, core.max_sge, 4);
	method_value(&method, UVERBS_ATTR_CREATE_SRQ_LIMIT, 0, 4);
	method_out(&method, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, hand->answer, 4);
	method_out(&method, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, hand->answer + 4, 4);
	method_out(&method, UVERBS_ATTR_UHW_OUT, hand->answer + 8, sizeof(struct rxe_create_srq_resp));
	error = run_method(hand, &method);
	made.handle = handle->data;
	span_read(&made.rings[0], hand->answer + 8);
	return error ? error : object_keep(hand, SRQ, &made);
}

static int srq_limit(struct hand *hand)
{
	struct ib_uverbs_modify_srq core = {
		.srq_handle = hand->with[0]->handle,
		.attr_mask = IBV_SRQ_LIMIT,
		.srq_limit = below(&hand->choice, 8),
	};

	return RUN(hand, MODIFY_SRQ, &core, 0);
}

static int srq_resize(struct hand *hand)
{
	struct ib_uverbs_modify_srq core = {
		.srq_handle = hand->with[0]->handle,
		.attr_mask = IBV_SRQ_MAX_WR,
		.max_wr = 1 + below(&hand->choice, 128),
	};
	struct command command;
	int error;

	command_start(&command, IB_USER_VERBS_CMD_MODIFY_SRQ, &core, sizeof(core), 0);
	/* Where the new ring is, is not written to an answer. */
	command.driver = (uintptr_t)hand->answer;
	command.driver_size = sizeof(struct rxe_modify_srq_cmd);
	error = run(hand, &command);
	if (!error)
		span_read(&hand->with[0]->rings[0], hand->answer);
	return error;
}

static int srq_query(struct hand *hand)
{
	struct ib_uverbs_query_srq core = { .srq_handle = hand->with[0]->handle };

	return RUN(hand, QUERY_SRQ, &core, sizeof(struct ib_uverbs_query_srq_resp));
}

#define ACCESS                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

/* A part of the arena from the start on: elements know no other place of it. */
static uint64_t arena_part(struct hand *hand)
{
	return hand->honest || one_in(&hand->choice, 2) ? ARENA : 1 + below(&hand->choice, ARENA);
}

int region_register(struct hand *hand)
{
	struct ib_uverbs_reg_mr core = {
		.pd_handle = hand->with[0]->handle,
		.start = (uintptr_t)arena,
		.length = arena_part(hand),
		.hca_va = (uintptr_t)arena,
		.access_flags = ACCESS,
	};
	struct object made = { .pd = core.pd_handle, .rings[0].size = core.length };
	struct command command;
	int error;

	if (hand->argument != PINNED)
		core.access_flags |= IBV_ACCESS_ON_DEMAND;
	if (hand->argument == PAGED && one_in(&hand->choice, 4))
		madvise(arena, ARENA, MADV_DONTNEED);
	if (hand->argument == ALL_ADDRESSES) {
		core.start = core.hca_va = 0;
		core.length = UINT64_MAX;
		made.rings[0].size = ARENA;
	}
	command_start(&command, IB_USER_VERBS_CMD_REG_MR, &core, sizeof(core), sizeof(struct ib_uverbs_reg_mr_resp));
	/* Response, start, and the address that it is known by. */
	command.addresses = 0xb;
	error = run(hand, &command);
	return error ? error : answer_keep(hand, MR, &made, offsetof(struct ib_uverbs_reg_mr_resp, lkey));
}

static int region_again(struct hand *hand)
{
	struct ib_uverbs_rereg_mr core = {
		.mr_handle = hand->with[0]->handle,
		.pd_handle = hand->with[1]->handle,
		.flags = 1 + below(&hand->choice, 7),
		.start = (uintptr_t)arena,
		.length = arena_part(hand),
		.hca_va = (uintptr_t)arena,
		.access_flags = ACCESS,
	};
	struct command command;
	int error;

	command_start(&command, IB_USER_VERBS_CMD_REREG_MR, &core, sizeof(core),
		      sizeof(struct ib_uverbs_rereg_mr_resp));
	/* Response, start, and the address that it is known by. */
	command.addresses = 0x15;
	error = run(hand, &command);
	if (!error)
		memcpy(&hand->with[0]->number, hand->answer, 4);
	return error;
}

static int region_advise(struct hand *hand)
{
	struct ib_uverbs_sge *list = (void *)(hand->answer + 512);
	uint32_t length = 1 + below(&hand->choice, 4), i;
	struct method method;

	for (i = 0; i < length; i++) {
		list[i].addr = (uintptr_t)arena + 4096 * below(&hand->choice, 16);
		list[i].length = below(&hand->choice, ARENA / 2);
		list[i].lkey = hand->with[0]->number;
	}
	method_start(&method, UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR);
	method_object(&method, UVERBS_ATTR_ADVISE_MR_PD_HANDLE, hand->with[1]->handle);
	method_value(&method, UVERBS_ATTR_ADVISE_MR_ADVICE, below(&hand->choice, 3), 8);
	method_value(&method, UVERBS_ATTR_ADVISE_MR_FLAGS, below(&hand->choice, 2), 8);
	method_in(&method, UVERBS_ATTR_ADVISE_MR_SGE_LIST, list, length * sizeof(*list));
	return run_method(hand, &method);
}

static int region_query(struct hand *hand)
{
	struct method method;

	method_start(&method, UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR);
	method_object(&method, UVERBS_ATTR_QUERY_MR_HANDLE, hand->with[0]->handle);
	method_out(&method, UVERBS_ATTR_QUERY_MR_RESP_LKEY, hand->answer, 4);
	method_out(&method, UVERBS_ATTR_QUERY_MR_RESP_RKEY, hand->answer + 8, 4);
	method_out(&method, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, hand->answer + 16, 8);
	method_out(&method, UVERBS_ATTR_QUERY_MR_RESP_IOVA, hand->answer + 24, 8);
	return run_method(hand, &method);
}

int window_alloc(struct hand *hand)
{
	struct ib_uverbs_alloc_mw core = {
		.pd_handle = hand->with[0]->handle,
		.mw_type = 1 + below(&hand->choice, 2),
	};
	struct object made = { .pd = core.pd_handle };
	int error = RUN(hand, ALLOC_MW, &core, sizeof(struct ib_uverbs_alloc_mw_resp));

	return error ? error : answer_keep(hand, MW, &made, offsetof(struct ib_uverbs_alloc_mw_resp, rkey));
}

/* To the device of the argument, or to any. */
int handle_create(struct hand *hand)
{
	uint32_t to = hand->argument < 2 ? hand->argument : below(&hand->choice, 2);
	struct ib_uverbs_create_ah core = {
		.pd_handle = hand->with[0]->handle,
		.attr = {
			.grh = {
				.sgid_index = known[shared->files[hand->file].device].gid_index,
				.hop_limit = 64,
			},
			.is_global = 1,
			.port_num = PORT,
		},
	};
	struct object made = { .pd = core.pd_handle };
	int error;

	memcpy(core.attr.grh.dgid, known[to].gid.raw, sizeof(core.attr.grh.dgid));
	error = RUN_BOTH(hand, CREATE_AH, &core, struct ib_uverbs_create_ah_resp, struct rxe_create_ah_resp);
	return error ? error : answer_keep(hand, AH, &made, sizeof(struct ib_uverbs_create_ah_resp));
}

static int group_change(struct hand *hand)
{
	struct ib_uverbs_attach_mcast core = {
		.qp_handle = hand->with[0]->handle,
		/* 239.1.2.x */
		.gid = { [10] = 0xff, 0xff, 239, 1, 2, below(&hand->choice, 2) },
	};

	return run_command(hand, hand->argument, &core, sizeof(core), 0, 0);
}

/* --- Questions ------------------------------------------------------------------------------ */

static int device_query(struct hand *hand)
{
	struct ib_uverbs_ex_query_device extended = { 0 };
	struct ib_uverbs_query_device core = { 0 };
	struct command command;

	if (one_in(&hand->choice, 2))
		return RUN(hand, QUERY_DEVICE, &core, sizeof(struct ib_uverbs_query_device_resp));
	command_start(&command, IB_USER_VERBS_EX_CMD_QUERY_DEVICE, &extended, sizeof(extended),
		      sizeof(struct ib_uverbs_ex_query_device_resp));
	command.extended = true;
	command.addresses = 0;
	return run(hand, &command);
}

static int port_query(struct hand *hand)
{
	struct ib_uverbs_query_port core = { .port_num = PORT };
	struct method method;

	if (one_in(&hand->choice, 2))
		return RUN(hand, QUERY_PORT, &core, sizeof(struct ib_uverbs_query_port_resp));
	method_start(&method, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT);
	method_value(&method, UVERBS_ATTR_QUERY_PORT_PORT_NUM, PORT, 8);
	method_out(&method, UVERBS_ATTR_QUERY_PORT_RESP, hand->answer, sizeof(struct ib_uverbs_query_port_resp_ex));
	return run_method(hand, &method);
}

static int gids_query(struct hand *hand)
{
	struct method method;

	method_start(&method, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE);
	method_value(&method, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, sizeof(struct ib_uverbs_gid_entry), 8);
	method_out(&method, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, hand->answer + 64,
		   below(&hand->choice, 32) * sizeof(struct ib_uverbs_gid_entry));
	method_out(&method, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, hand->answer, 8);
	return run_method(hand, &method);
}

/* Asks for the objects that there are and destroys one: so what nobody knows of any more does not pile up. */
static int objects_sweep(struct hand *hand)
{
	enum kind kind = PD + below(&hand->choice, KINDS - PD);
	uint32_t length = 64, handle, total;
	struct method method;
	int error;

	method_start(&method, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES);
	method_value(&method, UVERBS_ATTR_INFO_OBJECT_ID, ends[kind].object, 8);
	method_out(&method, UVERBS_ATTR_INFO_TOTAL_HANDLES, hand->answer, sizeof(total));
	method_out(&method, UVERBS_ATTR_INFO_HANDLES_LIST, hand->answer + 8, length * sizeof(handle));
	error = run_method(hand, &method);
	if (error)
		return error;
	memcpy(&total, hand->answer, sizeof(total));
	/* As few as are known anyway are left alone. */
	if (total <= OBJECTS || total > length)
		return 0;
	memcpy(&handle, hand->answer + 8 + below(&hand->choice, total) * sizeof(handle), sizeof(handle));
	return handle_end(hand, kind, handle);
}

const struct action object_actions[] = {
	{ "alloc PD", pd_alloc, .weight = 3, .needs = { A_FILE } },
	{ "dealloc PD", object_end, .weight = 3, .needs = { PD }, .argument = PD },
	{ "create CQ", cq_create, .weight = 6, .needs = { A_FILE } },
	{ "resize CQ", cq_resize, .weight = 10, .needs = { CQ } },
	{ "moderate CQ", cq_moderate, .weight = 6, .needs = { CQ } },
	{ "arm CQ", cq_arm, .weight = 12, .needs = { CQ } },
	{ "destroy CQ", object_end, .weight = 4, .needs = { CQ }, .argument = CQ },
	{ "create QP of RC", qp_create, .weight = 8, .needs = { PD, CQ, CQ }, .argument = IBV_QPT_RC },
	{ "create QP of UC", qp_create, .weight = 4, .needs = { PD, CQ, CQ }, .argument = IBV_QPT_UC },
	{ "create QP of UD", qp_create, .weight = 6, .needs = { PD, CQ, CQ }, .argument = IBV_QPT_UD },
	{ "create QP of raw packets", qp_create, .weight = 3, .needs = { PD, CQ, CQ }, .argument = IBV_QPT_RAW_PACKET },
	{ "create QP of another type", qp_create, .weight = 2, .needs = { PD, CQ, CQ }, .argument = 0, .in_vain = true },
	{ "modify QP", qp_modify, .weight = 10, .needs = { QP } },
	{ "connect QPs", qp_connect_any, .weight = 40, .needs = { QP } },
	{ "query QP", qp_query, .weight = 12, .needs = { QP } },
	{ "destroy QP", object_end, .weight = 4, .needs = { QP }, .argument = QP },
	{ "create QP of XRC", qp_create, .weight = 6, .needs = { PD, CQ, CQ }, .argument = IBV_QPT_XRC_SEND },
	{ "open domain", domain_open, .weight = 5, .needs = { A_FILE } },
	{ "close domain", object_end, .weight = 3, .needs = { XRCD }, .argument = XRCD },
	{ "create SRQ of XRC", xrc_srq_create, .weight = 6, .needs = { XRCD, PD, CQ } },
	{ "create target of XRC", target_create, .weight = 8, .needs = { XRCD } },
	{ "create SRQ", srq_create, .weight = 5, .needs = { PD } },
	{ "arm SRQ", srq_limit, .weight = 8, .needs = { SRQ } },
	{ "resize SRQ", srq_resize, .weight = 8, .needs = { SRQ } },
	{ "query SRQ", srq_query, .weight = 8, .needs = { SRQ } },
	{ "destroy SRQ", object_end, .weight = 3, .needs = { SRQ }, .argument = SRQ },
	{ "register MR", region_register, .weight = 10, .needs = { PD }, .argument = PINNED },
	{ "register MR, paged on demand", region_register, .weight = 6, .needs = { PD }, .argument = PAGED },
	{ "register MR of all addresses", region_register, .weight = 4, .needs = { PD }, .argument = ALL_ADDRESSES },
	{ "reregister MR", region_again, .weight = 3, .needs = { MR, PD } },
	{ "advise MR", region_advise, .weight = 12, .needs = { MR, PD } },
	{ "query MR", region_query, .weight = 6, .needs = { MR }, .in_vain = true },
	{ "deregister MR", object_end, .weight = 4, .needs = { MR }, .argument = MR },
	{ "alloc MW", window_alloc, .weight = 10, .needs = { PD } },
	{ "dealloc MW", object_end, .weight = 6, .needs = { MW }, .argument = MW },
	{ "create AH", handle_create, .weight = 12, .needs = { PD }, .argument = UINT32_MAX },
	{ "destroy AH", object_end, .weight = 6, .needs = { AH }, .argument = AH },
	{ "attach to a group", group_change, .weight = 14, .needs = { QP }, .argument = IB_USER_VERBS_CMD_ATTACH_MCAST },
	{ "detach from a group", group_change, .weight = 14, .needs = { QP }, .argument = IB_USER_VERBS_CMD_DETACH_MCAST, .in_vain = true },
	{ "query device", device_query, .weight = 6, .needs = { A_FILE } },
	{ "query port", port_query, .weight = 6, .needs = { A_FILE } },
	{ "query GIDs", gids_query, .weight = 6, .needs = { A_FILE } },
	{ "ask for objects and destroy one", objects_sweep, .weight = 10, .needs = { A_FILE } },
	{ .name = NULL },
};

/* --- Events --------------------------------------------------------------------------------- */

static int channel_create(struct hand *hand)
{
	struct ib_uverbs_create_comp_channel core = { 0 };
	int error = RUN(hand, CREATE_COMP_CHANNEL, &core, sizeof(struct ib_uverbs_create_comp_channel_resp)), fd;

	if (error || hand->lies.lied)
		return error;
	memcpy(&fd, hand->answer, sizeof(fd));
	fcntl(fd, F_SETFL, O_NONBLOCK);
	descriptor_set(&channels[hand->file], fd);
	return 0;
}

static int async_create(struct hand *hand)
{
	struct ib_uverbs_attr *fd;
	struct method method;
	int error;

	method_start(&method, UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC);
	fd = method_object(&method, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0);
	error = run_method(hand, &method);
	if (!error && !hand->lies.lied)
		event_file_keep(hand, fd->data);
	return error;
}

static int events_read(struct hand *hand)
{
	uint32_t at = below(&hand->choice, EVENT_FILES + FILES);
	int fd = at < EVENT_FILES ? event_files[at] : channels[at - EVENT_FILES];
	ssize_t size;

	if (fd < 0)
		return NOTHING;
	size = read(fd, hand->answer, 1 + below(&hand->choice, 256));
	if (size < 0 && errno == EAGAIN)
		return NOTHING;
	return size < 0 ? errno : 0;
}

static int nonsense(struct hand *hand)
{
	return nonsense_run(files[hand->file], &hand->choice, hand->answer);
}

const struct action event_actions[] = {
	{ "create completion channel", channel_create, .weight = 8, .needs = { A_FILE } },
	{ "create file of events", async_create, .weight = 8, .needs = { A_FILE } },
	{ "read events", events_read, .weight = 40 },
	{ "bytes without a meaning", nonsense, .weight = 30, .needs = { A_FILE }, .in_vain = true },
	{ .name = NULL },
};
