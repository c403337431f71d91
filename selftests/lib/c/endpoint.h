/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One end of what the verbs selftests do: a device, memory whose every byte
 * has an expected value, and queue pairs.
 */
#ifndef ENDPOINT_H
#define ENDPOINT_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PORT 1

struct device {
	const char *name;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	enum ibv_mtu active_mtu;
	int gid_index;
	union ibv_gid gid;
	/* Of the address vectors of its connected queue pairs: the UDP source port. 0: their numbers say it. */
	uint32_t flow_label;
};

/* Registered memory, and what each byte of it should be. */
struct region {
	uint8_t *memory;
	uint8_t *expected;
	size_t size;
	struct ibv_mr *mr;
};

/* How far a queue pair of the tests can go. */
struct depth {
	uint32_t send;
	uint32_t receive;
	uint32_t sges;
	uint32_t inline_size;
};

/* How often a queue pair repeats, in the encodings of ibv_modify_qp(). */
struct patience {
	uint8_t timeout;
	uint8_t retries;
	uint8_t rnr_retries;
};

/* Ends the test program: what follows would mean nothing. */
void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Deterministic numbers (xorshift64*), from the seed that the test prints. */
uint64_t random_next(void);
void random_seed(uint64_t seed);
/* Evenly from low to high, both included. */
size_t random_between(size_t low, size_t high);
void random_fill(void *memory, size_t size);

/* The monotonic clock. */
uint64_t now_ns(void);
uint64_t now_us(void);
uint64_t now_ms(void);
/*
 * What would take so many milliseconds at most where nothing slows the kernel down, here: FERROCE_SLOWNESS times as
 * long. patience_ms() is for what has to happen, quiet_ms() for what must not.
 */
unsigned int patience_ms(unsigned int ms);
unsigned int quiet_ms(unsigned int ms);
/* The calling thread runs on this CPU only. */
void stay_on(int cpu);

/*
 * Who touches what is not there of this memory, in whole pages, waits until the file that is returned, a
 * userfaultfd, is closed. A read of the file does not block.
 */
int absence_begin(void *memory, size_t size);
/* Returns once somebody waits. It ends the program if nobody does. */
void absence_noticed(int fd);

/* family is 4 or 6: the first RoCE v2 GID that is an address of that family. */
void device_open(struct device *device, const char *name, int family);
void device_close(struct device *device);

/* Memory of zeros, not registered, with these flags of mmap(). */
void *pages_make(size_t size, int flags);
/* ibv_reg_mr() and ibv_dereg_mr(), which must not fail. */
struct ibv_mr *mr_make(struct ibv_pd *pd, void *memory, size_t size, int access);
void mr_free(struct ibv_mr *mr);
void region_make(struct region *region, struct device *device, size_t size, int access);
/* New random content, which is also the expected one. */
void region_fill(struct region *region);
/* Checks every byte; says where the first difference is. */
bool region_check(const struct region *region, const char *name);
void region_free(struct region *region);

/* So many bytes of it, from `at` on. */
struct ibv_sge region_sge(const struct region *region, size_t at, uint32_t length);

/* fork(), which must not fail; nothing is printed twice. */
pid_t fork_child(void);
/* pthread_create(), which must not fail either. */
void thread_start(pthread_t *thread, void *(*function)(void *argument), void *argument);

/* Post what must be taken. */
void send_post(struct ibv_qp *qp, struct ibv_send_wr *wr);
void recv_post(struct ibv_qp *qp, struct ibv_recv_wr *wr);

struct ibv_cq *cq_make(const struct device *device, int cqes);
void cq_free(struct ibv_cq *cq);

struct ibv_qp *qp_make(struct device *device, enum ibv_qp_type type, struct ibv_cq *send_cq,
		       struct ibv_cq *recv_cq, struct depth depth, uint32_t *inline_size);
/* ibv_modify_qp(), which must not fail. */
void qp_change(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask, const char *what);
/* Does nothing to NULL, as free() does. */
void qp_free(struct ibv_qp *qp);
/* One of type UD, in RTS. */
struct ibv_qp *ud_make(struct device *device, struct ibv_cq *send_cq, struct ibv_cq *recv_cq, struct depth depth,
		       uint32_t qkey);
int qp_init(struct ibv_qp *qp, int access, uint32_t qkey);
/* All that the peer of a queue pair of that type can be allowed to do. */
int access_of(enum ibv_qp_type type);
/* A connected queue pair, from INIT to RTS: psn is that of its own first request. */
void qp_ready_connected(const struct device *from, struct ibv_qp *qp, const struct device *to, uint32_t to_qpn,
			enum ibv_mtu mtu, struct patience patience, uint32_t psn, uint32_t to_psn);
/* Two RC or UC queue pairs, connected with each other and ready to send. */
void qp_connect(struct device *a, struct ibv_qp *qp_a, struct device *b, struct ibv_qp *qp_b,
		enum ibv_mtu mtu, struct patience patience);
/* Repeats for seconds: nothing of it shows where no packet is lost for good. */
#define PATIENT ((struct patience){ .timeout = 14, .retries = 7, .rnr_retries = 7 })
/* The ACK timeout is 1 s: no packet is repeated because a slow machine takes its time. */
#define VERY_PATIENT ((struct patience){ .timeout = 18, .retries = 7, .rnr_retries = 7 })
enum ibv_qp_state qp_state(struct ibv_qp *qp);
void qp_ready_ud(struct ibv_qp *qp);
void ah_free(struct ibv_ah *ah);
struct ibv_ah *ah_make(struct device *from, const struct device *to);
/* The bytes of the network header, which comes before a datagram in a receive. */
#define GRH 40
/* Whether it is that of a RoCEv2 datagram of so many bytes, with this hop limit. Says on standard output what is wrong. */
bool grh_check(const uint8_t *grh, const union ibv_gid *from, const union ibv_gid *to, uint32_t length, uint8_t hops);

/* One completion within patience_ms(ms); false if there is none. */
bool cq_poll(struct ibv_cq *cq, struct ibv_wc *wc, unsigned int ms);
/* That it is of this request, or of any, and has this status: says so if not. */
#define ANY_REQUEST UINT64_MAX
bool cq_expect(struct ibv_cq *cq, const char *what, uint64_t id, enum ibv_wc_status status, unsigned int ms);
/* That there is none at all within quiet_ms(ms). */
bool cq_quiet(struct ibv_cq *cq, unsigned int ms);
/* Takes all completions that are there, whatever they are. */
void cq_drain(struct ibv_cq *cq);

unsigned int mtu_bytes(enum ibv_mtu mtu);

/* One of a device's hw_counters. The core answers from its memory for as long as the file lifespan says: 12 ms. */
unsigned long long device_counter(const struct device *device, const char *name);
/* The same, after that time: what was counted before counts. */
unsigned long long device_counter_now(const struct device *device, const char *name);

/* How many objects of a type the module has ("qp", "ah", ...). -1 if it does not say so, as other drivers. */
long live_objects(const char *type);

#endif
