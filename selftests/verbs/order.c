// SPDX-License-Identifier: GPL-2.0
/*
 * Programs wait for an RDMA WRITE by looking at its last byte. The specification does not promise that this is written
 * last, but network cards write a packet in the order of addresses.
 *
 * Test: the order in which the bytes of a WRITE appear
 */

#include <pthread.h>
#include <stdatomic.h>

#include "exchange.h"
#include "test.h"

#define SIZE 4096
/* Within a page, and a packet. */
#define LENGTH 2000
/* A copy may depend on where it begins. */
#define OFFSETS 16
#define STEP 8
#define TURNS 200
#define WAIT_MS 20000

static struct ibv_qp *qps[2];

/* Looks at the last byte on another CPU, and then at all others. */
static struct reader {
	pthread_t thread;
	const volatile uint8_t *memory;
	/* The value that is to come; zero ends the thread. */
	atomic_uint wanted;
	atomic_uint seen;
	unsigned int early;
} reader;

static void *read_all(void *unused)
{
	unsigned int value, last = 0, i;

	(void)unused;
	while ((value = reader.wanted)) {
		if (value == last || reader.memory[LENGTH - 1] != value)
			continue;
		atomic_thread_fence(memory_order_acquire);
		for (i = 0; i < LENGTH && reader.memory[i] == value; i++)
			;
		reader.early += i != LENGTH;
		last = value;
		reader.seen = value;
	}
	return NULL;
}

static bool write_value(unsigned int value, unsigned int offset)
{
	struct ibv_sge sge = region_sge(&sides[0].source, 0, LENGTH);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)sides[1].sink.memory + offset, sides[1].sink.mr->rkey },
	};

	memset(sides[0].source.memory, value, LENGTH);
	send_post(qps[0], &wr);
	return cq_expect(sides[0].send_cq, "WRITE", 0, IBV_WC_SUCCESS, WAIT_MS);
}

static bool run_last_byte(void)
{
	const struct depth depth = { .send = 4, .receive = 1, .sges = 1 };
	unsigned int offset, value;
	uint64_t end;
	bool ok = true;

	qps_make(qps, IBV_QPT_RC, depth, IBV_MTU_2048, PATIENT);
	reader.early = 0;
	for (offset = 0; ok && offset < OFFSETS * STEP; offset += STEP) {
		memset(sides[1].sink.memory, 0, SIZE);
		reader.memory = sides[1].sink.memory + offset;
		reader.wanted = 1;
		if (pthread_create(&reader.thread, NULL, read_all, NULL))
			die("pthread_create");
		for (value = 1; ok && value <= TURNS; value++) {
			reader.wanted = value;
			ok = write_value(value, offset);
			end = now_ms() + patience_ms(WAIT_MS);
			while (ok && reader.seen != value)
				ok = now_ms() < end;
		}
		reader.wanted = 0;
		pthread_join(reader.thread, NULL);
		reader.seen = 0;
	}
	ksft_print_msg("the last byte of %u WRITEs of %u came before others\n", reader.early, OFFSETS * TURNS);
	qps_free(qps);
	return ok && !reader.early;
}

static const struct row rows[] = {
	{ "the last byte of a WRITE appears last", run_last_byte },
};

static void begin(char **names)
{
	sides_make(devices, SIZE, 16);
}

const struct test test = { ROWS(rows), .with_devices = true, .begin = begin, .end = sides_free };
