// SPDX-License-Identifier: GPL-2.0
/*
 * The RDMA READ/WRITE API of the core: by lists of pieces and, where its parameter force_mr is set, by regions.
 */

#include <linux/bvec.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <rdma/rw.h>

#include "consumer.h"

/*
 * ib_core has the parameter force_mr, which can be set as it is loaded only: this is where it is in memory, as
 * /proc/kallsyms says.
 */
static unsigned long force_mr;
module_param(force_mr, ulong, 0400);
MODULE_PARM_DESC(force_mr, "address of rdma_rw_force_mr in ib_core");

#define REMOTE_ORDER 8
#define PAGES (1 << REMOTE_ORDER)
#define CONTEXTS 4

static bool force_is(bool value)
{
	bool *force = (bool *)force_mr;
	bool before;

	if (!force)
		return false;
	before = *force;
	WRITE_ONCE(*force, value);
	return before;
}

/* Pages that do not lie one behind the other. */
struct scattered {
	u8 *pages[PAGES + 1];
	struct scatterlist list[PAGES + 1];
	struct bio_vec vectors[PAGES + 1];
	unsigned int count;
	/* In the first page. */
	unsigned int offset;
};

static int scatter(struct test *test, struct scattered *scattered, u32 length, unsigned int offset)
{
	u32 left = length, part, from = offset;
	unsigned int i, j;

	scattered->count = DIV_ROUND_UP(length + offset, PAGE_SIZE);
	scattered->offset = offset;
	sg_init_table(scattered->list, scattered->count);
	for (i = 0; i < scattered->count; i++) {
		/* From both ends, so that no page's successor in memory is its successor here. */
		j = i % 2 ? scattered->count - 1 - i / 2 : i / 2;
		scattered->pages[j] = memory_new(test, 0);
		must(test, scattered->pages[j], "no memory");
	}
	for (i = 0; i < scattered->count; i++) {
		part = min_t(u32, left, PAGE_SIZE - from);
		sg_set_buf(&scattered->list[i], scattered->pages[i] + from, part);
		bvec_set_virt(&scattered->vectors[i], scattered->pages[i] + from, part);
		left -= part;
		from = 0;
	}
	return 0;
}

/* Puts the pattern there, or compares with it; the rest of the pages must be untouched. */
static bool scattered_is(struct scattered *scattered, const u8 *bytes, u32 length, bool is_put)
{
	u32 at = 0, part, from = scattered->offset;
	unsigned int i;
	u8 *page;

	for (i = 0; i < scattered->count; i++) {
		page = scattered->pages[i];
		part = min_t(u32, length - at, PAGE_SIZE - from);
		if (is_put) {
			memset(page, UNTOUCHED, PAGE_SIZE);
			if (bytes)
				memcpy(page + from, bytes + at, part);
		} else if (!untouched(page, from) || memcmp(page + from, bytes + at, part) ||
			   !untouched(page + from + part, PAGE_SIZE - from - part)) {
			return false;
		}
		at += part;
		from = 0;
	}
	return true;
}

static int transfer(struct link *link, struct scattered *scattered, u32 length, u64 remote, u32 key,
		    enum dma_data_direction direction, bool is_vector, int *requests)
{
	struct request *request = request_new(link);
	struct ib_qp *qp = link->a.qp;
	struct rdma_rw_ctx context = {};
	struct bvec_iter all = { .bi_size = length };
	int count, error, failed;

	if (is_vector)
		count = rdma_rw_ctx_init_bvec(&context, qp, PORT, scattered->vectors, scattered->count, all, remote, key,
					      direction);
	else
		count = rdma_rw_ctx_init(&context, qp, PORT, scattered->list, scattered->count, 0, remote, key,
					 direction);
	must(link->test, count > 0, "rdma_rw_ctx_init: %d", count);
	*requests = count;
	error = rdma_rw_ctx_post(&context, qp, PORT, &request->cqe, NULL);
	if (error)
		failed = row_fails(link->test, "rdma_rw_ctx_post: %d", error);
	else
		failed = request_ends(&link->a, request, IB_WC_SUCCESS);
	/* Nothing may use its pages any more. */
	if (failed)
		ib_drain_qp(qp);
	if (is_vector)
		rdma_rw_ctx_destroy_bvec(&context, qp, PORT, scattered->vectors, scattered->count, direction);
	else
		rdma_rw_ctx_destroy(&context, qp, PORT, scattered->list, scattered->count, direction);
	return failed;
}

static const struct {
	u32 length;
	unsigned int offset;
} shapes[] = {
	{ 4096, 0 }, { 4096, 1000 }, { 12345, 4001 }, { 65536, 0 }, { 65537, 77 }, { 131072, 4095 }, { 262144, 512 },
	{ 1 << 20, 0 }, { (1 << 20) - 1000, 999 },
};

static int move(struct test *test, struct scattered *scattered, bool is_forced, bool is_vector)
{
	const struct link_shape shape = {
		.queue = is_vector ? QUEUE_SOFTIRQ : QUEUE_WORKQUEUE,
		.pd_flags = IB_PD_UNSAFE_GLOBAL_RKEY,
		.sends = 256,
		.rw_contexts = CONTEXTS,
	};
	unsigned int max_pages = min_t(u32, test->device->attrs.max_fast_reg_page_list_len, 256);
	struct link *link = link_make(test, &shape);
	int i, requests, expected;
	u64 address;
	u8 *remote;
	u32 length;

	if (!link)
		return -1;
	expected = DIV_ROUND_UP(1000, is_forced ? max_pages : test->device->attrs.max_sge_rd);
	must(test, rdma_rw_mr_factor(test->device, PORT, 1000) == expected, "rdma_rw_mr_factor: %u, expected %d",
	     rdma_rw_mr_factor(test->device, PORT, 1000), expected);
	must(test, is_forced == !list_empty(&link->a.qp->rdma_mrs), "the queue pair has %s regions", is_forced ? "no" : "");
	remote = memory_new(test, REMOTE_ORDER);
	must(test, remote, "no memory");
	address = ib_dma_map_single(test->device, remote, PAGE_SIZE << REMOTE_ORDER, DMA_BIDIRECTIONAL);
	for (i = 0; i < ARRAY_SIZE(shapes); i++) {
		length = shapes[i].length;
		try(scatter(test, scattered, length, shapes[i].offset));

		/* Out of the peer. */
		pattern_fill(remote, PAGE_SIZE << REMOTE_ORDER, i);
		scattered_is(scattered, NULL, length, true);
		try(transfer(link, scattered, length, address, link->pd->unsafe_global_rkey, DMA_FROM_DEVICE, is_vector,
			     &requests));
		must(test, scattered_is(scattered, remote, length, false), "other bytes of %u are read", length);
		must(test, pattern_is(remote, PAGE_SIZE << REMOTE_ORDER, i), "the source has changed");
		/* REG_MR and READ for each region, of which none was to be invalidated at first. */
		expected = is_forced ? DIV_ROUND_UP(scattered->count, max_pages) :
			   DIV_ROUND_UP(scattered->count, link->a.qp->max_read_sge);
		must(test, is_forced ? requests >= 2 * expected : requests == expected, "%d requests for %u pages", requests,
		     scattered->count);

		/* Into the peer. */
		memset(remote, 0x11, PAGE_SIZE << REMOTE_ORDER);
		try(transfer(link, scattered, length, address, link->pd->unsafe_global_rkey, DMA_TO_DEVICE, is_vector,
			     &requests));
		must(test, pattern_is(remote, length, i), "other bytes of %u are written", length);
		must(test, !memchr_inv(remote + length, 0x11, (PAGE_SIZE << REMOTE_ORDER) - length), "bytes behind %u",
		     length);
	}
	ib_drain_qp(link->a.qp);
	return 0;
}

enum way { BY_PIECES, BY_REGIONS };

static int rw(struct test *test, const struct row *row)
{
	struct scattered *scattered;
	bool before = false;
	int failed;

	if (row->first == BY_REGIONS) {
		must(test, force_mr, "the parameter force_mr has not been given");
		before = force_is(true);
	}
	scattered = kvzalloc(sizeof(*scattered), GFP_KERNEL);
	failed = scattered ? move(test, scattered, row->first == BY_REGIONS, row->second) : row_fails(test, "no memory");
	kvfree(scattered);
	if (row->first == BY_REGIONS)
		force_is(before);
	return failed;
}

/* Several at once, each with pages of its own; then one that the peer refuses. */
static int rw_many(struct test *test, const struct row *row)
{
	const struct link_shape shape = {
		.queue = QUEUE_UNBOUND,
		.rights = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ,
		.sends = 64,
		.rw_contexts = CONTEXTS,
	};
	struct rdma_rw_ctx contexts[CONTEXTS] = {};
	int i, count, failed = 0, ready = 0, error = 0;
	struct scattered *scattered;
	struct request *requests;
	bool before = false;
	struct link *link;

	if (row->first == BY_REGIONS) {
		must(test, force_mr, "the parameter force_mr has not been given");
		before = force_is(true);
	}
	link = link_make(test, &shape);
	scattered = kvcalloc(CONTEXTS, sizeof(*scattered), GFP_KERNEL);
	if (!link || !scattered)
		goto out_failed;
	requests = requests_new(link, CONTEXTS);
	pattern_fill(link->b.memory, MEMORY, 21);
	for (i = 0; i < CONTEXTS; i++) {
		if (scatter(test, &scattered[i], 30000, 17 * i))
			goto out_failed;
		scattered_is(&scattered[i], NULL, 30000, true);
	}
	for (i = 0; i < CONTEXTS; i++) {
		/* The last one upon memory that it may not write to. */
		count = rdma_rw_ctx_init(&contexts[i], link->a.qp, PORT, scattered[i].list, scattered[i].count, 0,
					 link->b.address + 1000 * i, link->b.region->rkey,
					 i == CONTEXTS - 1 ? DMA_TO_DEVICE : DMA_FROM_DEVICE);
		if (count < 0) {
			row_fails(test, "rdma_rw_ctx_init: %d", count);
			break;
		}
		ready++;
		error = rdma_rw_ctx_post(&contexts[i], link->a.qp, PORT, &requests[i].cqe, NULL);
		if (error) {
			row_fails(test, "rdma_rw_ctx_post: %d", error);
			break;
		}
	}
	for (i = 0; i < CONTEXTS && ready == CONTEXTS && !error && !failed; i++) {
		failed = request_ends(&link->a, &requests[i], i < CONTEXTS - 1 ? IB_WC_SUCCESS : IB_WC_REM_ACCESS_ERR);
		if (!failed && i < CONTEXTS - 1 && !scattered_is(&scattered[i], link->b.memory + 1000 * i, 30000, false))
			failed = row_fails(test, "other bytes are read");
	}
	ib_drain_qp(link->a.qp);
	for (i = 0; i < ready; i++)
		rdma_rw_ctx_destroy(&contexts[i], link->a.qp, PORT, scattered[i].list, scattered[i].count,
				    i == CONTEXTS - 1 ? DMA_TO_DEVICE : DMA_FROM_DEVICE);
	if (!pattern_is(link->b.memory, MEMORY, 21))
		failed = row_fails(test, "memory has changed");
	goto out;
out_failed:
	failed = row_fails(test, "not ready");
out:
	kvfree(scattered);
	if (row->first == BY_REGIONS)
		force_is(before);
	return failed || test->has_failed ? -1 : 0;
}

static const struct row rows[] = {
	{ "rdma_rw, 4 KiB to 1 MiB of a scatterlist, by pieces", rw, BY_PIECES, false },
	{ "rdma_rw, 4 KiB to 1 MiB of a scatterlist, by regions", rw, BY_REGIONS, false },
	{ "rdma_rw, 4 KiB to 1 MiB of bvecs, by pieces", rw, BY_PIECES, true },
	{ "rdma_rw, 4 KiB to 1 MiB of bvecs, by regions", rw, BY_REGIONS, true },
	{ "rdma_rw, four at once and a refusal, by pieces", rw_many, BY_PIECES },
	{ "rdma_rw, four at once and a refusal, by regions", rw_many, BY_REGIONS },
};

const struct rows rw_rows = { rows, ARRAY_SIZE(rows) };
