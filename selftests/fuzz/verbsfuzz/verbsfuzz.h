/* SPDX-License-Identifier: GPL-2.0 */
/* The parts of verbsfuzz share the objects that all processes know, the state of a thread, and its actions. */
#ifndef VERBSFUZZ_H
#define VERBSFUZZ_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "choice.h"
#include "raw_verbs.h"

/* Processes at a time, and threads of each. */
#define CREW 4
#define HANDS 3
/* Files of uverbs that are shared, and how many objects of each kind are known of a file. */
#define FILES 6
#define OBJECTS 6
/* Memory that is registered: each process has its own at the same address. */
#define ARENA (1 << 18)
#define QKEY 0x11223344
/* One command in so many lies. */
#define LIE 7
#define MOST_ACTIONS 96


/* The kinds of objects that an action may need. */
enum kind { NO_KIND, A_FILE, CM_ID, PD, CQ, QP, SRQ, MR, MW, AH, XRCD, KINDS };

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
	/* The handle of its protection domain. */
	uint32_t pd;
	/* The ring of receives (its SRQ's, if it has one) or completions, and that of sends; of a region, its size. */
	struct span rings[2];
};

/* The objects of a file that a stream of messages uses. */
struct used {
	volatile bool busy;
	uint32_t file, generation, handles[KINDS];
};

struct shared {
	volatile bool over;
	/* The process with little memory is to use it up. */
	volatile bool gorge;
	volatile uint64_t done[MOST_ACTIONS], refused[MOST_ACTIONS], lies_done, lies_refused;
	/* Objects that rdma.max has refused. */
	volatile uint64_t limited;
	volatile uint64_t streams, sends, receives, completions, successes, good_sends, bytes;
	/* Objects destroyed, files closed and processes killed (NO_KIND) while messages flowed through them. */
	volatile uint64_t under_use[KINDS];
	volatile uint64_t kills, oom_kills, replaced;
	volatile bool ended;
	/* Two of each thread. */
	struct used used[CREW][2 * HANDS];
	struct {
		/* Of the last time that it was opened: who has an older one closes it. */
		volatile uint32_t generation;
		uint32_t device;
		struct object objects[KINDS][OBJECTS];
	} files[FILES];
};

/* A thread. */
struct hand {
	struct choice choice;
	/* ANSWER_ROOM of it. */
	uint8_t *answer;
	int netlink;
	/* Of the command that is carried out. */
	struct lies lies;
	/* Tells no lies: otherwise several steps would hardly ever all succeed. */
	bool honest;
	/* The file, objects and argument of the action: see struct action. */
	int file;
	struct object *with[4];
	struct cm_id *id;
	unsigned int argument;
	/* The object that was made last. */
	struct object made;
	/* The objects that its stream uses: two of shared->used. */
	struct used *used;
};

struct action {
	const char *name;
	/* 0, errno, or NOTHING. */
	int (*run)(struct hand *hand);
	/* How often, compared with the others. */
	unsigned int weight;
	/* The objects it needs, all of one file: they are chosen before, as hand->with. A_FILE is the file alone. */
	enum kind needs[4];
	/* For run(), as hand->argument; the states that the CM_ID may have, as bits. */
	unsigned int argument;
	/* Nobody says that it must succeed. */
	bool in_vain;
};

/* An action returns this if it found no object to work on. */
#define NOTHING (-1)

extern struct shared *shared;
extern struct known_device {
	const char *name, *space;
	char path[96];
	uint32_t gid_index;
	union ibv_gid gid;
} known[2];
extern uint8_t arena[ARENA];
/* Of this process; its files, or -1. */
extern unsigned int crew_index;
extern int files[FILES];

/* Each table ends with one without a name. */
extern const struct action file_actions[], object_actions[], event_actions[], traffic_actions[], netlink_actions[],
	cm_actions[];

static inline void count(volatile uint64_t *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* Puts a file descriptor in a place, and closes the one that was there. */
void descriptor_set(int *place, int fd);

/* objects.c */

/* Before the process starts threads: it has no files. */
/* Before there are processes: of the XRC domain that all of them have. */
void domain_prepare(void);
void files_prepare(void);
/* Before processes start, and afterwards: files are passed through here. */
void mail_open(void);
void mail_close(void);
/* A file that this process has and that is the one that the others mean, too. */
int file_pick(struct hand *hand);
struct object *object_pick(struct hand *hand, int file, enum kind kind);
/* One of that protection domain, if there is any. */
struct object *object_pick_of(struct hand *hand, int file, enum kind kind, uint32_t pd);
/* Runs a command or method on the hand's file, by one way or another, perhaps with a lie in it. */
int run(struct hand *hand, struct command *command);
int run_method(struct hand *hand, struct method *method);
int run_command(struct hand *hand, uint32_t number, const void *core, size_t core_size, size_t answer_size,
		size_t driver_answer_size);
#define RUN(hand, name, core, answer_size)                                                         \
	run_command(hand, IB_USER_VERBS_CMD_##name, core, sizeof(*(core)), answer_size, 0)

/* Actions, for a stream: what they make is hand->made. */
int pd_alloc(struct hand *hand);
int cq_create(struct hand *hand);
int qp_create(struct hand *hand);
int region_register(struct hand *hand);
int window_alloc(struct hand *hand);
int handle_create(struct hand *hand);
/* One step of a queue pair of the hand's file towards another. */
int qp_step(struct hand *hand, const struct object *qp, enum ibv_qp_state state, uint32_t peer_device, uint32_t peer);
/* Both queue pairs, each of its file, step by step. */
int qps_connect(struct hand *hand, const int in[2], struct object *const qps[2]);
/* How region_register() is argued. */
enum region_kind { PINNED, PAGED, ALL_ADDRESSES };

/* traffic.c */
void rings_prepare(void);

/* cm.c */
/* Opens files of its own for this process. */
void cm_renew(void);
struct cm_id *cm_pick(struct hand *hand, unsigned int states);

#endif
