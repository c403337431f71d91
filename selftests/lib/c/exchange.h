/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Messages over connected queue pairs, in which every byte, every completion
 * and their order have an expected value.
 */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include "endpoint.h"

#define MAX_SEGMENTS 8
#define MAX_MESSAGES 32

struct side {
	struct device *device;
	/* Read by messages, never written. */
	struct region source;
	/* Written by messages, in slots with untouched bytes between them. */
	struct region sink;
	size_t sink_next;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
};

struct segment {
	struct region *region;
	size_t offset;
	uint32_t length;
};

struct message {
	enum ibv_wr_opcode opcode;
	uint32_t length;
	uint32_t imm;
	bool inlined;
	bool unsignaled;
	/* The initiator's memory. */
	struct segment local[MAX_SEGMENTS];
	unsigned int locals;
	/* The target's: the range of a READ or WRITE, or where a SEND arrives. */
	struct segment remote[MAX_SEGMENTS];
	unsigned int remotes;
};

/* One direction of two connected queue pairs. */
struct way {
	struct side *from;
	struct side *to;
	struct ibv_qp *qp;
	struct ibv_qp *peer;
	struct message messages[MAX_MESSAGES];
	unsigned int count;
	/* How many of them have completed at the initiator and at the target. */
	unsigned int sent;
	unsigned int received;
};

void side_make(struct side *side, struct device *device, size_t size, int cqes);
/* Two of them, for programs that need no others. */
extern struct side sides[2];
void sides_make(struct device devices[2], size_t size, int cqes);
void sides_free(void);
/* A queue pair for each of them, connected. */
void qps_make(struct ibv_qp *qps[2], enum ibv_qp_type type, struct depth depth, enum ibv_mtu mtu,
	      struct patience patience);
/* Frees them, and drops the completions that a row which failed has left. */
void qps_free(struct ibv_qp *qps[2]);
/* Checks both regions, source and sink. */
bool side_check(const struct side *side);
void side_free(struct side *side);

/* The two ways between two connected queue pairs, each with the side that it belongs to. */
void ways_between(struct way ways[2], struct side *a, struct ibv_qp *qp_a, struct side *b,
		  struct ibv_qp *qp_b);
/* Forgets earlier messages and the slots that they used. */
void ways_start(struct way *ways, unsigned int count);
/*
 * Adds a message with its memory in so many pieces on either side. NULL where no
 * room is left for it.
 */
struct message *message_add(struct way *way, enum ibv_wr_opcode opcode, uint32_t length,
			    unsigned int pieces);
/* Posts everything, waits for the completions, checks them and both sinks. */
bool exchange(struct way *ways, unsigned int count, unsigned int seconds);

/* What messages can be; UC has all but the last. */
#define OPCODES 5
extern const enum ibv_wr_opcode opcodes[OPCODES];
const char *opcode_name(enum ibv_wr_opcode opcode);

#endif
