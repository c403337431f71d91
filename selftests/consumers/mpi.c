// SPDX-License-Identifier: GPL-2.0
/*
 * What MPI promises, verified byte by byte: messages between all pairs of ranks, collectives, one-sided windows, and
 * many communicators. Each part is a row; rank 0 prints them. Any number of ranks from 2 on; run by stacks.sh. An
 * argument is the reason why there are no one-sided windows.
 */

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define COMMUNICATORS 40
#define WINDOW 4096

static int rank, ranks, row;

/* Short, eager and rendezvous messages, and those around their limits. */
static const size_t lengths[] = {
	0, 1, 7, 64, 255, 1024, 4095, 8192, 8193, 65536, 65537, 1 << 20, (1 << 20) + 3, 16 << 20,
};

static uint8_t byte_of(int from, int to, size_t length, size_t at)
{
	return (uint8_t)((from + 1) * 131 + (to + 1) * 31 + length * 7 + at * 13 + (at >> 8));
}

static uint8_t *filled(int from, int to, size_t length)
{
	uint8_t *memory = malloc(length + 1);
	size_t i;

	if (!memory)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (i = 0; i < length; i++)
		memory[i] = byte_of(from, to, length, i);
	return memory;
}

static bool is_filled(const uint8_t *memory, int from, int to, size_t length)
{
	size_t i;

	for (i = 0; i < length; i++)
		if (memory[i] != byte_of(from, to, length, i)) {
			printf("# rank %d, from %d, %zu bytes: byte %zu is wrong\n", to, from, length, i);
			return false;
		}
	return true;
}

/* A row passes if all ranks say so. */
static bool verdict(const char *name, bool is_right)
{
	int mine = is_right, all = 0;

	MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
	row++;
	if (rank == 0) {
		printf("%sok %d %s\n", all ? "" : "not ", row, name);
		fflush(stdout);
	}
	return all;
}

/* Each rank to the next one, of each length, blocking. */
static bool ring(void)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	bool is_right = true;
	size_t i;

	for (i = 0; i < COUNT(lengths); i++) {
		uint8_t *out = filled(rank, next, lengths[i]), *in = calloc(1, lengths[i] + 1);
		MPI_Status status;
		int count;

		MPI_Sendrecv(out, (int)lengths[i], MPI_BYTE, next, (int)i, in, (int)lengths[i], MPI_BYTE, before, (int)i,
			     MPI_COMM_WORLD, &status);
		MPI_Get_count(&status, MPI_BYTE, &count);
		is_right &= (size_t)count == lengths[i] && is_filled(in, before, rank, lengths[i]);
		free(out);
		free(in);
	}
	return is_right;
}

/* All pairs at once, many messages each, received in another order than they were sent. */
static bool crowd(void)
{
	enum { EACH = 16, LENGTH = 20000 };
	MPI_Request *requests = calloc((size_t)(2 * EACH * ranks), sizeof(*requests));
	uint8_t **in = calloc((size_t)(EACH * ranks), sizeof(*in)), **out = calloc((size_t)(EACH * ranks), sizeof(*out));
	bool is_right = true;
	int peer, i, count = 0;

	for (peer = 0; peer < ranks; peer++)
		for (i = EACH - 1; i >= 0; i--) {
			in[peer * EACH + i] = calloc(1, LENGTH + EACH);
			MPI_Irecv(in[peer * EACH + i], LENGTH + i, MPI_BYTE, peer, i, MPI_COMM_WORLD, &requests[count++]);
		}
	for (i = 0; i < EACH; i++)
		for (peer = 0; peer < ranks; peer++) {
			out[peer * EACH + i] = filled(rank, peer, (size_t)(LENGTH + i));
			MPI_Isend(out[peer * EACH + i], LENGTH + i, MPI_BYTE, peer, i, MPI_COMM_WORLD, &requests[count++]);
		}
	MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
	for (i = 0; i < EACH * ranks; i++) {
		is_right &= is_filled(in[i], i / EACH, rank, (size_t)(LENGTH + i % EACH));
		free(in[i]);
		free(out[i]);
	}
	free(in);
	free(out);
	free(requests);
	return is_right;
}

/* A message that is probed for, one that is sent synchronously, and one that is cancelled by nobody's receive. */
static bool probe(void)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, count;
	uint8_t *out = filled(rank, next, 100000), *in;
	MPI_Request request;
	MPI_Status status;
	bool is_right;

	MPI_Issend(out, 100000, MPI_BYTE, next, 77, MPI_COMM_WORLD, &request);
	MPI_Probe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &status);
	MPI_Get_count(&status, MPI_BYTE, &count);
	is_right = status.MPI_SOURCE == before && count == 100000;
	in = calloc(1, (size_t)count + 1);
	MPI_Recv(in, count, MPI_BYTE, status.MPI_SOURCE, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	is_right = is_right && is_filled(in, before, rank, 100000);
	free(in);
	free(out);
	return is_right;
}

static bool broadcast(void)
{
	bool is_right = true;
	size_t i;
	int root;

	for (root = 0; root < ranks; root++)
		for (i = 0; i < COUNT(lengths) - 1; i++) {
			uint8_t *memory = rank == root ? filled(root, 99, lengths[i]) : calloc(1, lengths[i] + 1);

			MPI_Bcast(memory, (int)lengths[i], MPI_BYTE, root, MPI_COMM_WORLD);
			is_right &= is_filled(memory, root, 99, lengths[i]);
			free(memory);
		}
	return is_right;
}

/* Whether out[at] is first + step * at everywhere; says where it is not. */
static bool is_series(const char *name, const int64_t *out, int count, int64_t first, int64_t step)
{
	int at;

	for (at = 0; at < count; at++) {
		if (out[at] != first + step * at) {
			printf("# rank %d: %s of %d: [%d] is %lld, not %lld\n", rank, name, count, at,
			       (long long)out[at], (long long)(first + step * at));
			return false;
		}
	}
	return true;
}

static bool reduction(void)
{
	static const int counts[] = { 1, 3, 1000, 100000 };
	bool is_right = true;
	size_t i;
	int at;

	for (i = 0; i < COUNT(counts); i++) {
		int64_t *in = calloc((size_t)counts[i], sizeof(*in)), *out = calloc((size_t)counts[i], sizeof(*out));
		int64_t sum = (int64_t)ranks * (ranks - 1) / 2, before = (int64_t)rank * (rank + 1) / 2;

		for (at = 0; at < counts[i]; at++)
			in[at] = rank + (int64_t)at * 3;
		MPI_Allreduce(in, out, counts[i], MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
		is_right &= is_series("sum", out, counts[i], sum, 3 * ranks);
		MPI_Reduce(in, out, counts[i], MPI_INT64_T, MPI_MAX, ranks - 1, MPI_COMM_WORLD);
		is_right &= rank != ranks - 1 || is_series("maximum", out, counts[i], ranks - 1, 3);
		MPI_Scan(in, out, counts[i], MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
		is_right &= is_series("prefix sum", out, counts[i], before, 3 * (rank + 1));
		free(in);
		free(out);
	}
	return is_right;
}

/* Alltoall, gather, scatter, allgather of blocks of each length. */
static bool exchange(void)
{
	static const size_t blocks[] = { 1, 100, 8192, 70000 };
	bool is_right = true;
	size_t i;
	int peer;

	for (i = 0; i < COUNT(blocks); i++) {
		size_t block = blocks[i];
		uint8_t *out = calloc((size_t)ranks, block), *in = calloc((size_t)ranks, block);

		for (peer = 0; peer < ranks; peer++) {
			uint8_t *part = filled(rank, peer, block);

			memcpy(out + (size_t)peer * block, part, block);
			free(part);
		}
		MPI_Alltoall(out, (int)block, MPI_BYTE, in, (int)block, MPI_BYTE, MPI_COMM_WORLD);
		for (peer = 0; peer < ranks; peer++)
			is_right &= is_filled(in + (size_t)peer * block, peer, rank, block);
		memset(in, 0, (size_t)ranks * block);
		MPI_Allgather(out, (int)block, MPI_BYTE, in, (int)block, MPI_BYTE, MPI_COMM_WORLD);
		for (peer = 0; peer < ranks; peer++)
			is_right &= is_filled(in + (size_t)peer * block, peer, 0, block);
		memset(in, 0, (size_t)ranks * block);
		MPI_Gather(out, (int)block, MPI_BYTE, in, (int)block, MPI_BYTE, 0, MPI_COMM_WORLD);
		for (peer = 0; peer < ranks && rank == 0; peer++)
			is_right &= is_filled(in + (size_t)peer * block, peer, 0, block);
		memset(in, 0, (size_t)ranks * block);
		MPI_Scatter(out, (int)block, MPI_BYTE, in, (int)block, MPI_BYTE, 0, MPI_COMM_WORLD);
		is_right &= is_filled(in, 0, rank, block);
		free(in);
		free(out);
	}
	return is_right;
}

/* Each rank writes into a place of its own in the windows of all, reads what the others wrote, and counts. */
static bool windows(void)
{
	size_t size = (size_t)ranks * WINDOW + 2 * sizeof(int64_t);
	int64_t one = 1, before, seen, counter;
	uint8_t *memory, *copy = calloc(1, WINDOW);
	bool is_right = true;
	MPI_Aint words = (MPI_Aint)ranks * WINDOW;
	MPI_Win window;
	int peer, i;

	MPI_Win_allocate((MPI_Aint)size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
	memset(memory, 0, size);
	MPI_Win_fence(0, window);
	for (peer = 0; peer < ranks; peer++) {
		uint8_t *part = filled(rank, peer, WINDOW);

		MPI_Put(part, WINDOW, MPI_BYTE, peer, (MPI_Aint)rank * WINDOW, WINDOW, MPI_BYTE, window);
		MPI_Win_fence(0, window);
		free(part);
	}
	for (peer = 0; peer < ranks; peer++)
		is_right &= is_filled(memory + (size_t)peer * WINDOW, peer, rank, WINDOW);
	MPI_Win_fence(0, window);
	for (peer = 0; peer < ranks; peer++) {
		MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, window);
		MPI_Get(copy, WINDOW, MPI_BYTE, peer, (MPI_Aint)rank * WINDOW, WINDOW, MPI_BYTE, window);
		MPI_Win_unlock(peer, window);
		is_right &= is_filled(copy, rank, peer, WINDOW);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	/* Two words of rank 0: all count the one, and whoever finds the other as expected moves it on. */
	MPI_Win_lock_all(0, window);
	for (i = 0; i < 50; i++) {
		MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, words, MPI_SUM, window);
		MPI_Win_flush(0, window);
		is_right &= before >= i;
	}
	for (i = 0; i < 50;) {
		MPI_Fetch_and_op(NULL, &seen, MPI_INT64_T, 0, words + (MPI_Aint)sizeof(seen), MPI_NO_OP, window);
		MPI_Win_flush(0, window);
		counter = seen + 1;
		MPI_Compare_and_swap(&counter, &seen, &before, MPI_INT64_T, 0, words + (MPI_Aint)sizeof(seen), window);
		MPI_Win_flush(0, window);
		i += before == seen;
	}
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
	MPI_Get(&counter, sizeof(counter), MPI_BYTE, 0, words, sizeof(counter), MPI_BYTE, window);
	MPI_Get(&seen, sizeof(seen), MPI_BYTE, 0, words + (MPI_Aint)sizeof(seen), sizeof(seen), MPI_BYTE, window);
	MPI_Win_unlock(0, window);
	is_right &= counter == 50 * ranks && seen == 50 * ranks;
	MPI_Win_free(&window);
	free(copy);
	return is_right;
}

/* The same tag in many communicators: none takes another's message. */
static bool communicators(void)
{
	MPI_Comm comms[COMMUNICATORS], half;
	MPI_Request requests[2 * COMMUNICATORS];
	int in[COMMUNICATORS], out[COMMUNICATORS], next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	int i, sum = 0, wanted = 0;
	bool is_right = true;

	for (i = 0; i < COMMUNICATORS; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
	for (i = 0; i < COMMUNICATORS; i++)
		MPI_Irecv(&in[i], 1, MPI_INT, before, 5, comms[i], &requests[i]);
	for (i = COMMUNICATORS - 1; i >= 0; i--) {
		out[i] = rank * 1000 + i;
		MPI_Isend(&out[i], 1, MPI_INT, next, 5, comms[i], &requests[COMMUNICATORS + i]);
	}
	MPI_Waitall(2 * COMMUNICATORS, requests, MPI_STATUSES_IGNORE);
	for (i = 0; i < COMMUNICATORS; i++) {
		is_right &= in[i] == before * 1000 + i;
		MPI_Comm_free(&comms[i]);
	}
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half);
	for (i = rank % 2; i < ranks; i += 2)
		wanted += i;
	MPI_Comm_free(&half);
	return is_right && sum == wanted;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		bool (*run)(void);
	} parts[] = {
		{ "messages of 0 to 16 MiB around the ring", ring },
		{ "messages of all to all at once", crowd },
		{ "a probed message, sent synchronously", probe },
		{ "broadcasts", broadcast },
		{ "reductions and scans", reduction },
		{ "gather, scatter, allgather, alltoall", exchange },
		{ "one-sided windows", windows },
		{ "many communicators", communicators },
	};
	bool is_right = true;
	size_t i;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (rank == 0) {
		char version[MPI_MAX_LIBRARY_VERSION_STRING];
		int length;

		MPI_Get_library_version(version, &length);
		version[strcspn(version, "\n")] = 0;
		printf("KTAP version 1\n1..%zu\n# %d ranks, %.60s\n", COUNT(parts), ranks, version);
	}
	for (i = 0; i < COUNT(parts); i++) {
		if (parts[i].run == windows && argc > 1) {
			row++;
			if (rank == 0)
				printf("ok %d %s # SKIP %s\n", row, parts[i].name, argv[1]);
			continue;
		}
		is_right &= verdict(parts[i].name, parts[i].run());
	}
	MPI_Finalize();
	return !is_right;
}
