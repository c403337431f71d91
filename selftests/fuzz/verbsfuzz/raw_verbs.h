/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Commands to a uverbs file without libibverbs: by write(), by the ioctl that takes the same
 * commands, and by methods of their own. All of them can be made to lie.
 */
#ifndef RAW_VERBS_H
#define RAW_VERBS_H

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "choice.h"

/* How much memory answers need: as much as a command can ask for. */
#define ANSWER_ROOM (1 << 20)

/* A command of write(). */
struct command {
	/* IB_USER_VERBS_CMD_..., or IB_USER_VERBS_EX_CMD_... */
	uint32_t number;
	bool extended;
	/* Without the header; not extended ones with an answer have its address in front. */
	union {
		uint8_t bytes[1024];
		uint64_t words[128];
	} core;
	size_t core_size;
	/* For the driver. */
	uint64_t driver;
	size_t driver_size;
	size_t answer_size;
	size_t driver_answer_size;
	/* Words of the core that are addresses, by bits: what the kernel writes to or pins must be ours. */
	uint32_t addresses;
};

/* A method of ioctl(). */
struct method {
	uint16_t object, method;
	unsigned int count;
	struct ib_uverbs_attr attributes[24];
};

/* What a lie is made of: whether one was told is written to `lied`. NULL: none. */
struct lies {
	struct choice *choice;
	bool lied;
};

/* Sizes of a command whose core and answer are of these types. */
void command_start(struct command *command, uint32_t number, const void *core, size_t core_size,
		   size_t answer_size);
/*
 * Carries it out; 0, or errno. The answer, with the driver's part behind it, is written to `answer`, which
 * has ANSWER_ROOM. By write() or by ioctl().
 */
int command_run(int file, struct command *command, uint8_t *answer, bool by_write, struct lies *lies);

void method_start(struct method *method, uint16_t object, uint16_t number);
/* A value of up to eight bytes. */
void method_value(struct method *method, uint16_t id, uint64_t value, uint16_t size);
/* Memory of the room of an answer: a lie may have more of it written to than is asked for. */
void method_in(struct method *method, uint16_t id, const void *from, uint16_t size);
void method_out(struct method *method, uint16_t id, void *to, uint16_t size);
/* An object or a file, that is there or that is to be made; returns where the new one's number will be. */
struct ib_uverbs_attr *method_object(struct method *method, uint16_t id, uint64_t number);
int method_run(int file, struct method *method, struct lies *lies);

/* Bytes without any meaning, for write() or for ioctl(). */
int nonsense_run(int file, struct choice *choice, uint8_t *answer);

#endif
