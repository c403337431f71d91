/* SPDX-License-Identifier: GPL-2.0 */
/* The module consumer: a user of verbs in the kernel, for the selftest kverbs. */
#ifndef CONSUMER_H
#define CONSUMER_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <rdma/ib_verbs.h>

#define PORT 1
/* What each queue pair has: 1.28 ms, 0.54 s. */
#define RNR_TIMER 14
#define ACK_TIMEOUT 17
/* Bytes of each end's memory, in one piece. */
#define MEMORY_ORDER 5
#define MEMORY (PAGE_SIZE << MEMORY_ORDER)
/* What memory holds that nobody was to write to. */
#define UNTOUCHED 0xee
#define TEXT 4096

struct link;

/* A row that runs, or the traffic: its device, and all that is undone at its end. */
struct test {
	struct ib_device *device;
	u8 gid_index;
	struct list_head links;
	struct list_head memories;
	bool has_failed;
	/* Why the row is skipped, if it is. */
	const char *skipped;
	/* What is said of a failure. */
	char text[TEXT];
	size_t length;
};

/* Returns -1, for the caller to return. */
__printf(2, 3) int row_fails(struct test *test, const char *format, ...);

/* Returns -1, for the caller to return: the row cannot run here. */
int row_skips(struct test *test, const char *reason);

#define must(test, condition, format, ...)							\
	do {											\
		if (!(condition))								\
			return row_fails(test, "%s:%d: " format, __func__, __LINE__, ##__VA_ARGS__); \
	} while (0)
#define try(call)					\
	do {						\
		if (call)				\
			return -1;			\
	} while (0)

struct row {
	const char *name;
	int (*run)(struct test *test, const struct row *row);
	int first, second;
};

struct rows {
	const struct row *rows;
	unsigned int count;
};

extern const struct rows verbs_rows, relay_rows, queue_rows, datagram_rows, memory_rows, drain_rows, rw_rows, end_rows;

/* Where verbs are called from. */
enum context {
	FROM_TASK,
	FROM_BH_OFF,
	FROM_SOFTIRQ,
	FROM_IRQS_OFF,
	FROM_HARDIRQ,
};

/* Returns whether it was that context. */
bool call_from(enum context context, void (*function)(void *), void *argument);

/* Who takes completions off a queue. */
enum queue_kind {
	QUEUE_DIRECT,
	QUEUE_SOFTIRQ,
	QUEUE_WORKQUEUE,
	QUEUE_UNBOUND,
	QUEUE_SHARED_SOFTIRQ,
	QUEUE_SHARED_WORKQUEUE,
	/* Of ib_create_cq(): its handler polls, if it is to. */
	QUEUE_BARE,
};

struct queue {
	enum queue_kind kind;
	struct ib_cq *cq;
	unsigned int entries;
	bool handler_polls;
	/* Of ib_create_cq(), too. */
	int vector;
	/* Of the handler, and the CPU that it ran on. */
	atomic_t calls;
	int cpu;
};

/* A work request, and how it has ended. */
struct request {
	struct ib_cqe cqe;
	struct link *link;
	struct ib_wc wc;
	bool in_softirq;
	/* The completion's number among those of the link. */
	unsigned int order;
	atomic_t times;
};

#define REQUESTS 1024
#define EVENTS 32

struct side {
	const char *name;
	struct link *link;
	struct queue queue;
	struct ib_qp *qp;
	bool is_connected;
	u8 *memory;
	u64 address;
	/* All of its memory, registered with the rights that were asked for. */
	struct ib_mr *region;
	atomic_t events[EVENTS];
};

struct link_shape {
	enum queue_kind queue;
	enum ib_qp_type type;
	unsigned int pd_flags;
	/* Of the region of the second side. There is none if it has no rights, unless that is what is wanted. */
	int rights;
	bool has_no_rights;
	unsigned int sends, receives;
	/* That each side's queue is asked for; enough for all requests, if it is 0. */
	unsigned int completions;
	/* The second side's receives. */
	bool is_shared;
	unsigned int rw_contexts;
	bool is_signal_all;
	/* Not connected, for the caller to do. */
	bool is_idle;
	int vector;
};

#define ALL_RIGHTS (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC)

/* Two queue pairs of the device, each other's peers. */
struct link {
	struct list_head entry;
	struct test *test;
	struct ib_pd *pd;
	struct ib_srq *srq;
	struct side a, b;
	struct list_head regions;
	struct request *requests;
	unsigned int used;
	atomic_t completed;
	atomic_t srq_events[EVENTS];
	wait_queue_head_t wait;
	/* Nobody waits any longer. */
	bool is_ending;
};

void test_init(struct test *test, struct ib_device *device, u8 gid_index);
/* consumer_link.c. What is made is undone at the end of the row, if not before. */
struct link *link_make(struct test *test, const struct link_shape *shape);
int link_connect(struct link *link);
void link_free(struct link *link);
void test_free(struct test *test);
int qp_state(struct side *side);
int side_address(struct test *test, struct rdma_ah_attr *attr, enum ib_mtu *mtu);
int side_init(struct side *side);
int side_to_error(struct side *side);

int queue_open(struct test *test, struct queue *queue, unsigned int entries);
void queue_close(struct queue *queue);
/* Takes completions off a queue that nobody else takes any off. */
int queue_poll(struct queue *queue, int budget);
extern const char *const queue_names[];

unsigned long patience(void);
/* Polls the side's queue if nobody else does, until the condition, which must not sleep, holds; false if it never does. */
#define wait_on(whose, condition)									\
({												\
	struct side *_side = (whose);								\
	unsigned long _deadline = jiffies + patience();						\
												\
	while (!(condition) && !time_after(jiffies, _deadline) && !READ_ONCE(_side->link->is_ending)) { \
		queue_poll(&_side->queue, 8);							\
		wait_event_timeout(_side->link->wait,						\
			(condition) || READ_ONCE(_side->link->is_ending), 1);			\
	}											\
	(condition);										\
})

struct request *request_new(struct link *link);
/* So many, one behind the other. */
struct request *requests_new(struct link *link, unsigned int count);
/* Waits for the completion, the only one, and compares what every completion has. */
int request_ends(struct side *side, struct request *request, enum ib_wc_status status);
int send_ends(struct side *side, struct request *request, enum ib_wc_opcode opcode);
int receive_ends(struct side *side, struct request *request, enum ib_wc_opcode opcode, u32 length, int flags, u32 extra);

int post_sends(struct side *side, enum context context, const struct ib_send_wr *list);
int post_receives(struct side *side, enum context context, const struct ib_recv_wr *list);
/* A receive of the side's memory from there on. */
int post_receive(struct side *side, enum context context, struct request *request, unsigned int at, u32 length);

/* Work requests, signaled. */
struct ib_send_wr *send_of(struct ib_send_wr *wr, struct request *request, enum ib_wr_opcode opcode,
			   struct ib_sge *list, int count);
struct ib_sge piece_of(struct side *side, unsigned int at, u32 length);
struct ib_send_wr *rdma_of(struct ib_rdma_wr *wr, struct request *request, enum ib_wr_opcode opcode,
			   struct ib_sge *list, int count, u64 address, u32 key);
struct ib_send_wr *registration_of(struct ib_reg_wr *wr, struct request *request, struct ib_mr *region, int rights);
struct ib_send_wr *invalidation_of(struct ib_send_wr *wr, struct request *request, u32 key);

/* An operation of the first side upon what a key of the second one leads to, of its own memory from the start. */
int access(struct link *link, enum ib_wr_opcode opcode, u64 address, u32 length, u32 key, enum ib_wc_status status);

/* A region of so many pages, or of pieces with gaps between them; not registered yet. */
struct ib_mr *region_new(struct link *link, unsigned int pages);
struct ib_mr *region_new_of(struct link *link, enum ib_mr_type type, unsigned int pieces);
/* All of them without one. */
void regions_free(struct link *link, struct ib_mr *region);
int region_map_side(struct side *side, struct ib_mr *region, unsigned int at, unsigned int length);
/* Gives it another key and registers it by a request of that side. */
int region_register(struct side *side, struct ib_mr *region, int rights, enum context context);
int region_invalidate(struct side *side, u32 key, enum context context);

/* Pages that belong together, UNTOUCHED. */
u8 *memory_new(struct test *test, unsigned int order);

void pattern_fill(void *memory, size_t length, u32 seed);
bool pattern_is(const void *memory, size_t length, u32 seed);
bool untouched(const void *memory, size_t length);

/* consumer_connection.c: a connection of rdma_cm. */
struct connection;
/* If it is silent, the passive end does not answer when the connection ends. */
struct connection *connection_start(struct test *test, bool is_silent);
/* Returns whether the CM has said, soon enough, that the connection has ended. */
bool connection_end(struct connection *connection);

/* consumer_traffic.c: messages without end. */
struct traffic;
struct traffic *traffic_start(struct ib_device *device, u8 gid_index, bool is_peer_silent);
/* Returns whether all has ended as it should. If not, the kernel log says what was wrong. */
bool traffic_end(struct traffic *traffic);
unsigned long traffic_messages(const struct traffic *traffic);
/* What was wrong, if anything was. */
const char *traffic_failure(const struct traffic *traffic);

#endif
