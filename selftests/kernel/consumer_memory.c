// SPDX-License-Identifier: GPL-2.0
/*
 * Fast registration.
 */

#include <linux/delay.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "consumer.h"

/* The access is refused: both queue pairs are in error then, and nothing is copied. */
static int access_fails(struct link *link, enum ib_wr_opcode opcode, u64 address, u32 length, u32 key)
{
	struct test *test = link->test;

	/* Other bytes at either end, so that a copy shows. */
	memset(link->a.memory, 0, MEMORY);
	memset(link->b.memory, UNTOUCHED, MEMORY);
	try(access(link, opcode, address, length, key, IB_WC_REM_ACCESS_ERR));
	must(test, qp_state(&link->a) == IB_QPS_ERR, "the requester's state is %d", qp_state(&link->a));
	must(test, wait_on(&link->b, atomic_read(&link->b.events[IB_EVENT_QP_ACCESS_ERR])), "the responder is not told");
	must(test, qp_state(&link->b) == IB_QPS_ERR, "the responder's state is %d", qp_state(&link->b));
	must(test, atomic_read(&link->b.events[IB_EVENT_QP_ACCESS_ERR]) == 1, "the responder is told more than once");
	must(test, untouched(link->b.memory, MEMORY), "the responder's memory has changed");
	must(test, !memchr_inv(link->a.memory, 0, MEMORY), "the requester's memory has changed");
	return 0;
}

/* Writes all of a region through the peer, and reads it back: [bytes] is where it should be, page by page. */
static int whole_region(struct link *link, struct ib_mr *region, struct scatterlist *list, int count, unsigned int skip)
{
	u32 done, part, at = 0, length = region->length;
	struct test *test = link->test;
	struct scatterlist *entry;
	int i;

	for (done = 0; done < length; done += part) {
		part = min_t(u32, length - done, MEMORY);
		pattern_fill(link->a.memory, part, done);
		try(access(link, IB_WR_RDMA_WRITE, region->iova + done, part, region->rkey, IB_WC_SUCCESS));
	}
	/* What has come, through the kernel's own addresses. */
	{
		u8 *bytes = kvmalloc(length, GFP_KERNEL);
		int failed = 0;

		must(test, bytes, "no memory");
		for_each_sg(list, entry, count, i) {
			u32 from = i ? 0 : skip, size = entry->length - from;

			if (at + size > length)
				size = length - at;
			memcpy(bytes + at, sg_virt(entry) + from, size);
			at += size;
		}
		if (at != length)
			failed = row_fails(test, "%u bytes in the list, %u in the region", at, length);
		for (done = 0; done < length && !failed; done += part) {
			part = min_t(u32, length - done, MEMORY);
			if (!pattern_is(bytes + done, part, done))
				failed = row_fails(test, "other bytes behind %u", done);
		}
		kvfree(bytes);
		if (failed)
			return -1;
	}
	for (done = 0; done < length; done += part) {
		part = min_t(u32, length - done, MEMORY);
		memset(link->a.memory, UNTOUCHED, MEMORY);
		try(access(link, IB_WR_RDMA_READ, region->iova + done, part, region->rkey, IB_WC_SUCCESS));
		must(test, pattern_is(link->a.memory, part, done), "other bytes are read behind %u", done);
	}
	return 0;
}

struct mapping {
	/* Of each entry; its offset in memory of its own. */
	unsigned int entries;
	unsigned int order;
	unsigned int first_offset;
	unsigned int last_length;
	/* Which entry ends early, so that there is a gap behind it; none if 0. */
	unsigned int gap;
	/* Bytes to be left out at the start. */
	unsigned int skip;
	unsigned int page_size;
	/* Of the region; so many pages as the entries have, if it is 0. */
	unsigned int pages;
	unsigned int mapped;
	/* Pieces with gaps between them (IB_MR_TYPE_SG_GAPS); those of odd addresses and lengths. */
	bool has_gaps;
	bool is_odd;
};

static const struct mapping mappings[] = {
	{ .entries = 1, .page_size = PAGE_SIZE, .mapped = 1 },
	{ .entries = 1, .page_size = PAGE_SIZE, .first_offset = 123, .last_length = 1000, .mapped = 1 },
	{ .entries = 4, .page_size = PAGE_SIZE, .first_offset = 4000, .last_length = 5, .mapped = 4 },
	{ .entries = 4, .page_size = PAGE_SIZE, .skip = 777, .mapped = 4 },
	{ .entries = 4, .page_size = PAGE_SIZE, .first_offset = 100, .skip = 300, .last_length = 99, .mapped = 4 },
	{ .entries = 5, .order = 2, .page_size = PAGE_SIZE, .first_offset = 8, .last_length = 9000, .mapped = 5 },
	{ .entries = 5, .page_size = PAGE_SIZE, .gap = 2, .mapped = 3 },
	{ .entries = 8, .page_size = PAGE_SIZE, .pages = 5, .mapped = 5 },
	{ .entries = 1, .order = 4, .page_size = SZ_64K, .mapped = 1 },
	{ .entries = 6, .order = 4, .page_size = SZ_64K, .first_offset = 5000, .last_length = 40001, .mapped = 6 },
	{ .entries = 4, .order = 4, .page_size = SZ_64K, .gap = 1, .mapped = 2 },
	{ .entries = 2, .order = 9, .page_size = SZ_2M, .first_offset = 70000, .last_length = 100001, .mapped = 2 },
	/* As many as the device has: .pages is filled in. */
	{ .entries = 0, .page_size = PAGE_SIZE },
	{ .entries = 5, .page_size = PAGE_SIZE, .gap = 2, .mapped = 5, .has_gaps = true },
	{ .entries = 9, .page_size = PAGE_SIZE, .skip = 33, .mapped = 9, .has_gaps = true, .is_odd = true },
	{ .entries = 8, .page_size = PAGE_SIZE, .pages = 5, .mapped = 5, .has_gaps = true, .is_odd = true },
	{ .entries = 0, .page_size = PAGE_SIZE, .has_gaps = true, .is_odd = true },
};

static int map_list(struct link *link, const struct mapping *mapping, unsigned int entries, struct scatterlist *list)
{
	unsigned int size = PAGE_SIZE << mapping->order, skip = mapping->skip;
	unsigned int wanted = mapping->mapped ?: entries;
	struct test *test = link->test;
	struct ib_mr *region;
	u64 length = 0;
	int i, count;

	sg_init_table(list, entries);
	for (i = 0; i < entries; i++) {
		unsigned int from = i ? 0 : mapping->first_offset, to = size;
		u8 *memory = memory_new(test, mapping->order);

		must(test, memory, "no memory of %u bytes", size);
		if (i + 1 == entries && mapping->last_length)
			to = from + mapping->last_length;
		if (mapping->gap && i == mapping->gap)
			to -= 1000;
		if (mapping->is_odd) {
			from = 1 + 5 * (i % 100);
			to = size - 2 * (i % 77);
		}
		sg_set_buf(&list[i], memory + from, to - from);
		sg_dma_address(&list[i]) = 0;
	}
	count = ib_dma_map_sg(test->device, list, entries, DMA_BIDIRECTIONAL);
	must(test, count == entries, "ib_dma_map_sg: %d", count);
	for (i = 0; i < wanted; i++)
		length += list[i].length;
	length -= mapping->skip;

	region = region_new_of(link, mapping->has_gaps ? IB_MR_TYPE_SG_GAPS : IB_MR_TYPE_MEM_REG,
			       mapping->pages ?: entries * size / mapping->page_size);
	if (!region)
		return -1;
	count = ib_map_mr_sg(region, list, entries, mapping->skip ? &skip : NULL, mapping->page_size);
	must(test, count == wanted, "%d of %u entries are mapped, expected %u", count, entries, wanted);
	must(test, region->length == length, "%llu bytes are mapped, expected %llu", region->length, length);
	must(test, region->iova == sg_dma_address(list) + mapping->skip, "the region starts at %#llx", region->iova);
	try(region_register(&link->b, region, ALL_RIGHTS, FROM_TASK));
	try(whole_region(link, region, list, wanted, mapping->skip));
	for (i = wanted; i < entries; i++)
		must(test, untouched(sg_virt(&list[i]), list[i].length), "bytes in what was not mapped");
	/* It can be used again, with other pages. */
	try(region_invalidate(&link->b, region->rkey, FROM_TASK));
	count = ib_map_mr_sg(region, list, 1, NULL, mapping->page_size);
	must(test, count == 1, "%d of one entry", count);
	try(region_register(&link->b, region, ALL_RIGHTS, FROM_TASK));
	try(access(link, IB_WR_RDMA_READ, region->iova, 1, region->rkey, IB_WC_SUCCESS));
	return access_fails(link, IB_WR_RDMA_WRITE, region->iova + region->length, 1, region->rkey);
}

static int map(struct test *test, const struct row *row)
{
	const struct mapping *mapping = &mappings[row->first];
	const struct link_shape shape = {};
	unsigned int entries = mapping->entries ?: test->device->attrs.max_fast_reg_page_list_len;
	struct link *link = link_make(test, &shape);
	struct scatterlist *list;
	int failed;

	if (!link)
		return -1;
	list = kvcalloc(entries, sizeof(*list), GFP_KERNEL);
	must(test, list, "no memory");
	failed = map_list(link, mapping, entries, list);
	if (list->length)
		ib_dma_unmap_sg(test->device, list, entries, DMA_BIDIRECTIONAL);
	kvfree(list);
	return failed;
}

/* A device that does not say that it can do this refuses it. */
static int map_with_gaps(struct test *test, const struct row *row)
{
	const struct link_shape shape = {};
	struct ib_mr *region;
	struct link *link;

	if (test->device->attrs.kernel_cap_flags & IBK_SG_GAPS_REG)
		return map(test, row);
	link = link_make(test, &shape);
	if (!link)
		return -1;
	region = ib_alloc_mr(link->pd, IB_MR_TYPE_SG_GAPS, 1);
	must(test, IS_ERR(region), "there is such a region");
	return 0;
}

/* As NFS does: the region gets another address once it is mapped, and peers use that. */
static int other_start(struct test *test, const struct row *row)
{
	const struct link_shape shape = {};
	struct link *link = link_make(test, &shape);
	struct ib_mr *region;
	u64 start;

	if (!link)
		return -1;
	region = region_new(link, 1 << MEMORY_ORDER);
	if (!region)
		return -1;
	try(region_map_side(&link->b, region, 700, 50000));
	start = region->iova;
	region->iova = (start & 0xffffffff) | 0x1234ULL << 32;
	try(region_register(&link->b, region, ALL_RIGHTS, row->first));
	pattern_fill(link->a.memory, 50000, 8);
	try(access(link, IB_WR_RDMA_WRITE, region->iova, 50000, region->rkey, IB_WC_SUCCESS));
	must(test, pattern_is(link->b.memory + 700, 50000, 8), "other bytes");
	must(test, untouched(link->b.memory, 700) && untouched(link->b.memory + 50700, MEMORY - 50700), "bytes around it");
	memset(link->a.memory, 0, MEMORY);
	try(access(link, IB_WR_RDMA_READ, region->iova + 10000, 40000, region->rkey, IB_WC_SUCCESS));
	must(test, !memcmp(link->a.memory, link->b.memory + 10700, 40000), "other bytes are read");
	return access_fails(link, IB_WR_RDMA_WRITE, start, 8, region->rkey);
}

static int too_many(struct test *test, const struct row *row)
{
	const struct link_shape shape = {};
	struct link *link = link_make(test, &shape);
	struct ib_mr *region;

	if (!link)
		return -1;
	region = ib_alloc_mr(link->pd, IB_MR_TYPE_MEM_REG, test->device->attrs.max_fast_reg_page_list_len + 1);
	if (!IS_ERR(region)) {
		ib_dereg_mr(region);
		return row_fails(test, "more pages than the device says");
	}
	return 0;
}

/* --- Rights ----------------------------------------------------------------------------------- */

/* Each operation upon a region with those rights. */
static int rights(struct test *test, const struct row *row)
{
	static const struct {
		enum ib_wr_opcode opcode;
		int needs;
	} uses[] = {
		{ IB_WR_RDMA_WRITE, IB_ACCESS_REMOTE_WRITE },
		{ IB_WR_RDMA_READ, IB_ACCESS_REMOTE_READ },
		{ IB_WR_ATOMIC_FETCH_AND_ADD, IB_ACCESS_REMOTE_ATOMIC },
	};
	const struct link_shape shape = { .rights = row->first, .has_no_rights = true };
	struct link *link;
	int i;

	for (i = 0; i < ARRAY_SIZE(uses); i++) {
		link = link_make(test, &shape);
		if (!link)
			return -1;
		if (row->first & uses[i].needs)
			try(access(link, uses[i].opcode, link->b.address, 8, link->b.region->rkey, IB_WC_SUCCESS));
		else
			try(access_fails(link, uses[i].opcode, link->b.address, 8, link->b.region->rkey));
		link_free(link);
	}
	return 0;
}

/* By its local key: a SEND out of a region without rights, a receive into one that cannot be written. */
static int local_rights(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .rights = IB_ACCESS_REMOTE_READ };
	struct link *link = link_make(test, &shape);
	struct request *sending, *receiving;
	struct ib_sge piece, receive_piece;
	struct ib_recv_wr receive;
	struct ib_send_wr send;

	if (!link)
		return -1;
	sending = request_new(link);
	receiving = request_new(link);
	pattern_fill(link->b.memory, 1000, 3);
	piece = piece_of(&link->b, 0, 1000);
	piece.lkey = link->b.region->lkey;
	try(post_receive(&link->a, FROM_TASK, receiving, 0, 1000));
	try(post_sends(&link->b, FROM_TASK, send_of(&send, sending, IB_WR_SEND, &piece, 1)));
	try(send_ends(&link->b, sending, IB_WC_SEND));
	try(receive_ends(&link->a, receiving, IB_WC_RECV, 1000, 0, 0));
	must(test, pattern_is(link->a.memory, 1000, 3), "other bytes");

	sending = request_new(link);
	receiving = request_new(link);
	receive_piece = piece;
	receive = (struct ib_recv_wr) { .wr_cqe = &receiving->cqe, .sg_list = &receive_piece, .num_sge = 1 };
	piece = piece_of(&link->a, 2000, 1000);
	try(post_receives(&link->b, FROM_TASK, &receive));
	try(post_sends(&link->a, FROM_TASK, send_of(&send, sending, IB_WR_SEND, &piece, 1)));
	try(request_ends(&link->a, sending, IB_WC_REM_OP_ERR));
	try(request_ends(&link->b, receiving, IB_WC_LOC_PROT_ERR));
	must(test, pattern_is(link->b.memory, 1000, 3), "memory has changed");
	must(test, qp_state(&link->a) == IB_QPS_ERR && qp_state(&link->b) == IB_QPS_ERR, "states %d and %d",
	     qp_state(&link->a), qp_state(&link->b));
	return 0;
}

enum bounds { ONE_BEFORE, ONE_BEHIND, ONE_LONGER, FAR_BEHIND, WRAPS };

static int bounds(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .rights = ALL_RIGHTS };
	struct link *link = link_make(test, &shape);
	u64 address;
	u32 length = 16;

	if (!link)
		return -1;
	address = link->b.address;
	switch (row->first) {
	case ONE_BEFORE:
		address -= 1;
		break;
	case ONE_BEHIND:
		address += MEMORY;
		length = 1;
		break;
	case ONE_LONGER:
		address += MEMORY - 15;
		break;
	case FAR_BEHIND:
		address += 1ULL << 40;
		break;
	case WRAPS:
		address = -8ULL;
		break;
	}
	try(access(link, IB_WR_RDMA_WRITE, link->b.address + MEMORY - 16, 16, link->b.region->rkey, IB_WC_SUCCESS));
	return access_fails(link, row->second, address, length, link->b.region->rkey);
}

/* --- Keys ------------------------------------------------------------------------------------- */

/* A region that is registered again: by its new key only. */
static int keys(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .rights = ALL_RIGHTS };
	struct link *link = link_make(test, &shape);
	struct ib_mr *region;
	u32 old;
	int i;

	if (!link)
		return -1;
	region = link->b.region;
	for (i = 0; i < 3; i++) {
		old = region->rkey;
		try(access(link, IB_WR_RDMA_WRITE, link->b.address, 100, region->rkey, IB_WC_SUCCESS));
		try(region_invalidate(&link->b, region->rkey, FROM_TASK));
		/* Register_and_update: the low byte alone. */
		try(region_register(&link->b, region, ALL_RIGHTS, FROM_TASK));
		must(test, region->rkey != old && (region->rkey ^ old) < 256, "key %#x after %#x", region->rkey, old);
		must(test, region->lkey == region->rkey, "keys %#x and %#x", region->lkey, region->rkey);
	}
	ib_update_fast_reg_key(region, ib_inc_rkey(region->rkey));
	old = region->rkey;
	/* That key is not registered. */
	return access_fails(link, IB_WR_RDMA_WRITE, link->b.address, 100, old);
}

static int old_key(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .rights = ALL_RIGHTS };
	struct link *link = link_make(test, &shape);
	u32 old;

	if (!link)
		return -1;
	old = link->b.region->rkey;
	try(region_invalidate(&link->b, old, FROM_TASK));
	try(region_register(&link->b, link->b.region, ALL_RIGHTS, FROM_TASK));
	try(access(link, IB_WR_RDMA_READ, link->b.address, 100, link->b.region->rkey, IB_WC_SUCCESS));
	return access_fails(link, row->first, link->b.address, 100, old);
}

static int invalidated(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .rights = ALL_RIGHTS };
	struct link *link = link_make(test, &shape);

	if (!link)
		return -1;
	try(region_invalidate(&link->b, link->b.region->rkey, row->second));
	return access_fails(link, row->first, link->b.address, 8, link->b.region->rkey);
}

static int invalidated_by_peer(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .rights = ALL_RIGHTS };
	struct link *link = link_make(test, &shape);
	struct request *sending, *receiving;
	struct ib_sge piece;
	struct ib_send_wr send;
	u32 key;

	if (!link)
		return -1;
	key = link->b.region->rkey;
	sending = request_new(link);
	receiving = request_new(link);
	piece = piece_of(&link->a, 0, 10);
	send_of(&send, sending, IB_WR_SEND_WITH_INV, &piece, 1)->ex.invalidate_rkey = key;
	try(post_receive(&link->b, FROM_TASK, receiving, 0, 100));
	try(post_sends(&link->a, FROM_TASK, &send));
	try(receive_ends(&link->b, receiving, IB_WC_RECV, 10, IB_WC_WITH_INVALIDATE, key));
	try(send_ends(&link->a, sending, IB_WC_SEND));
	return access_fails(link, row->first, link->b.address, 8, key);
}

enum not_invalidated { UNKNOWN_KEY, NO_REMOTE_RIGHT };

/* A SEND that is to invalidate what is no key of the peer's, or one that the peer has no right by. */
static int invalidate_nothing(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .rights = row->first == UNKNOWN_KEY ? ALL_RIGHTS : IB_ACCESS_LOCAL_WRITE };
	struct link *link = link_make(test, &shape);
	struct request *sending, *receiving;
	struct ib_sge piece;
	struct ib_send_wr send;
	u32 key;

	if (!link)
		return -1;
	key = row->first == UNKNOWN_KEY ? ib_inc_rkey(link->b.region->rkey) : link->b.region->rkey;
	sending = request_new(link);
	receiving = request_new(link);
	piece = piece_of(&link->a, 0, 10);
	send_of(&send, sending, IB_WR_SEND_WITH_INV, &piece, 1)->ex.invalidate_rkey = key;
	try(post_receive(&link->b, FROM_TASK, receiving, 0, 100));
	try(post_sends(&link->a, FROM_TASK, &send));
	try(request_ends(&link->a, sending, IB_WC_REM_ACCESS_ERR));
	return request_ends(&link->b, receiving, IB_WC_REM_INV_REQ_ERR);
}

enum mistake { VALID, OTHER_DOMAIN, OTHER_INDEX, FLUSH_PERSISTENT, INVALIDATE_OTHER_KEY, DMA_KEY };

/* Registrations and invalidations that must fail, and take the queue pair to the error state. */
static int mistakes(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .rights = ALL_RIGHTS };
	struct link *link = link_make(test, &shape), *other = NULL;
	struct request *request, *behind;
	struct ib_reg_wr registration = {};
	struct ib_send_wr invalidation, send, *wr;
	struct ib_mr *region, *second;
	struct ib_sge piece;
	u32 key;

	if (!link)
		return -1;
	request = request_new(link);
	behind = request_new(link);
	region = link->b.region;
	wr = registration_of(&registration, request, region, ALL_RIGHTS);
	switch (row->first) {
	case VALID:
		registration.key = ib_inc_rkey(region->rkey);
		break;
	case OTHER_DOMAIN:
		other = link_make(test, &shape);
		if (!other)
			return -1;
		try(region_invalidate(&other->b, other->b.region->rkey, FROM_TASK));
		registration.mr = other->b.region;
		registration.key = other->b.region->rkey;
		break;
	case OTHER_INDEX:
		second = region_new(link, 1);
		if (!second)
			return -1;
		try(region_map_side(&link->b, second, 0, PAGE_SIZE));
		registration.mr = second;
		break;
	case FLUSH_PERSISTENT:
		second = region_new(link, 1);
		if (!second)
			return -1;
		try(region_map_side(&link->b, second, 0, PAGE_SIZE));
		/* The other kind of FLUSH is a right like any other. */
		try(region_register(&link->b, second, ALL_RIGHTS | IB_ACCESS_FLUSH_GLOBAL, FROM_TASK));
		try(region_invalidate(&link->b, second->rkey, FROM_TASK));
		registration.mr = second;
		registration.key = second->rkey;
		registration.access |= IB_ACCESS_FLUSH_PERSISTENT;
		break;
	case INVALIDATE_OTHER_KEY:
		wr = invalidation_of(&invalidation, request, ib_inc_rkey(region->rkey));
		break;
	case DMA_KEY:
		wr = invalidation_of(&invalidation, request, link->pd->local_dma_lkey);
		break;
	}
	piece = piece_of(&link->b, 0, 10);
	wr->next = send_of(&send, behind, IB_WR_SEND, &piece, 1);
	key = region->rkey;
	try(post_sends(&link->b, FROM_TASK, wr));
	try(request_ends(&link->b, request, IB_WC_MW_BIND_ERR));
	try(request_ends(&link->b, behind, IB_WC_WR_FLUSH_ERR));
	must(test, request->order < behind->order, "out of order");
	must(test, qp_state(&link->b) == IB_QPS_ERR, "the state is %d", qp_state(&link->b));
	must(test, region->rkey == key, "the key has changed");
	return 0;
}

/* Whether that is an error is left open; but there is nothing that the key leads to. */
static int no_pages(struct test *test, const struct row *row)
{
	const struct link_shape shape = {};
	struct link *link = link_make(test, &shape);
	struct request *request;
	struct ib_reg_wr registration = {};
	struct ib_mr *region;

	if (!link)
		return -1;
	region = region_new(link, 1);
	if (!region)
		return -1;
	request = request_new(link);
	try(post_sends(&link->b, FROM_TASK, registration_of(&registration, request, region, ALL_RIGHTS)));
	must(test, wait_on(&link->b, atomic_read_acquire(&request->times)), "no completion");
	if (request->wc.status != IB_WC_SUCCESS)
		return request_ends(&link->b, request, IB_WC_MW_BIND_ERR);
	return access_fails(link, IB_WR_RDMA_READ, region->iova, 1, region->rkey);
}

/* Requests of a chain. */
#define CHAIN 3

/* REG_MR, SEND out of the region, LOCAL_INV in one list; the first two with these flags. */
static int chain_post(struct link *link, enum context context, struct ib_mr *region, struct request *requests,
		      unsigned int at, u32 length, int flags)
{
	struct ib_send_wr send, invalidation;
	struct ib_reg_wr registration = {};
	struct ib_sge piece;

	try(region_map_side(&link->a, region, at, length));
	ib_update_fast_reg_key(region, ib_inc_rkey(region->rkey));
	piece = (struct ib_sge) { .addr = region->iova, .length = length, .lkey = region->lkey };
	registration_of(&registration, &requests[0], region, IB_ACCESS_LOCAL_WRITE)->send_flags = flags;
	send_of(&send, &requests[1], IB_WR_SEND, &piece, 1)->send_flags = flags;
	invalidation_of(&invalidation, &requests[2], region->lkey);
	registration.wr.next = &send;
	send.next = &invalidation;
	return post_sends(&link->a, context, &registration.wr);
}

/* As storage does it: the last one is signaled. */
static int chain(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .queue = row->second };
	struct link *link = link_make(test, &shape);
	struct request *sends, *receiving;
	struct ib_mr *region;
	int i;

	if (!link)
		return -1;
	region = region_new(link, 1 << MEMORY_ORDER);
	if (!region)
		return -1;
	for (i = 0; i < 20; i++) {
		u32 length = 10000 + i, at = 50 * i;

		sends = requests_new(link, CHAIN);
		receiving = request_new(link);
		pattern_fill(link->a.memory + at, length, i);
		memset(link->b.memory, UNTOUCHED, MEMORY);
		try(post_receive(&link->b, row->first, receiving, 0, MEMORY));
		try(chain_post(link, row->first, region, sends, at, length, 0));
		try(send_ends(&link->a, &sends[2], IB_WC_LOCAL_INV));
		try(receive_ends(&link->b, receiving, IB_WC_RECV, length, 0, 0));
		must(test, pattern_is(link->b.memory, length, i), "other bytes");
		must(test, !atomic_read(&sends[0].times) && !atomic_read(&sends[1].times),
		     "an unsignaled request completes");
	}
	return 0;
}

/*
 * The peer has no receive, so the SEND is repeated. Each time its bytes are read from the region, which is
 * not invalid before it has arrived.
 */
static int chain_not_ready(struct test *test, const struct row *row)
{
	const struct link_shape shape = {};
	struct link *link = link_make(test, &shape);
	struct request *sends, *receiving;
	struct ib_mr *region;

	if (!link)
		return -1;
	region = region_new(link, 1 << MEMORY_ORDER);
	if (!region)
		return -1;
	sends = requests_new(link, CHAIN);
	receiving = request_new(link);
	pattern_fill(link->a.memory, 10000, 7);
	try(chain_post(link, FROM_TASK, region, sends, 0, 10000, IB_SEND_SIGNALED));
	msleep(30);
	try(post_receive(&link->b, FROM_TASK, receiving, 0, MEMORY));
	try(send_ends(&link->a, &sends[0], IB_WC_REG_MR));
	try(send_ends(&link->a, &sends[1], IB_WC_SEND));
	try(send_ends(&link->a, &sends[2], IB_WC_LOCAL_INV));
	try(receive_ends(&link->b, receiving, IB_WC_RECV, 10000, 0, 0));
	must(test, pattern_is(link->b.memory, 10000, 7), "other bytes");
	return 0;
}

/* As an NVMe host has it: the peer writes to a region whose key came by a SEND, and invalidates it with its answer. */
static int storage_read(struct test *test, const struct row *row)
{
	const struct link_shape shape = { .queue = row->second };
	struct link *link = link_make(test, &shape);
	struct request *registering, *sending, *receiving, *writing, *answering, *answered;
	struct ib_send_wr send, answer;
	struct ib_reg_wr registration = {};
	struct ib_rdma_wr write = {};
	struct ib_sge command, data, status;
	struct ib_mr *region;
	int i;

	if (!link)
		return -1;
	region = region_new(link, 1 << MEMORY_ORDER);
	if (!region)
		return -1;
	for (i = 0; i < 20; i++) {
		registering = request_new(link);
		sending = request_new(link);
		receiving = request_new(link);
		writing = request_new(link);
		answering = request_new(link);
		answered = request_new(link);
		/* The host is side b: its region is from 4096 on, its answers come below. */
		memset(link->b.memory, UNTOUCHED, MEMORY);
		try(region_map_side(&link->b, region, 4096, 30000));
		ib_update_fast_reg_key(region, ib_inc_rkey(region->rkey));
		command = piece_of(&link->b, 64, 64);
		registration_of(&registration, registering, region, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE);
		registration.wr.send_flags = 0;
		registration.wr.next = send_of(&send, sending, IB_WR_SEND, &command, 1);
		try(post_receive(&link->a, row->first, receiving, 100000, 64));
		try(post_receive(&link->b, row->first, answered, 0, 16));
		try(post_sends(&link->b, row->first, &registration.wr));
		try(receive_ends(&link->a, receiving, IB_WC_RECV, 64, 0, 0));
		pattern_fill(link->a.memory, 30000, i);
		data = piece_of(&link->a, 0, 30000);
		status = piece_of(&link->a, 50000, 16);
		rdma_of(&write, writing, IB_WR_RDMA_WRITE, &data, 1, region->iova, region->rkey)->send_flags = 0;
		write.wr.next = send_of(&answer, answering, IB_WR_SEND_WITH_INV, &status, 1);
		answer.ex.invalidate_rkey = region->rkey;
		try(post_sends(&link->a, row->first, &write.wr));
		try(receive_ends(&link->b, answered, IB_WC_RECV, 16, IB_WC_WITH_INVALIDATE, region->rkey));
		/* Data are there before the answer. */
		must(test, pattern_is(link->b.memory + 4096, 30000, i), "other bytes");
		try(send_ends(&link->a, answering, IB_WC_SEND));
		try(send_ends(&link->b, sending, IB_WC_SEND));
		must(test, !atomic_read(&registering->times) && !atomic_read(&writing->times),
		     "an unsignaled request completes");
	}
	return 0;
}

static const struct row rows[] = {
	{ "map a page", map, 0 },
	{ "map a part of a page", map, 1 },
	{ "map four pages, parts at both ends", map, 2 },
	{ "map four pages from an offset on", map, 3 },
	{ "map four pages, parts at both ends, from an offset on", map, 4 },
	{ "map entries of four pages", map, 5 },
	{ "map up to a gap", map, 6 },
	{ "map as many pages as there is room for", map, 7 },
	{ "map a page of 64 KiB", map, 8 },
	{ "map pages of 64 KiB, parts at both ends", map, 9 },
	{ "map pages of 64 KiB up to a gap", map, 10 },
	{ "map pages of 2 MiB, parts at both ends", map, 11 },
	{ "map as many pages as the device has", map, 12 },
	{ "map over a gap", map_with_gaps, 13 },
	{ "map pieces of odd addresses and lengths, from an offset on", map_with_gaps, 14 },
	{ "map as many pieces with gaps as there is room for", map_with_gaps, 15 },
	{ "map as many pieces with gaps as the device has", map_with_gaps, 16 },
	{ "a mapped region gets another address", other_start, FROM_TASK },
	{ "a region of more pages than the device has", too_many },
	{ "a region with no right", rights, 0 },
	{ "a region with LOCAL_WRITE", rights, IB_ACCESS_LOCAL_WRITE },
	{ "a region with REMOTE_READ", rights, IB_ACCESS_REMOTE_READ },
	{ "a region with REMOTE_WRITE", rights, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE },
	{ "a region with REMOTE_ATOMIC", rights, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_ATOMIC },
	{ "a region with all rights", rights, ALL_RIGHTS },
	{ "a region's local key", local_rights },
	{ "WRITE before the region", bounds, ONE_BEFORE, IB_WR_RDMA_WRITE },
	{ "WRITE behind the region", bounds, ONE_BEHIND, IB_WR_RDMA_WRITE },
	{ "WRITE beyond the region", bounds, ONE_LONGER, IB_WR_RDMA_WRITE },
	{ "WRITE far behind the region", bounds, FAR_BEHIND, IB_WR_RDMA_WRITE },
	{ "WRITE around the end of all addresses", bounds, WRAPS, IB_WR_RDMA_WRITE },
	{ "READ before the region", bounds, ONE_BEFORE, IB_WR_RDMA_READ },
	{ "READ beyond the region", bounds, ONE_LONGER, IB_WR_RDMA_READ },
	{ "READ around the end of all addresses", bounds, WRAPS, IB_WR_RDMA_READ },
	{ "a key that is updated", keys },
	{ "WRITE with an old key", old_key, IB_WR_RDMA_WRITE },
	{ "READ with an old key", old_key, IB_WR_RDMA_READ },
	{ "WRITE after LOCAL_INV", invalidated, IB_WR_RDMA_WRITE, FROM_TASK },
	{ "READ after LOCAL_INV from softirq", invalidated, IB_WR_RDMA_READ, FROM_SOFTIRQ },
	{ "fetch and add after LOCAL_INV from a hard interrupt", invalidated, IB_WR_ATOMIC_FETCH_AND_ADD, FROM_HARDIRQ },
	{ "WRITE after SEND with invalidate", invalidated_by_peer, IB_WR_RDMA_WRITE },
	{ "READ after SEND with invalidate", invalidated_by_peer, IB_WR_RDMA_READ },
	{ "SEND that invalidates an unknown key", invalidate_nothing, UNKNOWN_KEY },
	{ "SEND that invalidates a region with LOCAL_WRITE", invalidate_nothing, NO_REMOTE_RIGHT },
	{ "REG_MR of a valid region", mistakes, VALID },
	{ "REG_MR of another protection domain's region", mistakes, OTHER_DOMAIN },
	{ "REG_MR with another region's key", mistakes, OTHER_INDEX },
	{ "REG_MR with IB_ACCESS_FLUSH_PERSISTENT", mistakes, FLUSH_PERSISTENT },
	{ "REG_MR of a region without pages", no_pages },
	{ "LOCAL_INV of an unknown key", mistakes, INVALIDATE_OTHER_KEY },
	{ "LOCAL_INV of the local DMA key", mistakes, DMA_KEY },
	{ "REG_MR, SEND, LOCAL_INV in a list, from a task, IB_POLL_DIRECT", chain, FROM_TASK, QUEUE_DIRECT },
	{ "REG_MR, SEND, LOCAL_INV in a list, from softirq, IB_POLL_SOFTIRQ", chain, FROM_SOFTIRQ, QUEUE_SOFTIRQ },
	{
		"REG_MR, SEND, LOCAL_INV in a list, from a hard interrupt, shared queue", chain, FROM_HARDIRQ,
		QUEUE_SHARED_WORKQUEUE
	},
	{ "REG_MR, SEND, LOCAL_INV in a list, to a peer that is not ready", chain_not_ready },
	{
		"WRITE and SEND with invalidate in a list, from a task, IB_POLL_WORKQUEUE", storage_read, FROM_TASK,
		QUEUE_WORKQUEUE
	},
	{
		"WRITE and SEND with invalidate in a list, from under an irqsave lock, IB_POLL_SOFTIRQ", storage_read,
		FROM_IRQS_OFF, QUEUE_SOFTIRQ
	},
};

const struct rows memory_rows = { rows, ARRAY_SIZE(rows) };
