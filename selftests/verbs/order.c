// SPDX-License-Identifier: GPL-2.0
/*
 * Programs wait for an RDMA WRITE by looking at its last byte. The specification does not promise that this is written
 * last, but network cards write a packet in the order of addresses.
 *
 * Test: the order in which the bytes of a WRITE appear
 */

#include <pthread.h>
#include <stdatomic.h>

#include "test.h"

#define SIZE 4096
/* Within a page, and a packet. */
#define LENGTH 2000
/* A copy may depend on where it begins. */
#define OFFSETS 16
#define STEP 8
#define TURNS 200
#define WAIT_MS 20000

static struct ibv_cq *cqs[2];
static struct ibv_qp *qps[2];
static struct region regions[2];

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
	struct ibv_sge sge = region_sge(&regions[0], 0, LENGTH);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)regions[1].memory + offset, regions[1].mr->rkey },
	};

	memset(regions[0].memory, value, LENGTH);
	send_post(qps[0], &wr);
	return cq_expect(cqs[0], "WRITE", 0, IBV_WC_SUCCESS, WAIT_MS);
}

static bool run_last_byte(void)
{
	const struct depth depth = { .send = 4, .receive = 1, .sges = 1 };
	unsigned int offset, value, i;
	uint64_t end;
	bool ok = true;

	for (i = 0; i < 2; i++)
		qps[i] = qp_make(&devices[i], IBV_QPT_RC, cqs[i], cqs[i], depth, NULL);
	qp_connect(&devices[0], qps[0], &devices[1], qps[1], IBV_MTU_2048, PATIENT);
	reader.early = 0;
	for (offset = 0; ok && offset < OFFSETS * STEP; offset += STEP) {
		memset(regions[1].memory, 0, SIZE);
		reader.memory = regions[1].memory + offset;
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
	for (i = 0; i < 2; i++)
		qp_free(qps[i]);
	return ok && !reader.early;
}

static const struct row rows[] = {
	{ "the last byte of a WRITE appears last", run_last_byte },
};

static void begin(char **names)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		cqs[i] = cq_make(&devices[i], 16);
		region_make(&regions[i], &devices[i], SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	}
}

static void end(void)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		cq_free(cqs[i]);
		region_free(&regions[i]);
	}
}

const struct test test = { ROWS(rows), .with_devices = true, .begin = begin, .end = end };
