// SPDX-License-Identifier: GPL-2.0
/*
 * Verbs by many hands: some processes with some threads each, which share files of uverbs and the
 * objects in them, and do with them what they like: make, change, use and destroy, with arguments
 * that make sense and with others, beside each other. They map rings and post, pass files on and close
 * them, listen and connect by rdma_cm, dump by netlink, fork. Meanwhile the processes are killed, run
 * out of memory and out of objects, and are replaced. A bystander must not notice.
 *
 * verbsfuzz [-s SEED] [-t SECONDS] [-c FILE] DEVICE DEVICE NAMESPACE NAMESPACE
 *	-c	adds the addresses that kcov notes to FILE
 *	NAMESPACE	the network namespace of each device
 *
 * The seed decides what each thread does; how the threads interleave it does not.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_netlink.h>
#include <rdma/rdma_user_cm.h>
#include <rdma/rdma_user_rxe.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bystander.h"
#include "cgroup.h"
#include "choice.h"
#include "coverage.h"
#include "endpoint.h"
#include "fuzzer.h"
#include "kselftest.h"
#include "namespace.h"
#include "raw_verbs.h"

/* Processes at a time, and threads of each. */
#define CREW 4
#define HANDS 3
/* Files of uverbs that are shared, and how many objects of each kind are known of a file. */
#define FILES 6
#define OBJECTS 4
/* Of a process. */
#define MAPPINGS 24
#define EVENT_FILES 16
#define CM_FILES 2
/* Ids of a file of rdma_cm: each may have a MAD under way when it is destroyed, which is waited for. */
#define CM_IDS 3
/* Memory that is registered: each process has its own at the same address. */
#define ARENA (1 << 18)
#define QKEY 0x11223344
/* One command in so many lies. */
#define LIE 7
#define FEWEST_COMMANDS 3000
/* How long the last commands may take when the time is over. */
#define LAST_COMMANDS_MS 200000
/* Of the cgroup of one process that is to run out of memory, and of all of them together. */
#define LITTLE_MEMORY "33554432"
#define MUCH_MEMORY "805306368"
/* Each is a page in the kernel's log. */
#define MOST_OOM_KILLS 16
#define GROUP CGROUPS "/verbsfuzz"
#define POOR GROUP "/poor"
#define RICH GROUP "/rich"

#define ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* --- What is shared by all processes ----------------------------------------------------- */

enum kind { PD, CQ, QP, SRQ, MR, MW, AH, KINDS };

struct span {
	uint64_t offset;
	uint32_t size;
};

/* Nobody holds a lock: what is read here may be half of another object. */
struct object {
	volatile uint32_t there;
	uint32_t handle;
	/* Of a QP or an AH, as the peer or an element names it; the key of a region or window. */
	uint32_t number;
	uint32_t type;
	/* The ring of receives or completions, and that of sends. */
	struct span rings[2];
};

struct file {
	/* Of the last time that it was opened: who has an older one closes it. */
	volatile uint32_t generation;
	uint32_t device;
	struct object objects[KINDS][OBJECTS];
};

enum action {
	OPEN_FILE, CLOSE_FILE, PASS_FILE, TAKE_FILE,
	ALLOC_PD, DEALLOC_PD,
	CREATE_CQ, RESIZE_CQ, ARM_CQ, DESTROY_CQ,
	CREATE_RC, CREATE_UC, CREATE_UD, CREATE_RAW, CREATE_OTHER, MODIFY_QP, CONNECT_QP, QUERY_QP, DESTROY_QP,
	CREATE_SRQ, LIMIT_SRQ, RESIZE_SRQ, QUERY_SRQ, DESTROY_SRQ,
	REG_PINNED, REG_PAGED, REG_ALL, REREG_MR, ADVISE_MR, QUERY_MR, DEREG_MR,
	ALLOC_MW, DEALLOC_MW,
	CREATE_AH, DESTROY_AH,
	ATTACH, DETACH,
	QUERY_DEVICE, QUERY_PORT, QUERY_GIDS, SWEEP,
	CREATE_CHANNEL, CREATE_ASYNC, READ_EVENTS,
	MAP_RING, UNMAP_RING, POST_SENDS, POST_RECEIVES, POLL, POST_LIST,
	LIES, NONSENSE,
	DUMP_RESOURCES, DUMP_STATISTICS,
	CM_CREATE, CM_BIND, CM_LISTEN, CM_ADDRESS, CM_ROUTE, CM_CONNECT, CM_EVENT, CM_ACCEPT, CM_REJECT,
	CM_DISCONNECT, CM_QUERY, CM_ATTRIBUTES, CM_OPTION, CM_JOIN, CM_MIGRATE, CM_DESTROY, CM_NONSENSE,
	FORK,
	ACTIONS,
};

static struct {
	volatile bool over;
	/* Who has little memory is to use it up. */
	volatile bool gorge;
	volatile uint64_t done[ACTIONS], refused[ACTIONS];
	/* Completions, those of success, and objects that rdma.max has refused. */
	volatile uint64_t completions, successes, limited;
	volatile uint64_t kills, oom_kills, replaced;
	volatile bool ended;
	struct file files[FILES];
} *shared;

static void count(volatile uint64_t *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* --- What is known before ----------------------------------------------------------------- */

static struct {
	const char *name, *space;
	char path[96];
	uint32_t gid_index;
	union ibv_gid gid;
} devices[2];

static uint8_t arena[ARENA] __attribute__((aligned(4096)));
/* Files are passed to each process by a pair of sockets of its own. */
static int mail[CREW][2];
static bool has_memory_cgroups, has_rdma_cgroups;
static uint64_t seed;

/* --- What a process has ------------------------------------------------------------------- */

struct mapping {
	pthread_mutex_t lock;
	uint8_t *memory;
	size_t size;
	enum kind kind;
	bool sends;
	uint32_t file, handle, type;
	uint32_t mask, shift;
};

/* As in librdmacm's rdma/rdma_cma.h, which cannot be included beside the kernel's rdma_user_cm.h. */
enum cm_event_type {
	ADDRESS_RESOLVED, ADDRESS_ERROR, ROUTE_RESOLVED, ROUTE_ERROR, CONNECT_REQUEST, CONNECT_RESPONSE, CONNECT_ERROR,
	UNREACHABLE, REJECTED, ESTABLISHED, DISCONNECTED, TIMEWAIT_EXIT = 15,
};

/* How far an id of rdma_cm is, as far as is known. */
enum cm_state {
	CM_FREE, CM_NEW, CM_BOUND, CM_LISTENING, CM_RESOLVED, CM_ROUTED, CM_CONNECTING, CM_REQUESTED, CM_ANSWERED,
	CM_CONNECTED, CM_DEAD, CM_STATES,
};

/* A thread. */
struct hand {
	struct choice choice;
	/* ANSWER_ROOM of it. */
	uint8_t *answer;
	int netlink;
	/* Of the command that is carried out. */
	struct lies lies;
	/* What takes several steps would hardly ever succeed otherwise. */
	bool honest;
};

static unsigned int crew_index;
static int files[FILES];
static uint32_t generations[FILES];
static int event_files[EVENT_FILES];
static int channels[FILES];
static struct mapping mappings[MAPPINGS];
static int cm_files[CM_FILES];
static struct {
	volatile enum cm_state state;
	uint32_t number;
} cm_ids[CM_FILES][CM_IDS];

/* What an action returns, besides 0 and errno: there was nothing that it could have been done to. */
#define NOTHING (-1)

/* Puts a file descriptor in a place, and closes the one that was there. */
static void descriptor_set(int *place, int fd)
{
	int old = __atomic_exchange_n(place, fd, __ATOMIC_SEQ_CST);

	if (old >= 0)
		close(old);
}

static void event_file_keep(struct hand *hand, int fd)
{
	if (fd < 0)
		return;
	fcntl(fd, F_SETFL, O_NONBLOCK);
	descriptor_set(&event_files[below(&hand->choice, EVENT_FILES)], fd);
}

/* A file that this process has and that is the one that the others mean, too. */
static int file_pick(struct hand *hand)
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

static struct object *object_pick(struct hand *hand, int file, enum kind kind)
{
	/* What belongs together must be of one protection domain: so there is a usual one. */
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
	hand->lies.choice = &hand->choice;
	hand->lies.lied = false;
	return !hand->honest && one_in(&hand->choice, LIE) ? &hand->lies : NULL;
}

static int run(struct hand *hand, int file, struct command *command)
{
	memset(hand->answer, 0, 256);
	return command_run(files[file], command, hand->answer, one_in(&hand->choice, 2), lies_for(hand));
}

static int run_method(struct hand *hand, int file, struct method *method)
{
	memset(hand->answer, 0, 256);
	return method_run(files[file], method, lies_for(hand));
}

#define COMMAND(command, name, core, answer_size)                                                  \
	command_start(command, IB_USER_VERBS_CMD_##name, core, sizeof(*(core)), answer_size)

static const struct {
	uint16_t object, method;
	/* By write(): the command, and where in it the handle stands. */
	uint32_t command;
	size_t core_size, handle_at, answer_size;
} ends[KINDS] = {
	[PD] = { UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, IB_USER_VERBS_CMD_DEALLOC_PD,
		 sizeof(struct ib_uverbs_dealloc_pd), 0, 0 },
	[CQ] = { UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, IB_USER_VERBS_CMD_DESTROY_CQ,
		 sizeof(struct ib_uverbs_destroy_cq), 8, sizeof(struct ib_uverbs_destroy_cq_resp) },
	[QP] = { UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, IB_USER_VERBS_CMD_DESTROY_QP,
		 sizeof(struct ib_uverbs_destroy_qp), 8, sizeof(struct ib_uverbs_destroy_qp_resp) },
	[SRQ] = { UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, IB_USER_VERBS_CMD_DESTROY_SRQ,
		  sizeof(struct ib_uverbs_destroy_srq), 8, sizeof(struct ib_uverbs_destroy_srq_resp) },
	[MR] = { UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, IB_USER_VERBS_CMD_DEREG_MR,
		 sizeof(struct ib_uverbs_dereg_mr), 0, 0 },
	[MW] = { UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, IB_USER_VERBS_CMD_DEALLOC_MW,
		 sizeof(struct ib_uverbs_dealloc_mw), 0, 0 },
	[AH] = { UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, IB_USER_VERBS_CMD_DESTROY_AH,
		 sizeof(struct ib_uverbs_destroy_ah), 0, 0 },
};

static int handle_end(struct hand *hand, int file, enum kind kind, uint32_t handle)
{
	struct command command;
	struct method method;
	uint64_t core[8] = { 0 };

	if (one_in(&hand->choice, 2)) {
		memcpy((uint8_t *)core + ends[kind].handle_at, &handle, sizeof(handle));
		command_start(&command, ends[kind].command, core, ends[kind].core_size, ends[kind].answer_size);
		return run(hand, file, &command);
	}
	method_start(&method, ends[kind].object, ends[kind].method);
	/* The first attribute of each such method is the object, the second the answer. */
	method_object(&method, 0, handle);
	if (ends[kind].answer_size)
		method_out(&method, 1, hand->answer, ends[kind].answer_size);
	return run_method(hand, file, &method);
}

static int object_end(struct hand *hand, enum kind kind)
{
	int file = file_pick(hand), error;
	struct object *object;

	object = file < 0 ? NULL : object_pick(hand, file, kind);
	if (!object)
		return NOTHING;
	error = handle_end(hand, file, kind, object->handle);
	if (!error && !hand->lies.lied)
		object->there = false;
	return error;
}

/* Others may know it from now on; the one in whose place it stands is destroyed, which they may use. */
static void object_keep(struct hand *hand, int file, enum kind kind, const struct object *made)
{
	struct object *place = &shared->files[file].objects[kind][below(&hand->choice, OBJECTS)];
	struct lies lies = hand->lies;
	struct object old = *place;

	*place = *made;
	place->there = true;
	if (old.there)
		handle_end(hand, file, kind, old.handle);
	hand->lies = lies;
}

/* Makes an object by a command whose answer begins with the handle. */
static int object_make(struct hand *hand, int file, struct command *command, struct object *made)
{
	int error = run(hand, file, command);

	if (error)
		return error;
	memcpy(&made->handle, hand->answer, sizeof(made->handle));
	return 0;
}

static void span_read(struct span *span, const uint8_t *from)
{
	struct mminfo info;

	memcpy(&info, from, sizeof(info));
	span->offset = info.offset;
	span->size = info.size;
}

/* --- Files -------------------------------------------------------------------------------- */

static void file_mail(struct hand *hand, int file)
{
	uint32_t words[2] = { file, generations[file] };
	uint8_t control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec vector = { words, sizeof(words) };
	struct msghdr message = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &files[file], sizeof(int));
	errno = 0;
	sendmsg(mail[below(&hand->choice, CREW)][1], &message, MSG_DONTWAIT);
}

static int file_pass(struct hand *hand)
{
	int file = file_pick(hand);

	if (file < 0)
		return NOTHING;
	file_mail(hand, file);
	return errno;
}

static int file_take(struct hand *hand)
{
	uint8_t control[CMSG_SPACE(sizeof(int))];
	uint32_t words[2];
	struct iovec vector = { words, sizeof(words) };
	struct msghdr message = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *header;
	int fd;

	(void)hand;
	if (recvmsg(mail[crew_index][0], &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != sizeof(words))
		return NOTHING;
	header = CMSG_FIRSTHDR(&message);
	if (!header || header->cmsg_type != SCM_RIGHTS)
		return EMFILE;
	memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	generations[words[0]] = words[1];
	descriptor_set(&files[words[0]], fd);
	return 0;
}

static int file_open(struct hand *hand)
{
	uint32_t file = below(&hand->choice, FILES), device = below(&hand->choice, 2);
	struct ib_uverbs_get_context_resp *answer = (void *)hand->answer;
	struct ib_uverbs_get_context core = { 0 };
	struct command command;
	struct method method;
	int fd, error;

	/* Most are to live for a while. */
	if (files[file] >= 0 && generations[file] == shared->files[file].generation && !one_in(&hand->choice, 40))
		return NOTHING;
	fd = open(devices[device].path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno;
	/* Nobody knows the file yet, and nothing of it lies: see other_number(). */
	memset(hand->answer, 0, 256);
	hand->lies.lied = false;
	if (one_in(&hand->choice, 2)) {
		COMMAND(&command, GET_CONTEXT, &core, sizeof(*answer));
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
		return error;
	}
	memset(shared->files[file].objects, 0, sizeof(shared->files[file].objects));
	shared->files[file].device = device;
	generations[file] = __atomic_add_fetch(&shared->files[file].generation, 1, __ATOMIC_SEQ_CST);
	descriptor_set(&channels[file], -1);
	descriptor_set(&files[file], fd);
	file_mail(hand, file);
	return 0;
}

static int file_close(struct hand *hand)
{
	int file = file_pick(hand);

	if (file < 0)
		return NOTHING;
	descriptor_set(&files[file], -1);
	return 0;
}

/* --- Objects ------------------------------------------------------------------------------ */

static int pd_alloc(struct hand *hand)
{
	struct ib_uverbs_alloc_pd core = { 0 };
	struct object made = { 0 };
	struct command command;
	int file = file_pick(hand), error;

	if (file < 0)
		return NOTHING;
	COMMAND(&command, ALLOC_PD, &core, sizeof(struct ib_uverbs_alloc_pd_resp));
	error = object_make(hand, file, &command, &made);
	if (!error)
		object_keep(hand, file, PD, &made);
	return error;
}

static int cq_create(struct hand *hand)
{
	struct ib_uverbs_create_cq core = {
		.cqe = 1 + below(&hand->choice, one_in(&hand->choice, 8) ? 4000 : 64),
		.comp_channel = -1,
	};
	int file = file_pick(hand), error;
	struct object made = { 0 };
	struct command command;
	struct method method;
	struct ib_uverbs_attr *handle;

	if (file < 0)
		return NOTHING;
	if (one_in(&hand->choice, 2))
		core.comp_channel = channels[file];
	if (one_in(&hand->choice, 2)) {
		COMMAND(&command, CREATE_CQ, &core, sizeof(struct ib_uverbs_create_cq_resp));
		command.driver_answer_size = sizeof(struct rxe_create_cq_resp);
		error = object_make(hand, file, &command, &made);
		span_read(&made.rings[0], hand->answer + sizeof(struct ib_uverbs_create_cq_resp));
	} else {
		method_start(&method, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
		handle = method_object(&method, UVERBS_ATTR_CREATE_CQ_HANDLE, 0);
		method_value(&method, UVERBS_ATTR_CREATE_CQ_CQE, core.cqe, 4);
		method_value(&method, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 0, 8);
		method_value(&method, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0, 4);
		if (core.comp_channel >= 0)
			method_object(&method, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, core.comp_channel);
		method_out(&method, UVERBS_ATTR_CREATE_CQ_RESP_CQE, hand->answer, 4);
		method_out(&method, UVERBS_ATTR_UHW_OUT, hand->answer + 8, sizeof(struct rxe_create_cq_resp));
		error = run_method(hand, file, &method);
		made.handle = handle->data;
		span_read(&made.rings[0], hand->answer + 8);
	}
	if (!error)
		object_keep(hand, file, CQ, &made);
	return error;
}

static int cq_resize(struct hand *hand)
{
	int file = file_pick(hand), error;
	struct ib_uverbs_resize_cq core = { .cqe = 1 + below(&hand->choice, 128) };
	struct command command;
	struct object *cq;

	cq = file < 0 ? NULL : object_pick(hand, file, CQ);
	if (!cq)
		return NOTHING;
	core.cq_handle = cq->handle;
	COMMAND(&command, RESIZE_CQ, &core, sizeof(struct ib_uverbs_resize_cq_resp));
	command.driver_answer_size = sizeof(struct rxe_resize_cq_resp);
	error = run(hand, file, &command);
	if (!error)
		span_read(&cq->rings[0], hand->answer + sizeof(struct ib_uverbs_resize_cq_resp));
	return error;
}

static int cq_arm(struct hand *hand)
{
	struct ib_uverbs_req_notify_cq core = { .solicited_only = below(&hand->choice, 2) };
	int file = file_pick(hand);
	struct command command;
	struct object *cq;

	cq = file < 0 ? NULL : object_pick(hand, file, CQ);
	if (!cq)
		return NOTHING;
	core.cq_handle = cq->handle;
	COMMAND(&command, REQ_NOTIFY_CQ, &core, 0);
	return run(hand, file, &command);
}

static int qp_by_method(struct hand *hand, int file, const struct ib_uverbs_create_qp *core, struct object *made)
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
	error = run_method(hand, file, &method);
	made->handle = handle->data;
	memcpy(&made->number, hand->answer + 64, 4);
	span_read(&made->rings[0], hand->answer + 128 + offsetof(struct rxe_create_qp_resp, rq_mi));
	span_read(&made->rings[1], hand->answer + 128 + offsetof(struct rxe_create_qp_resp, sq_mi));
	return error;
}

static int qp_create(struct hand *hand, uint32_t type)
{
	struct choice *choice = &hand->choice;
	struct ib_uverbs_create_qp core = {
		.max_send_wr = 1 + below(choice, 32),
		.max_recv_wr = 1 + below(choice, 32),
		.max_send_sge = 1 + below(choice, 4),
		.max_recv_sge = 1 + below(choice, 4),
		.max_inline_data = below(choice, 128),
		.sq_sig_all = below(choice, 2),
		.qp_type = type,
	};
	const size_t size = sizeof(struct ib_uverbs_create_qp_resp);
	int file = file_pick(hand), error;
	struct object *pd, *cqs[2], *srq, made = { .type = type };
	struct command command;

	if (file < 0)
		return NOTHING;
	pd = object_pick(hand, file, PD);
	cqs[0] = object_pick(hand, file, CQ);
	cqs[1] = object_pick(hand, file, CQ);
	srq = object_pick(hand, file, SRQ);
	if (!pd || !cqs[0] || !cqs[1])
		return NOTHING;
	core.pd_handle = pd->handle;
	core.send_cq_handle = cqs[0]->handle;
	core.recv_cq_handle = cqs[1]->handle;
	if (srq && type != IBV_QPT_RAW_PACKET && one_in(choice, 4)) {
		core.is_srq = 1;
		core.srq_handle = srq->handle;
	}
	if (one_in(choice, 2)) {
		COMMAND(&command, CREATE_QP, &core, size);
		command.driver_answer_size = sizeof(struct rxe_create_qp_resp);
		error = object_make(hand, file, &command, &made);
		memcpy(&made.number, hand->answer + offsetof(struct ib_uverbs_create_qp_resp, qpn), 4);
		span_read(&made.rings[0], hand->answer + size + offsetof(struct rxe_create_qp_resp, rq_mi));
		span_read(&made.rings[1], hand->answer + size + offsetof(struct rxe_create_qp_resp, sq_mi));
	} else {
		error = qp_by_method(hand, file, &core, &made);
	}
	if (!error)
		object_keep(hand, file, QP, &made);
	return error;
}

static int rc_create(struct hand *hand)
{
	return qp_create(hand, IBV_QPT_RC);
}

static int uc_create(struct hand *hand)
{
	return qp_create(hand, IBV_QPT_UC);
}

static int ud_create(struct hand *hand)
{
	return qp_create(hand, IBV_QPT_UD);
}

static int raw_create(struct hand *hand)
{
	return qp_create(hand, IBV_QPT_RAW_PACKET);
}

/* What there is not, or is not for users. */
static int other_create(struct hand *hand)
{
	static const uint8_t types[] = { 0, 1, 5, 6, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_DRIVER, 77 };

	return qp_create(hand, types[below(&hand->choice, ARRAY_LENGTH(types))]);
}

static void destination(struct ib_uverbs_qp_dest *to, uint32_t from_device, uint32_t to_device)
{
	memcpy(to->dgid, devices[to_device].gid.raw, sizeof(to->dgid));
	to->sgid_index = devices[from_device].gid_index;
	to->hop_limit = 64;
	to->is_global = 1;
	to->port_num = PORT;
}

/* One step of a queue pair towards another. */
static int qp_step(struct hand *hand, int file, const struct object *qp, enum ibv_qp_state state,
		   uint32_t peer_device, uint32_t peer)
{
	bool connected = qp->type == IBV_QPT_RC || qp->type == IBV_QPT_UC;
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
	};
	struct command command;

	if (qp->type == IBV_QPT_RC)
		core.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	destination(&core.dest, shared->files[file].device, peer_device);
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
		if (qp->type == IBV_QPT_RC)
			core.attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		break;
	case IBV_QPS_RTS:
		if (qp->type != IBV_QPT_RAW_PACKET)
			core.attr_mask |= IBV_QP_SQ_PSN;
		if (qp->type == IBV_QPT_RC)
			core.attr_mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					  IBV_QP_MAX_QP_RD_ATOMIC;
		break;
	default:
		break;
	}
	COMMAND(&command, MODIFY_QP, &core, 0);
	return run(hand, file, &command);
}

static int qp_modify(struct hand *hand)
{
	int file = file_pick(hand);
	struct object *qp, *peer;

	qp = file < 0 ? NULL : object_pick(hand, file, QP);
	if (!qp)
		return NOTHING;
	peer = object_pick(hand, file, QP);
	return qp_step(hand, file, qp, below(&hand->choice, IBV_QPS_UNKNOWN), shared->files[file].device,
		       peer ? peer->number : 0);
}

/* Two queue pairs of any files, with each other; one of datagrams, for all. */
static int qp_connect_any(struct hand *hand)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };
	int in[2] = { file_pick(hand), file_pick(hand) }, error = 0;
	struct object *qps[2];
	uint32_t i, j;

	for (i = 0; i < 2; i++) {
		qps[i] = in[i] < 0 ? NULL : object_pick(hand, in[i], QP);
		if (!qps[i])
			return NOTHING;
	}
	hand->honest = !one_in(&hand->choice, LIE);
	for (i = 0; i < ARRAY_LENGTH(states) && !error; i++) {
		for (j = 0; j < 2 && !error; j++)
			error = qp_step(hand, in[j], qps[j], states[i], shared->files[in[!j]].device,
					qps[!j]->number);
	}
	hand->honest = false;
	return error;
}

static int qp_query(struct hand *hand)
{
	struct ib_uverbs_query_qp core = { .attr_mask = any(&hand->choice) };
	int file = file_pick(hand);
	struct command command;
	struct object *qp;

	qp = file < 0 ? NULL : object_pick(hand, file, QP);
	if (!qp)
		return NOTHING;
	core.qp_handle = qp->handle;
	COMMAND(&command, QUERY_QP, &core, sizeof(struct ib_uverbs_query_qp_resp));
	return run(hand, file, &command);
}

static int srq_create(struct hand *hand)
{
	struct ib_uverbs_create_srq core = {
		.max_wr = 1 + below(&hand->choice, 64),
		.max_sge = 1 + below(&hand->choice, 4),
	};
	const size_t size = sizeof(struct ib_uverbs_create_srq_resp);
	int file = file_pick(hand), error;
	struct object *pd, made = { 0 };
	struct ib_uverbs_attr *handle;
	struct command command;
	struct method method;

	pd = file < 0 ? NULL : object_pick(hand, file, PD);
	if (!pd)
		return NOTHING;
	core.pd_handle = pd->handle;
	if (one_in(&hand->choice, 2)) {
		COMMAND(&command, CREATE_SRQ, &core, size);
		command.driver_answer_size = sizeof(struct rxe_create_srq_resp);
		error = object_make(hand, file, &command, &made);
		span_read(&made.rings[0], hand->answer + size);
	} else {
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
		error = run_method(hand, file, &method);
		made.handle = handle->data;
		span_read(&made.rings[0], hand->answer + 8);
	}
	if (!error)
		object_keep(hand, file, SRQ, &made);
	return error;
}

static int srq_limit(struct hand *hand)
{
	struct ib_uverbs_modify_srq core = {
		.attr_mask = IBV_SRQ_LIMIT,
		.srq_limit = below(&hand->choice, 8),
	};
	int file = file_pick(hand);
	struct command command;
	struct object *srq;

	srq = file < 0 ? NULL : object_pick(hand, file, SRQ);
	if (!srq)
		return NOTHING;
	core.srq_handle = srq->handle;
	COMMAND(&command, MODIFY_SRQ, &core, 0);
	return run(hand, file, &command);
}

static int srq_resize(struct hand *hand)
{
	struct ib_uverbs_modify_srq core = {
		.attr_mask = IBV_SRQ_MAX_WR,
		.max_wr = 1 + below(&hand->choice, 128),
	};
	int file = file_pick(hand), error;
	struct command command;
	struct object *srq;

	srq = file < 0 ? NULL : object_pick(hand, file, SRQ);
	if (!srq)
		return NOTHING;
	core.srq_handle = srq->handle;
	COMMAND(&command, MODIFY_SRQ, &core, 0);
	/* Where the new ring is, is not written to an answer. */
	command.driver = (uintptr_t)hand->answer;
	command.driver_size = sizeof(struct rxe_modify_srq_cmd);
	error = run(hand, file, &command);
	if (!error)
		span_read(&srq->rings[0], hand->answer);
	return error;
}

static int srq_query(struct hand *hand)
{
	struct ib_uverbs_query_srq core = { 0 };
	int file = file_pick(hand);
	struct command command;
	struct object *srq;

	srq = file < 0 ? NULL : object_pick(hand, file, SRQ);
	if (!srq)
		return NOTHING;
	core.srq_handle = srq->handle;
	COMMAND(&command, QUERY_SRQ, &core, sizeof(struct ib_uverbs_query_srq_resp));
	return run(hand, file, &command);
}

#define ACCESS                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

static int region_register(struct hand *hand, uint64_t start, uint64_t length, uint32_t access)
{
	struct ib_uverbs_reg_mr core = {
		.start = start,
		.length = length,
		.hca_va = start,
		.access_flags = access,
	};
	int file = file_pick(hand), error;
	struct object *pd, made = { 0 };
	struct command command;

	pd = file < 0 ? NULL : object_pick(hand, file, PD);
	if (!pd)
		return NOTHING;
	core.pd_handle = pd->handle;
	COMMAND(&command, REG_MR, &core, sizeof(struct ib_uverbs_reg_mr_resp));
	/* Response, start, and the address that it is known by. */
	command.addresses = 0xb;
	error = object_make(hand, file, &command, &made);
	if (error)
		return error;
	memcpy(&made.number, hand->answer + offsetof(struct ib_uverbs_reg_mr_resp, lkey), 4);
	object_keep(hand, file, MR, &made);
	return 0;
}

/* A part of the arena from the start on: elements know no other place of it. */
static uint64_t arena_part(struct hand *hand)
{
	return one_in(&hand->choice, 2) ? ARENA : 1 + below(&hand->choice, ARENA);
}

static int pinned_register(struct hand *hand)
{
	return region_register(hand, (uintptr_t)arena, arena_part(hand), ACCESS);
}

static int paged_register(struct hand *hand)
{
	if (one_in(&hand->choice, 4))
		madvise(arena, ARENA, MADV_DONTNEED);
	return region_register(hand, (uintptr_t)arena, arena_part(hand), ACCESS | IBV_ACCESS_ON_DEMAND);
}

static int all_register(struct hand *hand)
{
	return region_register(hand, 0, UINT64_MAX, ACCESS | IBV_ACCESS_ON_DEMAND);
}

static int region_again(struct hand *hand)
{
	struct ib_uverbs_rereg_mr core = {
		.flags = 1 + below(&hand->choice, 7),
		.start = (uintptr_t)arena,
		.length = arena_part(hand),
		.hca_va = (uintptr_t)arena,
		.access_flags = ACCESS,
	};
	int file = file_pick(hand), error;
	struct command command;
	struct object *mr, *pd;

	mr = file < 0 ? NULL : object_pick(hand, file, MR);
	pd = file < 0 ? NULL : object_pick(hand, file, PD);
	if (!mr || !pd)
		return NOTHING;
	core.mr_handle = mr->handle;
	core.pd_handle = pd->handle;
	COMMAND(&command, REREG_MR, &core, sizeof(struct ib_uverbs_rereg_mr_resp));
	/* Response, start, and the address that it is known by. */
	command.addresses = 0x15;
	error = run(hand, file, &command);
	if (!error)
		memcpy(&mr->number, hand->answer, 4);
	return error;
}

static int region_advise(struct hand *hand)
{
	struct ib_uverbs_sge *list = (void *)(hand->answer + 512);
	uint32_t length = 1 + below(&hand->choice, 4), i;
	int file = file_pick(hand);
	struct object *mr, *pd;
	struct method method;

	mr = file < 0 ? NULL : object_pick(hand, file, MR);
	pd = file < 0 ? NULL : object_pick(hand, file, PD);
	if (!mr || !pd)
		return NOTHING;
	for (i = 0; i < length; i++) {
		list[i].addr = (uintptr_t)arena + 4096 * below(&hand->choice, 16);
		list[i].length = below(&hand->choice, ARENA / 2);
		list[i].lkey = mr->number;
	}
	method_start(&method, UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR);
	method_object(&method, UVERBS_ATTR_ADVISE_MR_PD_HANDLE, pd->handle);
	method_value(&method, UVERBS_ATTR_ADVISE_MR_ADVICE, below(&hand->choice, 3), 8);
	method_value(&method, UVERBS_ATTR_ADVISE_MR_FLAGS, below(&hand->choice, 2), 8);
	method_in(&method, UVERBS_ATTR_ADVISE_MR_SGE_LIST, list, length * sizeof(*list));
	return run_method(hand, file, &method);
}

static int region_query(struct hand *hand)
{
	int file = file_pick(hand);
	struct method method;
	struct object *mr;

	mr = file < 0 ? NULL : object_pick(hand, file, MR);
	if (!mr)
		return NOTHING;
	method_start(&method, UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR);
	method_object(&method, UVERBS_ATTR_QUERY_MR_HANDLE, mr->handle);
	method_out(&method, UVERBS_ATTR_QUERY_MR_RESP_LKEY, hand->answer, 4);
	method_out(&method, UVERBS_ATTR_QUERY_MR_RESP_RKEY, hand->answer + 8, 4);
	method_out(&method, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, hand->answer + 16, 8);
	method_out(&method, UVERBS_ATTR_QUERY_MR_RESP_IOVA, hand->answer + 24, 8);
	return run_method(hand, file, &method);
}

static int window_alloc(struct hand *hand)
{
	struct ib_uverbs_alloc_mw core = { .mw_type = 1 + below(&hand->choice, 2) };
	int file = file_pick(hand), error;
	struct object *pd, made = { 0 };
	struct command command;

	pd = file < 0 ? NULL : object_pick(hand, file, PD);
	if (!pd)
		return NOTHING;
	core.pd_handle = pd->handle;
	COMMAND(&command, ALLOC_MW, &core, sizeof(struct ib_uverbs_alloc_mw_resp));
	error = object_make(hand, file, &command, &made);
	memcpy(&made.number, hand->answer + offsetof(struct ib_uverbs_alloc_mw_resp, rkey), 4);
	if (!error)
		object_keep(hand, file, MW, &made);
	return error;
}

static int handle_create(struct hand *hand)
{
	struct ib_uverbs_create_ah core = { 0 };
	struct ib_uverbs_ah_attr *to = &core.attr;
	int file = file_pick(hand), error;
	struct object *pd, made = { 0 };
	struct command command;

	pd = file < 0 ? NULL : object_pick(hand, file, PD);
	if (!pd)
		return NOTHING;
	core.pd_handle = pd->handle;
	memcpy(to->grh.dgid, devices[below(&hand->choice, 2)].gid.raw, sizeof(to->grh.dgid));
	to->grh.sgid_index = devices[shared->files[file].device].gid_index;
	to->grh.hop_limit = 64;
	to->is_global = 1;
	to->port_num = PORT;
	COMMAND(&command, CREATE_AH, &core, sizeof(struct ib_uverbs_create_ah_resp));
	command.driver_answer_size = sizeof(struct rxe_create_ah_resp);
	error = object_make(hand, file, &command, &made);
	memcpy(&made.number, hand->answer + sizeof(struct ib_uverbs_create_ah_resp), 4);
	if (!error)
		object_keep(hand, file, AH, &made);
	return error;
}

static int pd_end(struct hand *hand)
{
	return object_end(hand, PD);
}

static int cq_end(struct hand *hand)
{
	return object_end(hand, CQ);
}

static int qp_end(struct hand *hand)
{
	return object_end(hand, QP);
}

static int srq_end(struct hand *hand)
{
	return object_end(hand, SRQ);
}

static int region_end(struct hand *hand)
{
	return object_end(hand, MR);
}

static int window_end(struct hand *hand)
{
	return object_end(hand, MW);
}

static int handle_destroy(struct hand *hand)
{
	return object_end(hand, AH);
}

static int group_change(struct hand *hand, bool attach)
{
	struct ib_uverbs_attach_mcast core = { 0 };
	int file = file_pick(hand);
	struct command command;
	struct object *qp;

	qp = file < 0 ? NULL : object_pick(hand, file, QP);
	if (!qp)
		return NOTHING;
	core.qp_handle = qp->handle;
	/* 239.1.2.x */
	core.gid[10] = core.gid[11] = 0xff;
	core.gid[12] = 239;
	core.gid[13] = 1;
	core.gid[14] = 2;
	core.gid[15] = below(&hand->choice, 2);
	if (attach)
		COMMAND(&command, ATTACH_MCAST, &core, 0);
	else
		COMMAND(&command, DETACH_MCAST, &core, 0);
	return run(hand, file, &command);
}

static int group_attach(struct hand *hand)
{
	return group_change(hand, true);
}

static int group_detach(struct hand *hand)
{
	return group_change(hand, false);
}

/* --- Questions ------------------------------------------------------------------------------ */

static int device_query(struct hand *hand)
{
	struct ib_uverbs_ex_query_device extended = { 0 };
	struct ib_uverbs_query_device core = { 0 };
	int file = file_pick(hand);
	struct command command;

	if (file < 0)
		return NOTHING;
	if (one_in(&hand->choice, 2)) {
		command_start(&command, IB_USER_VERBS_EX_CMD_QUERY_DEVICE, &extended, sizeof(extended),
			      sizeof(struct ib_uverbs_ex_query_device_resp));
		command.extended = true;
		command.addresses = 0;
	} else {
		COMMAND(&command, QUERY_DEVICE, &core, sizeof(struct ib_uverbs_query_device_resp));
	}
	return run(hand, file, &command);
}

static int port_query(struct hand *hand)
{
	struct ib_uverbs_query_port core = { .port_num = PORT };
	int file = file_pick(hand);
	struct command command;
	struct method method;

	if (file < 0)
		return NOTHING;
	if (one_in(&hand->choice, 2)) {
		COMMAND(&command, QUERY_PORT, &core, sizeof(struct ib_uverbs_query_port_resp));
		return run(hand, file, &command);
	}
	method_start(&method, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT);
	method_value(&method, UVERBS_ATTR_QUERY_PORT_PORT_NUM, PORT, 8);
	method_out(&method, UVERBS_ATTR_QUERY_PORT_RESP, hand->answer,
		   sizeof(struct ib_uverbs_query_port_resp_ex));
	return run_method(hand, file, &method);
}

static int gids_query(struct hand *hand)
{
	int file = file_pick(hand);
	struct method method;

	if (file < 0)
		return NOTHING;
	method_start(&method, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE);
	method_value(&method, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, sizeof(struct ib_uverbs_gid_entry), 8);
	method_out(&method, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, hand->answer + 64,
		   below(&hand->choice, 32) * sizeof(struct ib_uverbs_gid_entry));
	method_out(&method, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, hand->answer, 8);
	return run_method(hand, file, &method);
}

/* Asks for the objects that there are and destroys one: so what nobody knows of any more does not pile up. */
static int objects_sweep(struct hand *hand)
{
	enum kind kind = below(&hand->choice, KINDS);
	int file = file_pick(hand), error;
	uint32_t length = 64, handle, total;
	struct method method;

	if (file < 0)
		return NOTHING;
	method_start(&method, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES);
	method_value(&method, UVERBS_ATTR_INFO_OBJECT_ID, ends[kind].object, 8);
	method_out(&method, UVERBS_ATTR_INFO_TOTAL_HANDLES, hand->answer, sizeof(total));
	method_out(&method, UVERBS_ATTR_INFO_HANDLES_LIST, hand->answer + 8, length * sizeof(handle));
	error = run_method(hand, file, &method);
	if (error)
		return error;
	memcpy(&total, hand->answer, sizeof(total));
	/* As few as are known anyway are left alone. */
	if (total <= OBJECTS || total > length)
		return 0;
	memcpy(&handle, hand->answer + 8 + below(&hand->choice, total) * sizeof(handle), sizeof(handle));
	return handle_end(hand, file, kind, handle);
}

/* --- Events --------------------------------------------------------------------------------- */

static int channel_create(struct hand *hand)
{
	struct ib_uverbs_create_comp_channel core = { 0 };
	int file = file_pick(hand), error, fd;
	struct command command;

	if (file < 0)
		return NOTHING;
	COMMAND(&command, CREATE_COMP_CHANNEL, &core, sizeof(struct ib_uverbs_create_comp_channel_resp));
	error = run(hand, file, &command);
	if (error || hand->lies.lied)
		return error;
	memcpy(&fd, hand->answer, sizeof(fd));
	fcntl(fd, F_SETFL, O_NONBLOCK);
	descriptor_set(&channels[file], fd);
	return 0;
}

static int async_create(struct hand *hand)
{
	int file = file_pick(hand), error;
	struct ib_uverbs_attr *fd;
	struct method method;

	if (file < 0)
		return NOTHING;
	method_start(&method, UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC);
	fd = method_object(&method, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0);
	error = run_method(hand, file, &method);
	if (!error && !hand->lies.lied)
		event_file_keep(hand, fd->data);
	return error;
}

static int events_read(struct hand *hand)
{
	uint32_t at = below(&hand->choice, EVENT_FILES + FILES);
	int fd = at < EVENT_FILES ? event_files[at] : channels[at - EVENT_FILES];
	ssize_t size;

	hand->lies.lied = false;
	if (fd < 0)
		return NOTHING;
	size = read(fd, hand->answer, 1 + below(&hand->choice, 256));
	if (size < 0 && errno == EAGAIN)
		return NOTHING;
	return size < 0 ? errno : 0;
}

/* --- Rings ---------------------------------------------------------------------------------- */

static int ring_map(struct hand *hand)
{
	static const enum kind with_rings[] = { CQ, QP, QP, SRQ };
	enum kind kind = with_rings[below(&hand->choice, ARRAY_LENGTH(with_rings))];
	struct mapping *mapping = &mappings[below(&hand->choice, MAPPINGS)];
	bool sends = kind == QP && one_in(&hand->choice, 2);
	int file = file_pick(hand), protection = PROT_READ | PROT_WRITE;
	struct object *object;
	struct span span;
	uint8_t *memory;

	object = file < 0 ? NULL : object_pick(hand, file, kind);
	if (!object)
		return NOTHING;
	span = object->rings[sends];
	hand->lies.lied = one_in(&hand->choice, LIE);
	if (hand->lies.lied) {
		span.size = one_in(&hand->choice, 2) ? 1 + below(&hand->choice, 1 << 20) : span.size;
		span.offset = one_in(&hand->choice, 2) ? 4096 * (uint64_t)below(&hand->choice, 1 << 20) :
							  span.offset;
		protection = one_in(&hand->choice, 2) ? PROT_READ | PROT_WRITE | PROT_EXEC : PROT_READ;
	} else if (!span.size) {
		return NOTHING;
	}
	memory = mmap(NULL, span.size, protection, MAP_SHARED, files[file], span.offset);
	if (memory == MAP_FAILED)
		return errno;
	if (hand->lies.lied || pthread_mutex_trylock(&mapping->lock)) {
		munmap(memory, span.size);
		return 0;
	}
	if (mapping->memory)
		munmap(mapping->memory, mapping->size);
	mapping->memory = memory;
	mapping->size = span.size;
	mapping->kind = kind;
	mapping->sends = sends;
	mapping->file = file;
	mapping->handle = object->handle;
	mapping->type = object->type;
	memcpy(&mapping->shift, memory + offsetof(struct rxe_queue_buf, log2_elem_size), 4);
	memcpy(&mapping->mask, memory + offsetof(struct rxe_queue_buf, index_mask), 4);
	if (mapping->shift > 20 ||
	    sizeof(struct rxe_queue_buf) + ((mapping->mask + 1ULL) << mapping->shift) > mapping->size) {
		munmap(memory, span.size);
		mapping->memory = NULL;
	}
	pthread_mutex_unlock(&mapping->lock);
	return 0;
}

/* One that is held by nobody else: to be unlocked. */
static struct mapping *mapping_pick(struct hand *hand)
{
	struct mapping *mapping = &mappings[below(&hand->choice, MAPPINGS)];

	hand->lies.lied = false;
	if (pthread_mutex_trylock(&mapping->lock))
		return NULL;
	if (mapping->memory)
		return mapping;
	pthread_mutex_unlock(&mapping->lock);
	return NULL;
}

static int ring_unmap(struct hand *hand)
{
	struct mapping *mapping = mapping_pick(hand);

	if (!mapping)
		return NOTHING;
	/* The first page on its own, where there are more: what is mapped there next is somebody else's. */
	if (mapping->size > 4096 && one_in(&hand->choice, 4)) {
		munmap(mapping->memory, 4096);
		munmap(mapping->memory + 4096, mapping->size - 4096);
	} else {
		munmap(mapping->memory, mapping->size);
	}
	mapping->memory = NULL;
	pthread_mutex_unlock(&mapping->lock);
	return 0;
}

static uint32_t *producer(struct mapping *mapping)
{
	return (uint32_t *)(mapping->memory + offsetof(struct rxe_queue_buf, producer_index));
}

static uint32_t *consumer(struct mapping *mapping)
{
	return (uint32_t *)(mapping->memory + offsetof(struct rxe_queue_buf, consumer_index));
}

static uint8_t *element(struct mapping *mapping, uint32_t index)
{
	return mapping->memory + sizeof(struct rxe_queue_buf) +
	       ((size_t)(index & mapping->mask) << mapping->shift);
}

/* A piece of the arena with the key of some region. */
static void piece_choose(struct hand *hand, int file, struct rxe_sge *piece)
{
	struct object *mr = object_pick(hand, file, MR);
	uint32_t length = below(&hand->choice, one_in(&hand->choice, 8) ? 30000 : 2000);

	piece->addr = (uintptr_t)arena + below(&hand->choice, 2) * 4096;
	piece->length = length;
	piece->lkey = mr ? mr->number : any(&hand->choice);
}

static void send_make(struct hand *hand, const struct mapping *mapping, uint8_t *bytes)
{
	static const uint8_t opcodes[] = {
		IB_UVERBS_WR_SEND, IB_UVERBS_WR_SEND, IB_UVERBS_WR_SEND_WITH_IMM, IB_UVERBS_WR_RDMA_WRITE,
		IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, IB_UVERBS_WR_RDMA_READ, IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD,
		IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, IB_UVERBS_WR_LOCAL_INV, IB_UVERBS_WR_BIND_MW,
		IB_UVERBS_WR_SEND_WITH_INV,
	};
	int to = file_pick(hand), file = mapping->file;
	struct rxe_send_wqe *wqe = (struct rxe_send_wqe *)bytes;
	struct rxe_sge *piece = (struct rxe_sge *)(wqe + 1);
	struct object *mr, *mw, *ah, *qp;

	to = to < 0 ? file : to;
	mr = object_pick(hand, to, MR);
	mw = object_pick(hand, file, MW);
	ah = object_pick(hand, file, AH);
	qp = object_pick(hand, to, QP);
	memset(bytes, 0, sizeof(*wqe) + sizeof(*piece));
	wqe->wr.opcode = opcodes[below(&hand->choice, mapping->type == IBV_QPT_RC ? ARRAY_LENGTH(opcodes) : 3)];
	wqe->wr.send_flags = below(&hand->choice, 8);
	piece_choose(hand, file, piece);
	wqe->dma.num_sge = !one_in(&hand->choice, 4);
	switch (wqe->wr.opcode) {
	case IB_UVERBS_WR_RDMA_WRITE:
	case IB_UVERBS_WR_RDMA_WRITE_WITH_IMM:
	case IB_UVERBS_WR_RDMA_READ:
		wqe->wr.wr.rdma.remote_addr = (uintptr_t)arena;
		wqe->wr.wr.rdma.rkey = mr ? mr->number : 0;
		break;
	case IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD:
	case IB_UVERBS_WR_ATOMIC_CMP_AND_SWP:
		wqe->wr.wr.atomic.remote_addr = (uintptr_t)arena;
		wqe->wr.wr.atomic.rkey = mr ? mr->number : 0;
		piece->length = 8;
		break;
	case IB_UVERBS_WR_LOCAL_INV:
		wqe->wr.ex.invalidate_rkey = mw ? mw->number : 0;
		wqe->dma.num_sge = 0;
		break;
	case IB_UVERBS_WR_SEND_WITH_INV:
		wqe->wr.ex.invalidate_rkey = mw ? mw->number : 0;
		break;
	case IB_UVERBS_WR_BIND_MW:
		wqe->wr.wr.mw.addr = (uintptr_t)arena;
		wqe->wr.wr.mw.length = 4096;
		wqe->wr.wr.mw.mr_lkey = mr ? mr->number : 0;
		wqe->wr.wr.mw.mw_rkey = mw ? mw->number : 0;
		wqe->wr.wr.mw.rkey = mw ? mw->number : 0;
		wqe->wr.wr.mw.access = IBV_ACCESS_REMOTE_WRITE;
		wqe->dma.num_sge = 0;
		break;
	default:
		if (mapping->type != IBV_QPT_UD)
			break;
		wqe->wr.wr.ud.remote_qpn = qp ? qp->number : 0;
		wqe->wr.wr.ud.remote_qkey = QKEY;
		wqe->wr.wr.ud.ah_num = ah ? ah->number : 0;
		piece->length %= 1024;
		break;
	}
	wqe->dma.length = wqe->dma.num_sge ? piece->length : 0;
	wqe->dma.resid = wqe->dma.length;
}

/*
 * Appends an element. Sometimes a byte of it is wrong, but never one of an address: there are regions of all
 * addresses, and what is written to must be ours.
 */
static void append(struct hand *hand, struct mapping *mapping, const uint8_t *bytes, size_t size)
{
	size_t counts = mapping->sends ? offsetof(struct rxe_send_wqe, dma) : offsetof(struct rxe_recv_wqe, dma);
	uint32_t at = __atomic_load_n(producer(mapping), __ATOMIC_ACQUIRE);

	if (((at + 1 - __atomic_load_n(consumer(mapping), __ATOMIC_ACQUIRE)) & mapping->mask) == 0)
		return;
	memcpy(element(mapping, at), bytes, size);
	if (one_in(&hand->choice, 24))
		element(mapping, at)[(one_in(&hand->choice, 2) ? counts : 0) + below(&hand->choice, 16)] =
			any(&hand->choice);
	__atomic_store_n(producer(mapping), (at + 1) & mapping->mask, __ATOMIC_RELEASE);
}

static int doorbell(struct hand *hand, int file, uint32_t handle)
{
	struct ib_uverbs_post_send core = {
		.qp_handle = handle,
		.wqe_size = sizeof(struct ib_uverbs_send_wr),
	};
	struct command command;

	COMMAND(&command, POST_SEND, &core, sizeof(struct ib_uverbs_post_send_resp));
	return run(hand, file, &command);
}

static int sends_post(struct hand *hand)
{
	struct mapping *mapping = mapping_pick(hand);
	uint64_t bytes[64];
	uint32_t number = 1 + below(&hand->choice, 4), file, handle;

	if (!mapping)
		return NOTHING;
	if (!mapping->sends || files[mapping->file] < 0) {
		pthread_mutex_unlock(&mapping->lock);
		return NOTHING;
	}
	while (number--) {
		send_make(hand, mapping, (uint8_t *)bytes);
		append(hand, mapping, (uint8_t *)bytes, sizeof(struct rxe_send_wqe) + sizeof(struct rxe_sge));
	}
	file = mapping->file;
	handle = mapping->handle;
	pthread_mutex_unlock(&mapping->lock);
	return doorbell(hand, file, handle);
}

static int receives_post(struct hand *hand)
{
	struct mapping *mapping = mapping_pick(hand);
	struct {
		struct rxe_recv_wqe wqe;
		struct rxe_sge piece;
	} receive = { .wqe.dma.num_sge = 1 };
	uint32_t number = 1 + below(&hand->choice, 16);

	if (!mapping)
		return NOTHING;
	if (mapping->sends || mapping->kind == CQ) {
		pthread_mutex_unlock(&mapping->lock);
		return NOTHING;
	}
	while (number--) {
		piece_choose(hand, mapping->file, &receive.piece);
		receive.piece.length = ARENA / 4;
		append(hand, mapping, (uint8_t *)&receive, sizeof(receive));
	}
	pthread_mutex_unlock(&mapping->lock);
	return 0;
}

static int completions_poll(struct hand *hand)
{
	struct mapping *mapping = mapping_pick(hand);
	uint32_t at, end, most = 32;
	struct ib_uverbs_wc found;

	if (!mapping)
		return NOTHING;
	if (mapping->kind != CQ) {
		pthread_mutex_unlock(&mapping->lock);
		return NOTHING;
	}
	at = __atomic_load_n(consumer(mapping), __ATOMIC_ACQUIRE);
	end = __atomic_load_n(producer(mapping), __ATOMIC_ACQUIRE);
	for (; ((at ^ end) & mapping->mask) && most--; at++) {
		memcpy(&found, element(mapping, at), sizeof(found));
		count(&shared->completions);
		if (!found.status)
			count(&shared->successes);
	}
	__atomic_store_n(consumer(mapping), at & mapping->mask, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&mapping->lock);
	return 0;
}

/* Work requests in the command itself: not for queue pairs whose rings are mapped. */
static int list_post(struct hand *hand)
{
	struct {
		struct ib_uverbs_post_send command;
		struct ib_uverbs_send_wr request;
		struct ib_uverbs_sge piece;
	} core = {
		.command = {
			.wr_count = 1,
			.sge_count = 1,
			.wqe_size = sizeof(struct ib_uverbs_send_wr),
		},
		.request = { .num_sge = 1, .opcode = below(&hand->choice, 16) },
	};
	int file = file_pick(hand);
	struct command command;
	struct object *qp;

	qp = file < 0 ? NULL : object_pick(hand, file, QP);
	if (!qp)
		return NOTHING;
	core.command.qp_handle = qp->handle;
	COMMAND(&command, POST_SEND, &core, sizeof(struct ib_uverbs_post_send_resp));
	return run(hand, file, &command);
}

static int nonsense(struct hand *hand)
{
	int file = file_pick(hand);

	hand->lies.lied = false;
	return file < 0 ? NOTHING : nonsense_run(files[file], &hand->choice, hand->answer);
}

/* --- Netlink -------------------------------------------------------------------------------- */

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
	/* What asks, never what changes. */
	static const uint8_t numbers[] = {
		RDMA_NLDEV_CMD_GET, RDMA_NLDEV_CMD_PORT_GET, RDMA_NLDEV_CMD_RES_GET, RDMA_NLDEV_CMD_RES_QP_GET,
		RDMA_NLDEV_CMD_RES_CM_ID_GET, RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_CMD_RES_MR_GET,
		RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_CMD_RES_CTX_GET, RDMA_NLDEV_CMD_RES_SRQ_GET,
		RDMA_NLDEV_CMD_SYS_GET,
	};
	struct question question;

	question_start(hand, &question, numbers[below(&hand->choice, ARRAY_LENGTH(numbers))]);
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

/* --- rdma_cm -------------------------------------------------------------------------------- */

#define FIRST_PORT 7000
#define CM_PORTS 2

struct cm_place {
	int file, slot;
};

static bool cm_find(struct hand *hand, enum cm_state state, bool whatever, struct cm_place *place)
{
	uint32_t first = below(&hand->choice, CM_FILES * CM_IDS), i;

	for (i = 0; i < CM_FILES * CM_IDS; i++) {
		uint32_t at = (first + i) % (CM_FILES * CM_IDS);
		enum cm_state its = cm_ids[at / CM_IDS][at % CM_IDS].state;

		if (whatever && state != CM_FREE ? its == CM_FREE : its != state)
			continue;
		place->file = at / CM_IDS;
		place->slot = at % CM_IDS;
		return true;
	}
	return false;
}

/* An id in that state; sometimes, in any. */
static bool cm_pick(struct hand *hand, enum cm_state state, struct cm_place *place)
{
	return cm_find(hand, state, one_in(&hand->choice, 20), place);
}

/*
 * An id that waits for an answer. Who rejects, or cannot accept, what has a request or reply of its own under way
 * makes ib_cm forget that message without cancelling it: cm_send_rej_locked(). It is repeated 15 times, for 69 s, and
 * who destroys the id waits for that, with any driver.
 */
static bool cm_pick_asked(struct hand *hand, struct cm_place *place)
{
	return cm_find(hand, one_in(&hand->choice, 2) ? CM_REQUESTED : CM_ANSWERED, false, place);
}

/* A command, whose body begins with an address if it has one, and whether it is a lie. */
static int cm_run(struct hand *hand, int file, uint32_t number, const void *body, size_t size, size_t answer_size)
{
	struct {
		struct rdma_ucm_cmd_hdr header;
		uint8_t body[1024];
	} request = { .header = { .cmd = number, .in = size, .out = answer_size } };

	memcpy(request.body, body, size);
	hand->lies.lied = one_in(&hand->choice, 2 * LIE);
	if (hand->lies.lied) {
		switch (below(&hand->choice, 4)) {
		case 0:
			request.header.in = below(&hand->choice, 600);
			break;
		case 1:
			request.header.out = below(&hand->choice, 600);
			break;
		case 2:
			size = below(&hand->choice, sizeof(request.body));
			break;
		default:
			request.body[8 + below(&hand->choice, size + 1)] = any(&hand->choice);
			break;
		}
	}
	memset(hand->answer, 0, 512);
	return write(cm_files[file], &request, sizeof(request.header) + size) < 0 ? errno : 0;
}

static void cm_open(int file)
{
	int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);

	/* With the old one its ids go. */
	memset(cm_ids[file], 0, sizeof(cm_ids[file]));
	descriptor_set(&cm_files[file], fd);
}

static int cm_create(struct hand *hand)
{
	static const uint8_t types[] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct rdma_ucm_create_id body = {
		.response = (uintptr_t)hand->answer,
		.qp_type = types[below(&hand->choice, ARRAY_LENGTH(types))],
	};
	struct cm_place place;
	int error;

	if (!cm_pick(hand, CM_FREE, &place))
		return NOTHING;
	if (one_in(&hand->choice, 16))
		cm_open(place.file);
	body.uid = place.file * CM_IDS + place.slot;
	body.ps = body.qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
	error = cm_run(hand, place.file, RDMA_USER_CM_CMD_CREATE_ID, &body, sizeof(body),
		       sizeof(struct rdma_ucm_create_id_resp));
	if (error)
		return error;
	memcpy(&cm_ids[place.file][place.slot].number, hand->answer, 4);
	cm_ids[place.file][place.slot].state = CM_NEW;
	return 0;
}

static void cm_address(struct hand *hand, struct __kernel_sockaddr_storage *to, uint32_t device)
{
	uint16_t port = FIRST_PORT + below(&hand->choice, CM_PORTS), family = AF_INET;
	uint8_t bytes[2] = { port >> 8, port };

	memcpy(to, &family, sizeof(family));
	memcpy((uint8_t *)to + 2, bytes, sizeof(bytes));
	/* The GID of an IPv4 address ends with it. */
	memcpy((uint8_t *)to + 4, devices[device].gid.raw + 12, 4);
}

/* A step from one state to another. */
static int cm_step(struct hand *hand, const struct cm_place *place, uint32_t number, const void *body, size_t size,
		   size_t answer_size, enum cm_state next)
{
	int error = cm_run(hand, place->file, number, body, size, answer_size);

	if (!error && !hand->lies.lied && next)
		cm_ids[place->file][place->slot].state = next;
	return error;
}

#define CM_ID(place) (cm_ids[(place).file][(place).slot].number)

static int cm_bind(struct hand *hand)
{
	struct rdma_ucm_bind body = { .addr_size = 16 };
	struct cm_place place;

	if (!cm_pick(hand, CM_NEW, &place))
		return NOTHING;
	body.id = CM_ID(place);
	cm_address(hand, &body.addr, crew_index % 2);
	return cm_step(hand, &place, RDMA_USER_CM_CMD_BIND, &body, sizeof(body), 0, CM_BOUND);
}

static int cm_listen(struct hand *hand)
{
	struct rdma_ucm_listen body = { .backlog = 4 };
	struct cm_place place;

	if (!cm_pick(hand, CM_BOUND, &place))
		return NOTHING;
	body.id = CM_ID(place);
	return cm_step(hand, &place, RDMA_USER_CM_CMD_LISTEN, &body, sizeof(body), 0, CM_LISTENING);
}

static int cm_resolve_address(struct hand *hand)
{
	struct rdma_ucm_resolve_addr body = { .timeout_ms = 500, .dst_size = 16 };
	struct cm_place place;

	if (!cm_pick(hand, CM_NEW, &place))
		return NOTHING;
	body.id = CM_ID(place);
	cm_address(hand, &body.dst_addr, below(&hand->choice, 2));
	return cm_step(hand, &place, RDMA_USER_CM_CMD_RESOLVE_ADDR, &body, sizeof(body), 0, CM_FREE);
}

static int cm_resolve_route(struct hand *hand)
{
	struct rdma_ucm_resolve_route body = { .timeout_ms = 500 };
	struct cm_place place;

	if (!cm_pick(hand, CM_RESOLVED, &place))
		return NOTHING;
	body.id = CM_ID(place);
	return cm_step(hand, &place, RDMA_USER_CM_CMD_RESOLVE_ROUTE, &body, sizeof(body), 0, CM_FREE);
}

static void cm_parameters(struct hand *hand, struct rdma_ucm_conn_param *to)
{
	to->qp_num = below(&hand->choice, 1 << 24);
	to->private_data_len = below(&hand->choice, 32);
	to->responder_resources = below(&hand->choice, 4);
	to->initiator_depth = below(&hand->choice, 4);
	to->retry_count = below(&hand->choice, 8);
	to->rnr_retry_count = below(&hand->choice, 8);
	to->valid = 1;
}

static int cm_connect(struct hand *hand)
{
	struct rdma_ucm_connect body = { 0 };
	struct cm_place place;

	if (!cm_pick(hand, CM_ROUTED, &place))
		return NOTHING;
	body.id = CM_ID(place);
	cm_parameters(hand, &body.conn_param);
	return cm_step(hand, &place, RDMA_USER_CM_CMD_CONNECT, &body, sizeof(body), 0, CM_CONNECTING);
}

static int cm_accept(struct hand *hand)
{
	struct rdma_ucm_accept body = { 0 };
	struct cm_place place;

	if (!cm_pick_asked(hand, &place))
		return NOTHING;
	/* Nobody else is to answer, too. */
	cm_ids[place.file][place.slot].state = CM_DEAD;
	body.id = CM_ID(place);
	body.uid = place.file * CM_IDS + place.slot;
	cm_parameters(hand, &body.conn_param);
	return cm_step(hand, &place, RDMA_USER_CM_CMD_ACCEPT, &body, sizeof(body), 0, CM_CONNECTED);
}

static int cm_reject(struct hand *hand)
{
	/* By the consumer: the kernel takes no other reason. */
	struct rdma_ucm_reject body = { .reason = 28, .private_data_len = below(&hand->choice, 32) };
	struct cm_place place;

	if (!cm_pick_asked(hand, &place))
		return NOTHING;
	/* Nobody else is to answer, too. */
	cm_ids[place.file][place.slot].state = CM_DEAD;
	body.id = CM_ID(place);
	return cm_step(hand, &place, RDMA_USER_CM_CMD_REJECT, &body, sizeof(body), 0, CM_DEAD);
}

static int cm_disconnect(struct hand *hand)
{
	struct rdma_ucm_disconnect body;
	struct cm_place place;

	if (!cm_pick(hand, CM_CONNECTED, &place))
		return NOTHING;
	body.id = CM_ID(place);
	return cm_step(hand, &place, RDMA_USER_CM_CMD_DISCONNECT, &body, sizeof(body), 0, CM_DEAD);
}

static int cm_query(struct hand *hand)
{
	struct rdma_ucm_query body = {
		.response = (uintptr_t)hand->answer,
		.option = below(&hand->choice, 3),
	};
	struct cm_place place;

	if (!cm_pick(hand, below(&hand->choice, CM_STATES), &place))
		return NOTHING;
	body.id = CM_ID(place);
	if (one_in(&hand->choice, 2))
		return cm_step(hand, &place, RDMA_USER_CM_CMD_QUERY_ROUTE, &body, sizeof(body),
			       sizeof(struct rdma_ucm_query_route_resp), CM_FREE);
	return cm_step(hand, &place, RDMA_USER_CM_CMD_QUERY, &body, sizeof(body), 512, CM_FREE);
}

static int cm_attributes(struct hand *hand)
{
	struct rdma_ucm_init_qp_attr body = {
		.response = (uintptr_t)hand->answer,
		.qp_state = 1 + below(&hand->choice, 3),
	};
	struct cm_place place;

	if (!cm_pick(hand, one_in(&hand->choice, 2) ? CM_REQUESTED : CM_ROUTED, &place))
		return NOTHING;
	body.id = CM_ID(place);
	return cm_step(hand, &place, RDMA_USER_CM_CMD_INIT_QP_ATTR, &body, sizeof(body),
		       sizeof(struct ib_uverbs_qp_attr), CM_FREE);
}

static int cm_option(struct hand *hand)
{
	struct rdma_ucm_set_option body = {
		.optval = (uintptr_t)hand->answer,
		.level = RDMA_OPTION_ID,
		.optname = below(&hand->choice, 4),
	};
	struct cm_place place;

	if (!cm_pick(hand, CM_NEW, &place))
		return NOTHING;
	body.id = CM_ID(place);
	body.optlen = body.optname == RDMA_OPTION_ID_TOS || body.optname == RDMA_OPTION_ID_ACK_TIMEOUT ? 1 : 4;
	return cm_step(hand, &place, RDMA_USER_CM_CMD_SET_OPTION, &body, sizeof(body), 0, CM_FREE);
}

static int cm_join(struct hand *hand)
{
	struct rdma_ucm_join_mcast body = {
		.response = (uintptr_t)hand->answer,
		.addr_size = 16,
		.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER,
	};
	const uint8_t group[4] = { 239, 1, 2, below(&hand->choice, 4) };
	struct cm_place place;

	if (!cm_pick(hand, one_in(&hand->choice, 2) ? CM_RESOLVED : CM_BOUND, &place))
		return NOTHING;
	body.id = CM_ID(place);
	body.uid = CM_FILES * CM_IDS;
	cm_address(hand, &body.addr, 0);
	memcpy((uint8_t *)&body.addr + 4, group, sizeof(group));
	return cm_step(hand, &place, RDMA_USER_CM_CMD_JOIN_MCAST, &body, sizeof(body),
		       sizeof(struct rdma_ucm_create_id_resp), CM_FREE);
}

static int cm_migrate(struct hand *hand)
{
	struct rdma_ucm_migrate_id body = { .response = (uintptr_t)hand->answer };
	struct cm_place from, to;
	int error;

	if (!cm_pick(hand, 1 + below(&hand->choice, CM_STATES - 1), &from) || !cm_pick(hand, CM_FREE, &to))
		return NOTHING;
	body.id = CM_ID(from);
	body.fd = cm_files[from.file];
	error = cm_run(hand, to.file, RDMA_USER_CM_CMD_MIGRATE_ID, &body, sizeof(body),
		       sizeof(struct rdma_ucm_migrate_resp));
	if (!error && !hand->lies.lied) {
		cm_ids[to.file][to.slot] = cm_ids[from.file][from.slot];
		cm_ids[from.file][from.slot].state = CM_FREE;
	}
	return error;
}

static int cm_destroy_number(struct hand *hand, int file, uint32_t number)
{
	struct rdma_ucm_destroy_id body = { .response = (uintptr_t)hand->answer, .id = number };

	return cm_run(hand, file, RDMA_USER_CM_CMD_DESTROY_ID, &body, sizeof(body),
		      sizeof(struct rdma_ucm_destroy_id_resp));
}

static int cm_destroy(struct hand *hand)
{
	enum cm_state state = one_in(&hand->choice, 2) ? CM_DEAD : (enum cm_state)below(&hand->choice, CM_STATES);
	struct cm_place place;
	int error;

	if (!cm_pick(hand, state, &place) || cm_ids[place.file][place.slot].state == CM_FREE)
		return NOTHING;
	error = cm_destroy_number(hand, place.file, CM_ID(place));
	if (!error && !hand->lies.lied)
		cm_ids[place.file][place.slot].state = CM_FREE;
	return error;
}

/* Who wants to connect is an id of its own, of the listener's file. */
static void cm_requested(struct hand *hand, int file, uint32_t number)
{
	uint32_t i;

	for (i = 0; i < CM_IDS; i++) {
		if (cm_ids[file][i].state != CM_FREE)
			continue;
		cm_ids[file][i].number = number;
		cm_ids[file][i].state = CM_REQUESTED;
		return;
	}
	cm_destroy_number(hand, file, number);
	hand->lies.lied = false;
}

static int cm_event(struct hand *hand)
{
	static const enum cm_state next[] = {
		[ADDRESS_RESOLVED] = CM_RESOLVED,
		[ADDRESS_ERROR] = CM_DEAD,
		[ROUTE_RESOLVED] = CM_ROUTED,
		[ROUTE_ERROR] = CM_DEAD,
		[CONNECT_RESPONSE] = CM_ANSWERED,
		[CONNECT_ERROR] = CM_DEAD,
		[UNREACHABLE] = CM_DEAD,
		[REJECTED] = CM_DEAD,
		[ESTABLISHED] = CM_CONNECTED,
		[DISCONNECTED] = CM_DEAD,
		[TIMEWAIT_EXIT] = CM_DEAD,
	};
	struct rdma_ucm_get_event body = { .response = (uintptr_t)hand->answer };
	int file = below(&hand->choice, CM_FILES), error;
	struct rdma_ucm_event_resp event;

	error = cm_run(hand, file, RDMA_USER_CM_CMD_GET_EVENT, &body, sizeof(body), sizeof(event));
	if (error == EAGAIN && !hand->lies.lied)
		return NOTHING;
	if (error || hand->lies.lied)
		return error;
	memcpy(&event, hand->answer, sizeof(event));
	if (event.event == CONNECT_REQUEST)
		cm_requested(hand, file, event.id);
	else if (event.uid < CM_FILES * CM_IDS && event.event < ARRAY_LENGTH(next) && next[event.event])
		cm_ids[event.uid / CM_IDS][event.uid % CM_IDS].state = next[event.event];
	return 0;
}

static int cm_nonsense(struct hand *hand)
{
	uint32_t words[64], number = below(&hand->choice, 26), i;
	const uint64_t answer = (uintptr_t)hand->answer;

	/* See cm_pick_asked(). */
	if (number == RDMA_USER_CM_CMD_ACCEPT || number == RDMA_USER_CM_CMD_REJECT)
		return NOTHING;

	for (i = 0; i < ARRAY_LENGTH(words); i++)
		words[i] = one_in(&hand->choice, 4) ? any(&hand->choice) : below(&hand->choice, 32);
	memcpy(words, &answer, sizeof(answer));
	return cm_run(hand, below(&hand->choice, CM_FILES), number, words,
		      4 * below(&hand->choice, ARRAY_LENGTH(words)), below(&hand->choice, 512));
}

/* --- What can be done ----------------------------------------------------------------------- */

static int child_fork(struct hand *hand);

static const struct {
	const char *name;
	int (*run)(struct hand *hand);
	/* How often, compared with the others. */
	unsigned int weight;
	/* Nobody says that it must succeed. */
	bool in_vain;
} actions[ACTIONS] = {
	[OPEN_FILE] = { "open a file", file_open, 20 },
	[CLOSE_FILE] = { "close a file", file_close, 2 },
	[PASS_FILE] = { "pass a file on", file_pass, 12 },
	[TAKE_FILE] = { "take a file", file_take, 30 },
	[ALLOC_PD] = { "alloc PD", pd_alloc, 6 },
	[DEALLOC_PD] = { "dealloc PD", pd_end, 3 },
	[CREATE_CQ] = { "create CQ", cq_create, 8 },
	[RESIZE_CQ] = { "resize CQ", cq_resize, 10 },
	[ARM_CQ] = { "arm CQ", cq_arm, 12 },
	[DESTROY_CQ] = { "destroy CQ", cq_end, 4 },
	[CREATE_RC] = { "create QP of RC", rc_create, 10 },
	[CREATE_UC] = { "create QP of UC", uc_create, 4 },
	[CREATE_UD] = { "create QP of UD", ud_create, 6 },
	[CREATE_RAW] = { "create QP of raw packets", raw_create, 3 },
	[CREATE_OTHER] = { "create QP of another type", other_create, 2, .in_vain = true },
	[MODIFY_QP] = { "modify QP", qp_modify, 10 },
	[CONNECT_QP] = { "connect QPs", qp_connect_any, 50 },
	[QUERY_QP] = { "query QP", qp_query, 12 },
	[DESTROY_QP] = { "destroy QP", qp_end, 4 },
	[CREATE_SRQ] = { "create SRQ", srq_create, 5 },
	[LIMIT_SRQ] = { "arm SRQ", srq_limit, 8 },
	[RESIZE_SRQ] = { "resize SRQ", srq_resize, 8 },
	[QUERY_SRQ] = { "query SRQ", srq_query, 8 },
	[DESTROY_SRQ] = { "destroy SRQ", srq_end, 3 },
	[REG_PINNED] = { "register MR", pinned_register, 10 },
	[REG_PAGED] = { "register MR, paged on demand", paged_register, 6 },
	[REG_ALL] = { "register MR of all addresses", all_register, 4 },
	[REREG_MR] = { "reregister MR", region_again, 3, .in_vain = true },
	[ADVISE_MR] = { "advise MR", region_advise, 12 },
	[QUERY_MR] = { "query MR", region_query, 6, .in_vain = true },
	[DEREG_MR] = { "deregister MR", region_end, 4 },
	[ALLOC_MW] = { "alloc MW", window_alloc, 10 },
	[DEALLOC_MW] = { "dealloc MW", window_end, 6 },
	[CREATE_AH] = { "create AH", handle_create, 12 },
	[DESTROY_AH] = { "destroy AH", handle_destroy, 6 },
	[ATTACH] = { "attach to a group", group_attach, 14 },
	[DETACH] = { "detach from a group", group_detach, 14, .in_vain = true },
	[QUERY_DEVICE] = { "query device", device_query, 6 },
	[QUERY_PORT] = { "query port", port_query, 6 },
	[QUERY_GIDS] = { "query GIDs", gids_query, 6 },
	[SWEEP] = { "ask for objects and destroy one", objects_sweep, 10 },
	[CREATE_CHANNEL] = { "create completion channel", channel_create, 8 },
	[CREATE_ASYNC] = { "create file of events", async_create, 8 },
	[READ_EVENTS] = { "read events", events_read, 40 },
	[MAP_RING] = { "map a ring", ring_map, 120 },
	[UNMAP_RING] = { "unmap a ring", ring_unmap, 8 },
	[POST_SENDS] = { "post sends", sends_post, 160 },
	[POST_RECEIVES] = { "post receives", receives_post, 100 },
	[POLL] = { "poll", completions_poll, 120 },
	[POST_LIST] = { "post a list", list_post, 4, .in_vain = true },
	[LIES] = { "commands that lie", NULL, 0, .in_vain = true },
	[NONSENSE] = { "bytes without a meaning", nonsense, 30, .in_vain = true },
	[DUMP_RESOURCES] = { "dump resources", resources_dump, 10 },
	[DUMP_STATISTICS] = { "dump statistics", statistics_dump, 6 },
	[CM_CREATE] = { "rdma_cm: create id", cm_create, 10 },
	[CM_BIND] = { "rdma_cm: bind", cm_bind, 6 },
	[CM_LISTEN] = { "rdma_cm: listen", cm_listen, 10 },
	[CM_ADDRESS] = { "rdma_cm: resolve address", cm_resolve_address, 12 },
	[CM_ROUTE] = { "rdma_cm: resolve route", cm_resolve_route, 12 },
	[CM_CONNECT] = { "rdma_cm: connect", cm_connect, 12 },
	[CM_EVENT] = { "rdma_cm: get event", cm_event, 40 },
	[CM_ACCEPT] = { "rdma_cm: accept", cm_accept, 16, .in_vain = true },
	[CM_REJECT] = { "rdma_cm: reject", cm_reject, 4, .in_vain = true },
	[CM_DISCONNECT] = { "rdma_cm: disconnect", cm_disconnect, 6, .in_vain = true },
	[CM_QUERY] = { "rdma_cm: query", cm_query, 8 },
	[CM_ATTRIBUTES] = { "rdma_cm: QP attributes", cm_attributes, 6 },
	[CM_OPTION] = { "rdma_cm: set option", cm_option, 4 },
	[CM_JOIN] = { "rdma_cm: join a group", cm_join, 4, .in_vain = true },
	[CM_MIGRATE] = { "rdma_cm: id to another file", cm_migrate, 2 },
	[CM_DESTROY] = { "rdma_cm: destroy id", cm_destroy, 10 },
	[CM_NONSENSE] = { "rdma_cm: bytes without a meaning", cm_nonsense, 6, .in_vain = true },
	[FORK] = { "fork", child_fork, 2 },
};

static void act(struct hand *hand)
{
	unsigned int sum = 0, at, i;
	int error;

	for (i = 0; i < ACTIONS; i++)
		sum += actions[i].weight;
	at = below(&hand->choice, sum);
	for (i = 0; at >= actions[i].weight; i++)
		at -= actions[i].weight;
	hand->lies.lied = false;
	error = actions[i].run(hand);
	if (error == NOTHING)
		return;
	if (error == EAGAIN && !hand->lies.lied && i < QUERY_DEVICE)
		count(&shared->limited);
	if (hand->lies.lied)
		i = LIES;
	count(error ? &shared->refused[i] : &shared->done[i]);
}

/* A child with all that its parent has works with it for a while, and ends in one way or another. */
static int child_fork(struct hand *hand)
{
	pid_t parent = getpid(), pid = fork();
	unsigned int left = below(&hand->choice, 60), i;

	if (pid < 0)
		return errno;
	if (pid)
		return 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	choice_seed(&hand->choice, any(&hand->choice), 0);
	/* What it knows of its parent's ids would soon be wrong: see cm_pick_asked(). */
	for (i = 0; i < CM_FILES; i++)
		cm_open(i);
	while (left-- && !shared->over && getppid() == parent)
		act(hand);
	_exit(0);
}

/* --- Processes ------------------------------------------------------------------------------ */

static struct hand hands[HANDS];

/* Uses up memory that somebody wants back: the last of the crew has little. */
static void gorge(void)
{
	static unsigned int eaten;

	if (!shared->gorge || crew_index != CREW - 1 || eaten > 128)
		return;
	eaten++;
	mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
}

static void *hand_run(void *argument)
{
	struct hand *hand = argument;

	coverage_start();
	while (!shared->over) {
		act(hand);
		coverage_collect();
		gorge();
	}
	return NULL;
}

/* What else would be the last way out, for who has no memory. */
static void give_up(void)
{
	raise(SIGKILL);
}

static void crew_run(unsigned int index, uint64_t number)
{
	pthread_t threads[HANDS];
	unsigned int i, started;

	crew_index = index;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGCHLD, SIG_IGN);
	if (has_memory_cgroups || has_rdma_cgroups)
		cgroup_write(index == CREW - 1 ? POOR "/cgroup.procs" : RICH "/cgroup.procs", "0");
	namespace_enter(devices[index % 2].space);
	for (i = 0; i < FILES; i++)
		files[i] = channels[i] = -1;
	for (i = 0; i < EVENT_FILES; i++)
		event_files[i] = -1;
	for (i = 0; i < MAPPINGS; i++)
		pthread_mutex_init(&mappings[i].lock, NULL);
	for (i = 0; i < CM_FILES; i++) {
		cm_files[i] = -1;
		cm_open(i);
	}
	for (i = 0; i < HANDS; i++) {
		choice_seed(&hands[i].choice, seed, number * HANDS + i);
		hands[i].answer = mmap(NULL, ANSWER_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		hands[i].netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
		if (hands[i].answer == MAP_FAILED || hands[i].netlink < 0)
			give_up();
	}
	for (started = 0; started < HANDS; started++) {
		if (pthread_create(&threads[started], NULL, hand_run, &hands[started]))
			give_up();
	}
	for (i = 0; i < HANDS; i++)
		pthread_join(threads[i], NULL);
}

static struct {
	pid_t crew[CREW];
	uint64_t started;
	/* Those that neither were killed nor came to their end. */
	unsigned int wrong;
	struct choice choice;
	uint64_t next_kill, next_limit, next_gorge;
} supervisor;

static void crew_start(unsigned int index)
{
	uint64_t number = supervisor.started++;
	pid_t pid = fork();

	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (!pid) {
		crew_run(index, number);
		fflush(stdout);
		_exit(0);
	}
	supervisor.crew[index] = pid;
	if (number >= CREW)
		count(&shared->replaced);
}

/* Takes notice of all that have ended; whether there is anybody else. */
static bool crew_reap(void)
{
	unsigned int i;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, member = false;

		for (i = 0; i < CREW; i++) {
			if (supervisor.crew[i] == pid) {
				supervisor.crew[i] = 0;
				member = true;
			}
		}
		/* Children of those that were killed end by themselves. */
		if (killed || (!status && (shared->over || !member)))
			continue;
		ksft_print_msg("a process ends with wait status %#x\n", status);
		supervisor.wrong++;
	}
	return !pid;
}

static void limit_set(bool little)
{
	char line[128];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		if (little)
			snprintf(line, sizeof(line), "%s hca_handle=%u hca_object=%u", devices[i].name,
				 1 + below(&supervisor.choice, 4), 1 + below(&supervisor.choice, 40));
		else
			snprintf(line, sizeof(line), "%s hca_handle=max hca_object=max", devices[i].name);
		cgroup_write(GROUP "/rdma.max", line);
	}
}

static void memory_watch(uint64_t now)
{
	uint64_t kills = cgroup_number(GROUP "/memory.events", "oom_kill");

	if (kills > shared->oom_kills) {
		shared->oom_kills = kills;
		shared->gorge = false;
		supervisor.next_gorge = now + 2000 + below(&supervisor.choice, 2000);
		if (kills >= MOST_OOM_KILLS)
			cgroup_write(POOR "/memory.max", "max");
	}
	if (now >= supervisor.next_gorge && kills < MOST_OOM_KILLS)
		shared->gorge = true;
}

static uint64_t executions(void)
{
	uint64_t sum = 0;
	unsigned int i;

	for (i = 0; i < ACTIONS; i++)
		sum += shared->done[i] + shared->refused[i];
	return sum;
}

/* The first that has not been yet, or NULL. */
static const char *missing(void)
{
	unsigned int i;

	for (i = 0; i < ACTIONS; i++) {
		if (!actions[i].in_vain && !shared->done[i])
			return actions[i].name;
	}
	if (!shared->kills || !shared->replaced)
		return "kills";
	if (has_memory_cgroups && !shared->oom_kills)
		return "OOM kills";
	if (has_rdma_cgroups && !shared->limited)
		return "limits of a cgroup";
	return executions() < FEWEST_COMMANDS ? "enough commands" : NULL;
}


static void supervise(unsigned int seconds)
{
	uint64_t end = now_ms() + seconds * 1000, now, told = end;
	unsigned int i;

	choice_seed(&supervisor.choice, seed, UINT32_MAX);
	supervisor.next_gorge = now_ms() + 1000;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	while (fuzzer_goes_on(end, !missing())) {
		crew_reap();
		for (i = 0; i < CREW; i++) {
			if (!supervisor.crew[i])
				crew_start(i);
		}
		usleep(20000);
		now = now_ms();
		if (now > told && missing()) {
			ksft_print_msg("more time: %" PRIu64 " commands, without %s\n", executions(), missing());
			fflush(stdout);
			told += 10000;
		}
		if (now >= supervisor.next_kill) {
			unsigned int index = below(&supervisor.choice, CREW);
			pid_t pid = supervisor.crew[index];

			if (supervisor.next_kill && pid && !kill(pid, SIGKILL)) {
				count(&shared->kills);
				/* Its end may take long, if rdma_cm waits for an answer. */
				supervisor.crew[index] = 0;
			}
			supervisor.next_kill = now + 500 + below(&supervisor.choice, 3000);
		}
		if (has_rdma_cgroups && now >= supervisor.next_limit) {
			limit_set(one_in(&supervisor.choice, 6));
			supervisor.next_limit = now + 200 + below(&supervisor.choice, 800);
		}
		if (has_memory_cgroups)
			memory_watch(now);
	}
	shared->gorge = false;
	shared->over = true;
	now = now_ms();
	while (crew_reap()) {
		if (now_ms() > now + LAST_COMMANDS_MS) {
			ksft_print_msg("there are processes that do not end\n");
			return;
		}
		usleep(20000);
	}
	ksft_print_msg("the last process ended %" PRIu64 " ms after the time was over\n", now_ms() - now);
	shared->ended = !supervisor.wrong;
}

static void groups_make(void)
{
	has_memory_cgroups = cgroup_has("memory");
	has_rdma_cgroups = cgroup_has("rdma");
	if (!has_memory_cgroups && !has_rdma_cgroups)
		return;
	if (mkdir(GROUP, 0755))
		die(GROUP ": %s", strerror(errno));
	if (has_memory_cgroups)
		cgroup_write(GROUP "/cgroup.subtree_control", "+memory");
	if (has_rdma_cgroups)
		cgroup_write(GROUP "/cgroup.subtree_control", "+rdma");
	if (mkdir(POOR, 0755) || mkdir(RICH, 0755))
		die(GROUP ": %s", strerror(errno));
	if (has_memory_cgroups) {
		cgroup_write(POOR "/memory.max", LITTLE_MEMORY);
		cgroup_write(GROUP "/memory.max", MUCH_MEMORY);
	}
}

/* What is left there is a process that has not ended. */
static bool groups_end(void)
{
	if (!has_memory_cgroups && !has_rdma_cgroups)
		return true;
	if (!rmdir(POOR) && !rmdir(RICH) && !rmdir(GROUP))
		return true;
	ksft_print_msg(GROUP ": %s\n", strerror(errno));
	return false;
}

static void devices_know(char *const *names, char *const *spaces)
{
	struct device device;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		devices[i].name = names[i];
		devices[i].space = spaces[i];
		device_open(&device, names[i], 4);
		devices[i].gid_index = device.gid_index;
		devices[i].gid = device.gid;
		snprintf(devices[i].path, sizeof(devices[i].path), "/dev/infiniband/%s",
			 device.context->device->dev_name);
		device_close(&device);
	}
}

static void report(void)
{
	unsigned int i;

	for (i = 0; i < ACTIONS; i++)
		ksft_print_msg("%s: %" PRIu64 " ok, %" PRIu64 " refused\n", actions[i].name, shared->done[i],
			       shared->refused[i]);
	ksft_print_msg("%" PRIu64 " completions, %" PRIu64 " of success\n", shared->completions,
		       shared->successes);
	ksft_print_msg("%" PRIu64 " kills, %" PRIu64 " OOM kills, %" PRIu64 " processes replaced, %" PRIu64
		       " objects refused by rdma.max\n",
		       shared->kills, shared->oom_kills, shared->replaced, shared->limited);
	ksft_print_msg("executions %" PRIu64 "\n", executions());
}

static bool all_succeeded(void)
{
	const char *what = missing();
	unsigned int i;

	for (i = 0; i < ACTIONS; i++) {
		if (!actions[i].in_vain && !shared->done[i])
			ksft_print_msg("never succeeded: %s\n", actions[i].name);
	}
	if (what)
		ksft_print_msg("without %s\n", what);
	return !what;
}

int main(int argc, char **argv)
{
	struct bystander bystander;
	struct fuzzer fuzzer;
	unsigned int i;
	int option, status;
	pid_t pid;
	bool gone;

	fuzzer_prepare(&fuzzer);
	while ((option = getopt(argc, argv, FUZZER_OPTIONS)) != -1) {
		if (!fuzzer_option(&fuzzer, option, optarg))
			return KSFT_FAIL;
	}
	if (argc - optind != 4)
		die("two devices and their namespaces are needed");
	fuzzer_begin(&fuzzer, 7);
	seed = fuzzer.seed;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("no memory");
	devices_know(argv + optind, argv + optind + 2);
	groups_make();
	bystander_start(&bystander, devices[0].name, devices[1].name, seed);
	for (i = 0; i < CREW; i++) {
		if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, mail[i]))
			die("socketpair: %s", strerror(errno));
	}
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		supervise(fuzzer.seconds);
		fflush(stdout);
		_exit(0);
	}
	/* It takes a limited time by itself. */
	if (waitpid(pid, &status, 0) != pid)
		die("waitpid: %s", strerror(errno));
	/* With files in them that nobody has taken. */
	for (i = 0; i < CREW; i++) {
		close(mail[i][0]);
		close(mail[i][1]);
	}
	report();
	gone = groups_end();
	ksft_test_result(!status && shared->ended && gone, "verbs: all processes end\n");
	ksft_test_result(all_succeeded(), "verbs: all that can succeed has succeeded\n");
	ksft_test_result(shared->kills && shared->replaced, "verbs: processes were killed and replaced\n");
	if (has_memory_cgroups)
		ksft_test_result(shared->oom_kills, "verbs: processes were killed for want of memory\n");
	else
		ksft_test_result_skip("verbs: processes were killed for want of memory: no memory cgroups\n");
	if (has_rdma_cgroups)
		ksft_test_result(shared->limited, "verbs: a cgroup's limits were reached\n");
	else
		ksft_test_result_skip("verbs: a cgroup's limits were reached: no rdma cgroups\n");
	ksft_test_result(bystander_stop(&bystander), "verbs: others notice nothing\n");
	bystander_start(&bystander, devices[0].name, devices[1].name, seed + 1);
	ksft_test_result(bystander_finish(&bystander), "verbs: both devices work afterwards\n");
	if (fuzzer.coverage)
		coverage_write(fuzzer.coverage);
	ksft_finished();
}
