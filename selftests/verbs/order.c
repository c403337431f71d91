// SPDX-License-Identifier: GPL-2.0
/*
 * Programs wait for an RDMA WRITE by looking at its last byte, or at a word. The specification does not promise that the
 * byte is written last and the word at once, but network cards write a packet in the order of addresses, and words at
 * once.
 *
 * Test: the order in which the bytes of a WRITE appear
 */

#include <pthread.h>
#include <stdatomic.h>

#include "exchange.h"
#include "test.h"
#include "watcher.h"

#define SIZE 4096
/* A copy may depend on where it begins. */
#define OFFSETS 16
#define STEP 8
#define TURNS 200
/* Words are looked at more often than packets. */
#define WORDS 20000
#define WAIT_MS 20000

static struct ibv_qp *qps[2];
/* Of a word. */
static struct watcher watcher;

/* Looks at the last byte on another CPU, and then at all others. */
static struct reader {
	pthread_t thread;
	const volatile uint8_t *memory;
	unsigned int length;
	/* The value that is to come; zero ends the thread. */
	atomic_uint wanted;
	/* The last value that came. */
	atomic_uint seen;
	unsigned int early;
} reader;

static void *read_all(void *unused)
{
	unsigned int value, last = 0, i;

	(void)unused;
	while ((value = reader.wanted)) {
		if (value == last || reader.memory[reader.length - 1] != value)
			continue;
		atomic_thread_fence(memory_order_acquire);
		for (i = 0; i < reader.length && reader.memory[i] == value; i++)
			;
		reader.early += i != reader.length;
		last = value;
		reader.seen = value;
	}
	return NULL;
}

static void reader_start(unsigned int offset, unsigned int length)
{
	memset(sides[1].sink.memory, 0, SIZE);
	reader.memory = sides[1].sink.memory + offset;
	reader.length = length;
	reader.wanted = 1;
	thread_start(&reader.thread, read_all, NULL);
}

static void reader_end(void)
{
	reader.wanted = 0;
	pthread_join(reader.thread, NULL);
	reader.seen = 0;
}

/* A WRITE all of whose bytes have that value. */
static bool write_value(const volatile uint8_t *memory, unsigned int length, unsigned int value)
{
	struct ibv_sge sge = region_sge(&sides[0].source, 0, length);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)memory, sides[1].sink.mr->rkey },
	};

	memset(sides[0].source.memory, value, length);
	send_post(qps[0], &wr);
	return cq_expect(sides[0].send_cq, "WRITE", 0, IBV_WC_SUCCESS, WAIT_MS);
}

static const struct depth depth = { .send = 4, .receive = 1, .sges = 1 };

static bool is_last_byte_last(unsigned int length)
{
	unsigned int offset, value;
	uint64_t end;
	bool ok = true;

	qps_make(qps, IBV_QPT_RC, depth, IBV_MTU_2048, PATIENT);
	reader.early = 0;
	for (offset = 0; ok && offset < OFFSETS * STEP; offset += STEP) {
		reader_start(offset, length);
		for (value = 1; ok && value <= TURNS; value++) {
			reader.wanted = value;
			ok = write_value(reader.memory, length, value);
			end = now_ms() + patience_ms(WAIT_MS);
			while (ok && reader.seen != value)
				ok = now_ms() < end;
		}
		reader_end();
	}
	ksft_print_msg("the last byte of %u WRITEs of %u came before others\n", reader.early, OFFSETS * TURNS);
	qps_free(qps);
	return ok && !reader.early;
}

/* All within a page, and a packet. */
static bool run_last_byte(void)
{
	return is_last_byte_last(2000);
}

static bool run_unaligned_end(void)
{
	return is_last_byte_last(1990) && is_last_byte_last(1991);
}

static bool run_few_bytes(void)
{
	return is_last_byte_last(3) && is_last_byte_last(7);
}

/* As those of each WRITE are: any other word is of two. */
static bool bytes_are_equal(uint64_t word)
{
	uint64_t all = (word & 0xff) * 0x0101010101010101ull;

	return word == (watcher.bytes == 8 ? all : (uint32_t)all);
}

static bool run_words(void)
{
	const uint8_t *word = sides[1].sink.memory + 8;
	unsigned int length, i;
	uint64_t end;
	bool ok = true;

	qps_make(qps, IBV_QPT_RC, depth, IBV_MTU_2048, PATIENT);
	for (length = 4; ok && length <= 8; length += 4) {
		memset(sides[1].sink.memory, 0, SIZE);
		watcher_start(&watcher, word, length, bytes_are_equal);
		end = now_ms() + patience_ms(WAIT_MS);
		/* The thread may begin late, or share a CPU with this one. */
		for (i = 0; ok && (i < WORDS || (watcher.changes < CHANGES && now_ms() < end)); i++)
			ok = write_value(word, length, i & 0xff);
		watcher_end(&watcher);
		ksft_print_msg("%u WRITEs of %u bytes: %u changes seen, %u words of two WRITEs\n", i, length,
			       watcher.changes, watcher.torn);
		ok &= !watcher.torn && watcher.changes >= CHANGES;
	}
	qps_free(qps);
	return ok;
}

static const struct row rows[] = {
	{ "the last byte of a WRITE appears last", run_last_byte },
	{ "the last byte of a WRITE that ends anywhere appears last", run_unaligned_end },
	{ "the last byte of a WRITE of a few bytes appears last", run_few_bytes },
	{ "an aligned WRITE of four or eight bytes appears at once", run_words },
};

static void begin(char **names)
{
	sides_make(devices, SIZE, 16);
}

const struct test test = { ROWS(rows), .with_devices = true, .begin = begin, .end = sides_free };
