// SPDX-License-Identifier: GPL-2.0
/*
 * Moves patterns between two devices over RC and checks every byte: those of the
 * target, those around it, and those of the source.
 *
 * move [-4|-6] [-q] [-m MTU] DEVICE DEVICE
 *	-q	a few lengths only
 *	-m	that path MTU only
 */

#include <arpa/inet.h>

#include "exchange.h"
#include "test.h"

#define SIDE_SIZE ((1 << 20) + (1 << 18))
#define LINKS 16
#define SECONDS 120

static bool quick;
static enum ibv_mtu mtu;
/* If not 0, the only MTU. */
static unsigned int only;

/* Connected pairs of queue pairs; each is two ways. */
struct links {
	struct ibv_qp *qps[LINKS][2];
	struct way ways[2 * LINKS];
	unsigned int count;
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
	unsigned int i;

	memset(&links, 0, sizeof(links));
	links.count = count;
	for (i = 0; i < count; i++) {
		qps_make(links.qps[i], IBV_QPT_RC, depth, mtu, PATIENT);
		ways_between(&links.ways[2 * i], &sides[0], links.qps[i][0], &sides[1],
			     links.qps[i][1]);
	}
	for (i = 0; i < 2; i++) {
		region_fill(&sides[i].source);
		region_fill(&sides[i].sink);
	}
}

static bool links_end(void)
{
	unsigned int i;

	for (i = 0; i < links.count; i++)
		qps_free(links.qps[i]);
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

static bool run_lengths(int which)
{
	bool ok;

	links_make(1, mtu, 0);
	ok = each_length(mtu, opcodes[which], 1);
	return links_end() && ok;
}

static bool run_pieces(int which)
{
	unsigned int pieces;
	bool ok = true;

	links_make(1, mtu, 0);
	for (pieces = 2; ok && pieces <= MAX_SEGMENTS; pieces += 3)
		ok = each_length(mtu, opcodes[which], pieces);
	return links_end() && ok;
}

static bool run_inline(int which)
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
static bool run_mixed(int count)
{
	unsigned int rounds = quick ? 1 : 4, round, j;
	int i;
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
				die("way %d has only %u messages", i, links.ways[i].count);
		}
		ok = exchange(links.ways, 2 * count, SECONDS);
	}
	return links_end() && ok;
}

static void row_of(bool (*run)(int), enum ibv_mtu mtu, int argument, const char *name, const char *more)
{
	row_add((struct row){ .name = row_name("MTU %u: %s%s", mtu_bytes(mtu), name, more), .run_with = run,
			      .argument = argument, .needs = mtu });
}

static void add(void)
{
	enum ibv_mtu mtu;
	int i;

	for (mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++) {
		if (only && mtu_bytes(mtu) != only)
			continue;
		for (i = 0; i < OPCODES; i++)
			row_of(run_lengths, mtu, i, opcode_name(opcodes[i]), "");
		for (i = 0; i < OPCODES; i++)
			row_of(run_pieces, mtu, i, opcode_name(opcodes[i]), " in pieces");
		for (i = 0; i + 1 < OPCODES; i++)
			row_of(run_inline, mtu, i, opcode_name(opcodes[i]), " inline");
		row_of(run_mixed, mtu, 1, "both directions at once", "");
		row_of(run_mixed, mtu, LINKS, "16 queue pairs at once", "");
	}
}

static bool run_row(const struct row *row)
{
	mtu = row->needs;
	if (mtu > devices[0].active_mtu || mtu > devices[1].active_mtu)
		return row_skip("the ports' MTU is smaller");
	return row_run(row);
}

static void begin(char **names)
{
	sides_make(devices, SIDE_SIZE, LINKS * MAX_MESSAGES);
}

static bool take_option(int option, const char *argument)
{
	if (option == 'q')
		quick = true;
	else
		only = atoi(argument);
	return true;
}

const struct test test = {
	.options = "qm:", .option = take_option, .add = add, .with_devices = true, .begin = begin, .end = sides_free,
	.run_row = run_row,
};
