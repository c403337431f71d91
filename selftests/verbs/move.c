// SPDX-License-Identifier: GPL-2.0
/*
 * Moves patterns between two devices over RC and checks every byte: those of the
 * target, those around it, and those of the source.
 *
 * move [-4|-6] [-q] [-s SEED] [-m MTU] DEVICE DEVICE
 *	-q	a few lengths only
 *	-m	that path MTU only
 */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exchange.h"
#include "kselftest.h"

#define SIDE_SIZE ((1 << 20) + (1 << 18))
#define LINKS 16
#define SECONDS 120

static struct device devices[2];
static struct side sides[2];
static bool quick;
static uint64_t seed;

/* Connected pairs of queue pairs; each is two ways. */
struct links {
	struct ibv_qp *qps[LINKS][2];
	struct way ways[2 * LINKS];
	unsigned int count;
	uint32_t inline_size;
};

static struct links links;

static void links_make(unsigned int count, enum ibv_mtu mtu, uint32_t inline_size)
{
	struct depth depth = {
		.send = MAX_MESSAGES,
		.receive = MAX_MESSAGES,
		.sges = MAX_SEGMENTS,
		.inline_size = inline_size,
	};
	unsigned int i, j;

	memset(&links, 0, sizeof(links));
	links.count = count;
	for (i = 0; i < count; i++) {
		for (j = 0; j < 2; j++)
			links.qps[i][j] = qp_make(&devices[j], IBV_QPT_RC, sides[j].send_cq,
						  sides[j].recv_cq, depth, &links.inline_size);
		qp_connect(&devices[0], links.qps[i][0], &devices[1], links.qps[i][1], mtu, PATIENT);
		ways_between(&links.ways[2 * i], &sides[0], links.qps[i][0], &sides[1],
			     links.qps[i][1]);
	}
	for (j = 0; j < 2; j++) {
		region_fill(&sides[j].source);
		region_fill(&sides[j].sink);
	}
}

static bool links_end(void)
{
	unsigned int i, j;

	for (i = 0; i < links.count; i++) {
		for (j = 0; j < 2; j++) {
			if (ibv_destroy_qp(links.qps[i][j]))
				die("ibv_destroy_qp: %s", strerror(errno));
		}
	}
	/* A row that failed leaves completions: they are none of the next row's. */
	for (j = 0; j < 2; j++) {
		cq_drain(sides[j].send_cq);
		cq_drain(sides[j].recv_cq);
	}
	return side_check(&sides[0]) & side_check(&sides[1]);
}

static unsigned int lengths_make(enum ibv_mtu mtu, uint32_t *lengths)
{
	uint32_t bytes = mtu_bytes(mtu);
	unsigned int count = 0, multiple, most = quick ? 2 : 5;

	lengths[count++] = 0;
	lengths[count++] = 1;
	for (multiple = 1; multiple <= most; multiple++) {
		lengths[count++] = multiple * bytes - 1;
		lengths[count++] = multiple * bytes;
		lengths[count++] = multiple * bytes + 1;
	}
	if (quick)
		return count;
	lengths[count++] = 65535;
	lengths[count++] = 65536;
	lengths[count++] = 65537;
	lengths[count++] = 1 << 20;
	return count;
}

/* Each length by itself, in both directions, in so many pieces. */
static bool each_length(enum ibv_mtu mtu, enum ibv_wr_opcode opcode, unsigned int pieces)
{
	uint32_t lengths[32];
	unsigned int count = lengths_make(mtu, lengths), i, way;

	for (i = 0; i < count; i++) {
		for (way = 0; way < 2; way++) {
			ways_start(links.ways, 2);
			if (!message_add(&links.ways[way], opcode, lengths[i], pieces))
				die("no room for %u bytes", lengths[i]);
			if (!exchange(links.ways, 2, SECONDS)) {
				ksft_print_msg("%s of %u bytes in %u pieces from %s\n",
					       opcode_name(opcode), lengths[i], pieces,
					       sides[way].device->name);
				return false;
			}
		}
	}
	return true;
}

static bool run_lengths(enum ibv_mtu mtu, unsigned int which)
{
	bool ok;

	links_make(1, mtu, 0);
	ok = each_length(mtu, opcodes[which], 1);
	return links_end() && ok;
}

static bool run_pieces(enum ibv_mtu mtu, unsigned int which)
{
	unsigned int pieces;
	bool ok = true;

	links_make(1, mtu, 0);
	for (pieces = 2; ok && pieces <= MAX_SEGMENTS; pieces += 3)
		ok = each_length(mtu, opcodes[which], pieces);
	return links_end() && ok;
}

static bool run_inline(enum ibv_mtu mtu, unsigned int which)
{
	static const uint32_t asked = 256;
	uint32_t length;
	bool ok = true;

	links_make(1, mtu, asked);
	for (length = 0; ok && length <= asked; length += length % 3 ? 13 : 1) {
		struct message *message;

		ways_start(links.ways, 2);
		message = message_add(&links.ways[0], opcodes[which], length, 1 + length % 3);
		if (!message)
			die("no room for %u bytes", length);
		message->inlined = true;
		ok = exchange(links.ways, 2, SECONDS);
		if (!ok)
			ksft_print_msg("%u bytes inline\n", length);
	}
	return links_end() && ok;
}

/* Random messages on all ways at once, some of them without a completion. */
static bool run_mixed(enum ibv_mtu mtu, unsigned int count)
{
	unsigned int rounds = quick ? 1 : 4, round, i, j;
	uint32_t most = count == 1 ? 5 * mtu_bytes(mtu) : 2 * mtu_bytes(mtu);
	bool ok = true;

	links_make(count, mtu, 0);
	for (round = 0; ok && round < rounds; round++) {
		ways_start(links.ways, 2 * count);
		for (j = 0; j < MAX_MESSAGES; j++) {
			for (i = 0; i < 2 * count; i++) {
				struct message *message;

				message = message_add(&links.ways[i],
						      opcodes[random_between(0, OPCODES - 1)],
						      random_between(0, most),
						      random_between(1, MAX_SEGMENTS));
				if (message)
					message->unsignaled = random_next() % 4 == 0;
			}
		}
		for (i = 0; i < 2 * count; i++) {
			if (links.ways[i].count < 2)
				die("way %u has only %u messages", i, links.ways[i].count);
		}
		ok = exchange(links.ways, 2 * count, SECONDS);
	}
	return links_end() && ok;
}

struct row {
	char name[96];
	bool (*run)(enum ibv_mtu mtu, unsigned int argument);
	enum ibv_mtu mtu;
	unsigned int argument;
};

static struct row rows[128];
static unsigned int row_count;

static void row_add(bool (*run)(enum ibv_mtu, unsigned int), enum ibv_mtu mtu,
		    unsigned int argument, const char *name, const char *more)
{
	struct row *row = &rows[row_count++];

	snprintf(row->name, sizeof(row->name), "MTU %u: %s%s", mtu_bytes(mtu), name, more);
	row->run = run;
	row->mtu = mtu;
	row->argument = argument;
}

static void rows_make(unsigned int only)
{
	enum ibv_mtu mtu;
	unsigned int i;

	for (mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++) {
		if (only && mtu_bytes(mtu) != only)
			continue;
		for (i = 0; i < OPCODES; i++)
			row_add(run_lengths, mtu, i, opcode_name(opcodes[i]), "");
		for (i = 0; i < OPCODES; i++)
			row_add(run_pieces, mtu, i, opcode_name(opcodes[i]), " in pieces");
		for (i = 0; i + 1 < OPCODES; i++)
			row_add(run_inline, mtu, i, opcode_name(opcodes[i]), " inline");
		row_add(run_mixed, mtu, 1, "both directions at once", "");
		row_add(run_mixed, mtu, LINKS, "16 queue pairs at once", "");
	}
}

int main(int argc, char **argv)
{
	int option, family = 4, i;
	unsigned int only = 0, j;

	seed = time(NULL);
	while ((option = getopt(argc, argv, "46qs:m:")) != -1) {
		switch (option) {
		case '4':
		case '6':
			family = option - '0';
			break;
		case 'q':
			quick = true;
			break;
		case 's':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 'm':
			only = atoi(optarg);
			break;
		default:
			return KSFT_FAIL;
		}
	}
	if (argc - optind != 2)
		die("two devices are needed");
	rows_make(only);
	ksft_print_header();
	ksft_set_plan(row_count);
	ksft_print_msg("seed %#llx\n", (unsigned long long)seed);
	random_seed(seed);
	for (i = 0; i < 2; i++) {
		device_open(&devices[i], argv[optind + i], family);
		side_make(&sides[i], &devices[i], SIDE_SIZE, LINKS * MAX_MESSAGES);
	}
	for (j = 0; j < row_count; j++) {
		if (rows[j].mtu > devices[0].active_mtu || rows[j].mtu > devices[1].active_mtu)
			ksft_test_result_code(KSFT_SKIP, rows[j].name, "the ports' MTU is smaller");
		else
			ksft_test_result(rows[j].run(rows[j].mtu, rows[j].argument), "%s\n",
					 rows[j].name);
	}
	for (i = 0; i < 2; i++) {
		side_free(&sides[i]);
		device_close(&devices[i]);
	}
	ksft_finished();
}
