// SPDX-License-Identifier: GPL-2.0
/*
 * Extended reliable connections (IBTA annex A14): each request of an initiator names the XRC SRQ that takes it. librxe
 * knows nothing of them, so the test gives commands to the kernel itself, and writes into the rings.
 *
 *	-l	the network is lossy: leave out what is refused, by a NAK that is sent once
 *
 * Test: XRC: messages, whose memory, shared targets, refusals
 */

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#include "command.h"
#include "test.h"
#include "xrc.h"

#define SIZE (64 * 1024)
#define LENGTH 9000
#define DEPTH 64
#define WAIT_MS 20000
#define MESSAGES 400

/* The one whose SRQs these are, and the one that asks: another one, or the same. */
static struct device *const b = &devices[1], *a;
static struct ibv_cq *send_cq, *send_cqs[2], *recv_cqs[2];
/* Of b: each SRQ has its own. */
static struct ibv_pd *pds[2];
/* What each device sends or reads into, and that of a; where b receives; what peers may use of b, in the domain of each
 * SRQ.
 */
static struct region sources[2], source, places[2], windows[2];
/* The file that stands for the domain in other processes. */
static int domain_file;

static void must(int error, const char *what)
{
	if (error)
		die("%s: %s", what, strerror(error));
}

static uint32_t domain_open(const struct device *device, int file)
{
	uint32_t domain;

	must(xrc_domain_open(device->context, file, O_CREAT, &domain), "open_xrcd");
	return domain;
}

static void domain_close(const struct device *device, uint32_t domain)
{
	must(xrc_domain_close(device->context, domain), "close_xrcd");
}

static void srq_make(struct xrc_srq *srq, uint32_t domain, struct ibv_pd *pd, struct ibv_cq *cq)
{
	must(xrc_srq_create(srq, domain, pd, cq, DEPTH), "create_xsrq");
}

static void srq_free(struct xrc_srq *srq)
{
	must(xrc_srq_destroy(srq), "destroy_srq");
}

static void srq_post(const struct xrc_srq *srq, uint64_t id, const struct region *place, size_t at, uint32_t length)
{
	xrc_srq_post(srq, id, place->memory + at, length, place->mr->lkey);
}

static void end_free(struct xrc_qp *end)
{
	must(xrc_qp_destroy(end), "destroy_qp");
}

static void end_ready(struct xrc_qp *end, const struct device *to, uint32_t number, uint32_t psn, uint32_t peer_psn,
		      struct patience patience)
{
	xrc_qp_ready(end, end->qp.context == a->context ? a : b, to, number, IBV_MTU_1024, patience, psn, peer_psn);
}

/* A connection to two SRQs of one domain. */
struct link {
	uint32_t domain;
	struct xrc_srq srqs[2];
	struct xrc_qp from, to;
};

static void link_make_with(struct link *link, struct patience patience)
{
	uint32_t psn = 0xffffff - random_between(0, 64);
	int i;

	link->domain = domain_open(b, domain_file);
	for (i = 0; i < 2; i++)
		srq_make(&link->srqs[i], link->domain, pds[i], recv_cqs[i]);
	must(xrc_initiator_create(&link->from, a->pd, send_cq, DEPTH), "an initiator");
	must(xrc_target_create(&link->to, b->context, link->domain), "a target");
	end_ready(&link->to, a, link->from.qp.qp_num, 7, psn, patience);
	end_ready(&link->from, b, link->to.qp.qp_num, psn, 7, patience);
}

static struct link *link_make(void)
{
	static struct link link;

	link_make_with(&link, PATIENT);
	return &link;
}

static void link_free(struct link *link)
{
	int i;

	end_free(&link->from);
	end_free(&link->to);
	for (i = 0; i < 2; i++)
		srq_free(&link->srqs[i]);
	domain_close(b, link->domain);
	cq_drain(send_cq);
	for (i = 0; i < 2; i++)
		cq_drain(recv_cqs[i]);
}

/* --- Messages --------------------------------------------------------------------------------- */

/* The next request, to be filled in: LENGTH bytes of the source, for this SRQ. */
static struct rxe_send_wqe *request(struct link *link, uint32_t srqn, enum ibv_wr_opcode opcode, uint32_t length)
{
	struct rxe_send_wqe *wqe = xrc_request(&link->from);

	wqe->wr.wr_id = opcode;
	wqe->wr.reserved = srqn;
	wqe->wr.opcode = opcode;
	wqe->wr.send_flags = IBV_SEND_SIGNALED;
	wqe->dma.length = length;
	wqe->dma.resid = length;
	wqe->dma.num_sge = 1;
	wqe->dma.sge[0] = (struct rxe_sge){
		.addr = (uintptr_t)source.memory, .length = length, .lkey = source.mr->lkey,
	};
	return wqe;
}

static void ring_doorbell(struct link *link)
{
	xrc_request_push(&link->from);
	must(xrc_doorbell(&link->from), "a doorbell");
}

static bool is_sent(enum ibv_wc_status expected)
{
	return cq_expect(send_cq, "the request", ANY_REQUEST, expected, WAIT_MS);
}

static bool is_received(struct link *link, int index, uint64_t id, enum ibv_wc_opcode opcode, uint32_t length)
{
	struct ibv_wc wc;

	if (!cq_poll(recv_cqs[index], &wc, WAIT_MS)) {
		ksft_print_msg("SRQ %d: no completion\n", index);
		return false;
	}
	if (wc.status || wc.wr_id != id || wc.opcode != opcode || wc.byte_len != length ||
	    wc.qp_num != link->to.qp.qp_num) {
		ksft_print_msg("SRQ %d: %s, wr_id %llu, opcode %d, %u bytes, QP %#x\n", index,
			       ibv_wc_status_str(wc.status), (unsigned long long)wc.wr_id, wc.opcode, wc.byte_len,
			       wc.qp_num);
		return false;
	}
	return cq_quiet(recv_cqs[!index], 1);
}

/* Memory of b that a remote operation is for, in the domain of one of the SRQs. */
static void aim(struct rxe_send_wqe *wqe, const struct region *window, size_t at)
{
	if (wqe->wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wqe->wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wqe->wr.wr.atomic.remote_addr = (uintptr_t)window->memory + at;
		wqe->wr.wr.atomic.rkey = window->mr->rkey;
	} else {
		wqe->wr.wr.rdma.remote_addr = (uintptr_t)window->memory + at;
		wqe->wr.wr.rdma.rkey = window->mr->rkey;
	}
}

/* --- Rows ------------------------------------------------------------------------------------- */

static bool run_send(int length)
{
	struct link *link = link_make();
	bool ok = true;
	int i;

	for (i = 0; i < 4 && ok; i++) {
		int index = i % 2;

		region_fill(&source);
		srq_post(&link->srqs[index], 50 + i, &places[index], 100, length + 10);
		request(link, link->srqs[index].number, IBV_WR_SEND, length);
		ring_doorbell(link);
		ok = is_received(link, index, 50 + i, IBV_WC_RECV, length) && is_sent(IBV_WC_SUCCESS);
		memcpy(places[index].expected + 100, source.memory, length);
		ok = ok && region_check(&places[0], "place 0") && region_check(&places[1], "place 1");
	}
	link_free(link);
	return ok;
}

static bool run_immediate(int opcode)
{
	struct link *link = link_make();
	bool is_write = opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct region *place = is_write ? &windows[1] : &places[1];
	struct rxe_send_wqe *wqe;
	struct ibv_wc wc = {};
	bool ok;

	region_fill(&source);
	srq_post(&link->srqs[1], 5, &places[1], 0, SIZE);
	wqe = request(link, link->srqs[1].number, opcode, LENGTH);
	if (is_write)
		aim(wqe, &windows[1], 0);
	wqe->wr.ex.imm_data = 0x12345678;
	ring_doorbell(link);
	ok = is_sent(IBV_WC_SUCCESS) && cq_poll(recv_cqs[1], &wc, WAIT_MS) && !wc.status && wc.wr_id == 5 &&
	     (wc.wc_flags & IBV_WC_WITH_IMM) && wc.imm_data == 0x12345678 && wc.byte_len == LENGTH &&
	     wc.opcode == (is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
	memcpy(place->expected, source.memory, LENGTH);
	ok = region_check(place, "the place") && ok;
	link_free(link);
	return ok;
}

static bool is_lossy;

/* WRITE, READ and ATOMICs of what the SRQ's domain lends, and of what the other's does. */
static bool run_remote(int opcode)
{
	struct link *link;
	bool ok = true, is_atomic = opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	uint32_t length = is_atomic ? 8 : LENGTH;
	int i;

	for (i = 0; i < 4 && ok; i++) {
		int named = i % 2, owner = i / 2 ? !named : named;
		struct region *window = &windows[owner];
		struct rxe_send_wqe *wqe;
		uint64_t before;

		if (is_lossy && named != owner)
			continue;
		link = link_make();
		region_fill(&source);
		memcpy(&before, window->memory + 64, sizeof(before));
		wqe = request(link, link->srqs[named].number, opcode, length);
		aim(wqe, window, 64);
		wqe->wr.wr.atomic.compare_add = is_atomic ? before : wqe->wr.wr.atomic.compare_add;
		if (is_atomic)
			wqe->wr.wr.atomic.swap = 77;
		ring_doorbell(link);
		ok = is_sent(named == owner ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
		if (named == owner && opcode == IBV_WR_RDMA_WRITE) {
			memcpy(window->expected + 64, source.memory, length);
		} else if (named == owner && opcode == IBV_WR_RDMA_READ) {
			memcpy(source.expected, window->memory + 64, length);
		} else if (named == owner) {
			uint64_t after = opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? 77 : before + before;

			memcpy(source.expected, &before, sizeof(before));
			memcpy(window->expected + 64, &after, sizeof(after));
		}
		ok = region_check(&source, "the source") && region_check(window, "the window") && ok;
		link_free(link);
	}
	return ok;
}

/* Discards the pages: a later access finds zeros. */
static void pages_drop(struct region *region)
{
	if (madvise(region->memory, region->size, MADV_DONTNEED))
		die("madvise: %s", strerror(errno));
	memset(region->expected, 0, region->size);
}

/* Memory that is paged on demand. That of one end is not there when it is needed. */
static bool is_paged(int opcode, bool of_initiator)
{
	uint32_t length = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : LENGTH;
	int access = access_of(IBV_QPT_RC) | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND;
	struct device other = *b;
	struct region window;
	struct rxe_send_wqe *wqe;
	struct link *link;
	bool ok;

	other.pd = pds[0];
	region_make(&window, &other, SIZE, access);
	region_make(&source, a, SIZE, access);
	pages_drop(of_initiator ? &source : &window);
	link = link_make();
	srq_post(&link->srqs[0], 1, &window, 0, SIZE);
	wqe = request(link, link->srqs[0].number, opcode, length);
	if (opcode != IBV_WR_SEND)
		aim(wqe, &window, 0);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wqe->wr.wr.atomic.compare_add = 1;
	ring_doorbell(link);
	ok = (opcode != IBV_WR_SEND || is_received(link, 0, 1, IBV_WC_RECV, length)) && is_sent(IBV_WC_SUCCESS);
	if (opcode == IBV_WR_RDMA_READ)
		memcpy(source.expected, window.expected, length);
	else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		window.expected[0] = 1;
	else
		memcpy(window.expected, source.memory, length);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		memset(source.expected, 0, length);
	ok = region_check(&source, "the source") && region_check(&window, "the window") && ok;
	link_free(link);
	region_free(&source);
	region_free(&window);
	return ok;
}

static bool run_paged(int opcode)
{
	return is_paged(opcode, false);
}

static bool run_paged_reader(void)
{
	return is_paged(IBV_WR_RDMA_READ, true);
}

/*
 * A key is looked up for each SRQ, also where one request comes right behind another with the same key, for the
 * same place.
 */
static bool run_same_key(void)
{
	struct link *link = link_make();
	bool ok;
	int i;

	region_fill(&source);
	for (i = 0; i < 2; i++) {
		struct rxe_send_wqe *wqe = request(link, link->srqs[i].number, IBV_WR_RDMA_WRITE, 100);

		wqe->dma.sge[0].addr += 100 * i;
		aim(wqe, &windows[0], 0);
		xrc_request_push(&link->from);
	}
	must(xrc_doorbell(&link->from), "a doorbell");
	ok = is_sent(IBV_WC_SUCCESS) && is_sent(IBV_WC_REM_ACCESS_ERR);
	memcpy(windows[0].expected, source.memory, 100);
	ok = region_check(&windows[0], "the window") && ok;
	link_free(link);
	return ok;
}

/* So it is for receives: that of the second message has the key of the first one's, in another domain. */
static bool run_other_receive(void)
{
	struct link *link = link_make();
	bool ok;
	int i;

	region_fill(&source);
	for (i = 0; i < 2; i++) {
		srq_post(&link->srqs[i], 1 + i, &places[0], 4096 * i, 100);
		request(link, link->srqs[i].number, IBV_WR_SEND, 100);
		xrc_request_push(&link->from);
	}
	must(xrc_doorbell(&link->from), "a doorbell");
	ok = is_sent(IBV_WC_SUCCESS) && is_sent(IBV_WC_REM_OP_ERR) &&
	     cq_expect(recv_cqs[0], "the first receive", 1, IBV_WC_SUCCESS, WAIT_MS) &&
	     cq_expect(recv_cqs[1], "the second receive", 2, IBV_WC_LOC_PROT_ERR, WAIT_MS);
	memcpy(places[0].expected, source.memory, 100);
	ok = region_check(&places[0], "place 0") && ok;
	link_free(link);
	return ok;
}

enum stranger { NOBODY, NUMBER_0, TOO_LARGE, OTHER_DOMAIN, DESTROYED };

/* A request for an SRQ that the target does not reach. */
static bool run_stranger(int stranger)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	uint32_t other_domain = domain_open(b, -1);
	struct xrc_srq other;
	unsigned int i;
	bool ok = true;

	srq_make(&other, other_domain, pds[0], recv_cqs[0]);
	for (i = 0; i < ARRAY_SIZE(opcodes) && ok; i++) {
		struct link *link = link_make();
		struct rxe_send_wqe *wqe;
		struct xrc_srq gone;
		uint32_t number = 0;

		switch (stranger) {
		case NOBODY:
			number = 0xfffffe;
			break;
		case NUMBER_0:
			break;
		case TOO_LARGE:
			number = link->srqs[0].number | 1 << 24;
			break;
		case OTHER_DOMAIN:
			srq_post(&other, 1, &places[0], 0, SIZE);
			number = other.number;
			break;
		case DESTROYED:
			srq_make(&gone, link->domain, pds[0], recv_cqs[0]);
			number = gone.number;
			srq_free(&gone);
			break;
		}
		srq_post(&link->srqs[0], 1, &places[0], 0, SIZE);
		wqe = request(link, number, opcodes[i], opcodes[i] == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 100);
		if (opcodes[i] != IBV_WR_SEND)
			aim(wqe, &windows[0], 0);
		ring_doorbell(link);
		ok = is_sent(stranger == TOO_LARGE ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_REM_INV_REQ_ERR) &&
		     cq_quiet(recv_cqs[0], 10) && region_check(&windows[0], "the window");
		link_free(link);
	}
	srq_free(&other);
	domain_close(b, other_domain);
	return ok;
}

/* Messages for an SRQ that is empty wait for a receive; those behind them, too. */
static bool run_not_ready(void)
{
	struct link *link = link_make();
	bool ok;

	region_fill(&source);
	srq_post(&link->srqs[1], 2, &places[1], 0, SIZE);
	request(link, link->srqs[0].number, IBV_WR_SEND, LENGTH);
	xrc_request_push(&link->from);
	request(link, link->srqs[1].number, IBV_WR_SEND, LENGTH);
	ring_doorbell(link);
	ok = cq_quiet(send_cq, 20) && cq_quiet(recv_cqs[1], 1);
	srq_post(&link->srqs[0], 1, &places[0], 0, SIZE);
	memcpy(places[0].expected, source.memory, LENGTH);
	memcpy(places[1].expected, source.memory, LENGTH);
	ok = ok && cq_expect(recv_cqs[0], "the first receive", 1, IBV_WC_SUCCESS, WAIT_MS) &&
	     cq_expect(recv_cqs[1], "the second receive", 2, IBV_WC_SUCCESS, WAIT_MS) && is_sent(IBV_WC_SUCCESS) &&
	     is_sent(IBV_WC_SUCCESS);
	ok = region_check(&places[0], "place 0") && region_check(&places[1], "place 1") && ok;
	link_free(link);
	return ok;
}

static bool run_never_ready(void)
{
	static struct link link;
	bool ok;

	link_make_with(&link, (struct patience){ .timeout = 14, .retries = 7, .rnr_retries = 1 });
	request(&link, link.srqs[0].number, IBV_WR_SEND, 100);
	ring_doorbell(&link);
	ok = is_sent(IBV_WC_RNR_RETRY_EXC_ERR);
	link_free(&link);
	return ok;
}

static bool run_too_long(void)
{
	struct link *link = link_make();
	bool ok;

	srq_post(&link->srqs[0], 9, &places[0], 0, LENGTH - 1);
	request(link, link->srqs[0].number, IBV_WR_SEND, LENGTH);
	ring_doorbell(link);
	ok = is_sent(IBV_WC_REM_INV_REQ_ERR) &&
	     cq_expect(recv_cqs[0], "the receive", 9, IBV_WC_LOC_LEN_ERR, WAIT_MS);
	/* What was placed before. */
	memcpy(places[0].expected, places[0].memory, LENGTH);
	ok = region_check(&places[0], "place 0") && ok;
	link_free(link);
	return ok;
}

static bool run_invalidate(void)
{
	struct link *link = link_make();
	struct ibv_mw *mw = ibv_alloc_mw(pds[0], IBV_MW_TYPE_2);
	struct rxe_send_wqe *wqe;
	bool ok;

	/* Nothing is bound to it: the key is none. */
	if (!mw)
		die("ibv_alloc_mw: %s", strerror(errno));
	srq_post(&link->srqs[0], 9, &places[0], 0, LENGTH);
	wqe = request(link, link->srqs[0].number, IBV_WR_SEND_WITH_INV, 100);
	wqe->wr.ex.invalidate_rkey = mw->rkey;
	ring_doorbell(link);
	ok = is_sent(IBV_WC_REM_ACCESS_ERR);
	memcpy(places[0].expected, places[0].memory, 100);
	link_free(link);
	if (ibv_dealloc_mw(mw))
		die("ibv_dealloc_mw fails");
	return ok;
}

static bool run_refused_operation(int opcode)
{
	struct link *link = link_make();
	struct rxe_send_wqe *wqe = request(link, link->srqs[0].number, opcode, 8);
	bool ok;

	aim(wqe, &windows[0], 0);
	ring_doorbell(link);
	ok = is_sent(IBV_WC_LOC_QP_OP_ERR) && region_check(&windows[0], "the window");
	link_free(link);
	return ok;
}

/* The request is refused for its SRQ number, before its key is looked at, which is wrong, too. */
static bool run_refused_invalidation(void)
{
	struct link *link = link_make();
	struct rxe_send_wqe *wqe = request(link, link->srqs[0].number | 1 << 24, IBV_WR_LOCAL_INV, 8);
	bool ok;

	wqe->wr.ex.invalidate_rkey = ~windows[0].mr->rkey;
	ring_doorbell(link);
	ok = is_sent(IBV_WC_LOC_QP_OP_ERR);
	link_free(link);
	return ok;
}

/* Messages of all lengths to both SRQs in turn, many under way. */
static bool run_many(void)
{
	struct link *link = link_make();
	unsigned int sent = 0, done = 0, received[2] = {}, posted[2] = {}, next[2] = {};
	uint32_t lengths[MESSAGES], to[MESSAGES];
	/* A place for each receive that is posted. */
	const unsigned int longest = 5000, slots = SIZE / longest;
	struct ibv_wc wc;
	bool ok = true;
	unsigned int i;
	uint64_t end = now_ms() + patience_ms(WAIT_MS);

	for (i = 0; i < MESSAGES; i++) {
		lengths[i] = random_between(0, longest);
		to[i] = random_between(0, 1);
	}
	while (ok && (done < MESSAGES || received[0] + received[1] < MESSAGES)) {
		if (now_ms() > end)
			die("%u of %d messages are sent, %u and %u are received", done, MESSAGES, received[0], received[1]);
		for (i = 0; i < 2; i++) {
			while (posted[i] - received[i] < slots) {
				srq_post(&link->srqs[i], posted[i], &places[i], posted[i] % slots * longest, longest);
				posted[i]++;
			}
			while (ibv_poll_cq(recv_cqs[i], 1, &wc) == 1) {
				while (next[i] < MESSAGES && to[next[i]] != i)
					next[i]++;
				ok = ok && !wc.status && wc.wr_id == received[i] && next[i] < MESSAGES &&
				     wc.byte_len == lengths[next[i]] &&
				     !memcmp(places[i].memory + received[i] % slots * longest,
					     source.memory + next[i], wc.byte_len);
				received[i]++;
				next[i]++;
			}
		}
		if (sent < MESSAGES && sent - done < DEPTH / 2) {
			/* Each from another place, so that each has bytes of its own. */
			request(link, link->srqs[to[sent]].number, IBV_WR_SEND, lengths[sent])->dma.sge[0].addr += sent;
			ring_doorbell(link);
			sent++;
		}
		while (ibv_poll_cq(send_cq, 1, &wc) == 1) {
			ok = ok && !wc.status;
			done++;
		}
	}
	for (i = 0; i < MESSAGES; i++)
		received[to[i]]--;
	if (received[0] || received[1])
		ksft_print_msg("messages have come to the wrong SRQ\n");
	ok = ok && !received[0] && !received[1];
	for (i = 0; i < 2; i++)
		memcpy(places[i].expected, places[i].memory, SIZE);
	link_free(link);
	return ok;
}

/* Among other events, of the target for one. */
static bool is_told(enum ibv_event_type type, const void *of)
{
	struct pollfd events = { .fd = b->context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	while (poll(&events, 1, patience_ms(WAIT_MS)) == 1 && !ibv_get_async_event(b->context, &event)) {
		if (event.event_type == IBV_EVENT_CQ_ERR)
			ibv_ack_async_event(&event);
		if (event.event_type == type && event.element.srq == of)
			return true;
	}
	ksft_print_msg("no %s\n", ibv_event_type_str(type));
	return false;
}

static bool run_limit(void)
{
	struct link *link = link_make();
	bool ok;
	int i;

	for (i = 0; i < 4; i++)
		srq_post(&link->srqs[0], i, &places[0], 0, SIZE);
	must(xrc_srq_arm(&link->srqs[0], 4), "modify_srq");
	request(link, link->srqs[0].number, IBV_WR_SEND, 10);
	ring_doorbell(link);
	ok = is_sent(IBV_WC_SUCCESS) && is_told(IBV_EVENT_SRQ_LIMIT_REACHED, &link->srqs[0]);
	memcpy(places[0].expected, places[0].memory, 10);
	link_free(link);
	return ok;
}

/* No queue pair names the CQ of an XRC SRQ; its consumer is told all the same. */
static bool run_event(void)
{
	struct link *link = link_make();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(b->context);
	struct ibv_cq *own = channel ? ibv_create_cq(b->context, DEPTH, NULL, channel, 0) : NULL, *told = NULL;
	struct pollfd events = { .events = POLLIN };
	struct xrc_srq srq;
	void *context;
	bool ok;

	if (!own)
		die("a CQ with a channel: %s", strerror(errno));
	events.fd = channel->fd;
	srq_make(&srq, link->domain, pds[0], own);
	srq_post(&srq, 3, &places[0], 0, SIZE);
	must(ibv_req_notify_cq(own, 0), "ibv_req_notify_cq");
	ok = poll(&events, 1, 0) == 0;
	region_fill(&source);
	request(link, srq.number, IBV_WR_SEND, 100);
	ring_doorbell(link);
	if (poll(&events, 1, patience_ms(WAIT_MS)) != 1) {
		ksft_print_msg("no event\n");
		ok = false;
	} else if (ibv_get_cq_event(channel, &told, &context)) {
		die("ibv_get_cq_event: %s", strerror(errno));
	}
	if (told)
		ibv_ack_cq_events(told, 1);
	ok = ok && told == own && cq_expect(own, "the receive", 3, IBV_WC_SUCCESS, WAIT_MS) && is_sent(IBV_WC_SUCCESS);
	memcpy(places[0].expected, source.memory, 100);
	ok = region_check(&places[0], "place 0") && ok;
	srq_free(&srq);
	cq_free(own);
	must(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
	link_free(link);
	return ok;
}

/* The SRQ whose ring makes no sense fails alone: the target takes requests for the other one. */
static bool run_spoilt(void)
{
	struct link *link = link_make();
	bool ok;

	link->srqs[0].ring.head->producer_index = 0x7fffffff;
	srq_post(&link->srqs[1], 3, &places[1], 0, SIZE);
	request(link, link->srqs[1].number, IBV_WR_SEND, 10);
	xrc_request_push(&link->from);
	request(link, link->srqs[0].number, IBV_WR_SEND, 10);
	ring_doorbell(link);
	ok = is_received(link, 1, 3, IBV_WC_RECV, 10) && is_sent(IBV_WC_SUCCESS) && is_sent(IBV_WC_REM_INV_REQ_ERR) &&
	     is_told(IBV_EVENT_SRQ_ERR, &link->srqs[0]);
	memcpy(places[1].expected, places[1].memory, 10);
	link_free(link);
	return ok;
}

/* A completion that finds no room. */
static bool run_overflow(void)
{
	struct link *link = link_make();
	struct ibv_cq *small = cq_make(b, 1);
	int room = small->cqe, i;
	struct xrc_srq srq;
	bool ok = true;

	srq_make(&srq, link->domain, pds[0], small);
	for (i = 0; i <= room; i++)
		srq_post(&srq, i, &places[0], 0, SIZE);
	for (i = 0; i <= room && ok; i++) {
		request(link, srq.number, IBV_WR_SEND, 10);
		ring_doorbell(link);
		ok = is_sent(IBV_WC_SUCCESS);
	}
	request(link, srq.number, IBV_WR_SEND, 10);
	ring_doorbell(link);
	ok = ok && is_sent(IBV_WC_REM_INV_REQ_ERR) && is_told(IBV_EVENT_SRQ_ERR, &srq);
	memcpy(places[0].expected, places[0].memory, 10);
	srq_free(&srq);
	cq_free(small);
	link_free(link);
	return ok;
}

/* The domain has no target of that number any more. */
static bool target_has_gone(uint32_t domain, uint32_t number)
{
	struct xrc_qp target;
	int error = xrc_target_open(&target, b->context, domain, number);

	if (!error)
		end_free(&target);
	if (error != EINVAL)
		ksft_print_msg("opening the target again: %s\n", strerror(error));
	return error == EINVAL;
}

/* Another process, with the domain of the same file: has its part of the target, and leaves. */
static int stranger_opens(uint32_t number)
{
	struct device own = *b;
	struct xrc_qp target;
	uint32_t domain;

	device_open(&own, b->name, family);
	if (xrc_domain_open(own.context, domain_file, 0, &domain))
		return 1;
	if (xrc_target_open(&target, own.context, domain, number))
		return 2;
	if (target.qp.qp_num != number || qp_state(&target.qp) != IBV_QPS_RTS)
		return 3;
	/* It may modify it, and the end of the process closes its part. */
	return 0;
}

static bool run_shared(void)
{
	struct link *link = link_make();
	uint32_t number = link->to.qp.qp_num, domain;
	struct xrc_qp second = {};
	int status = 0;
	pid_t child;
	bool ok;

	child = fork_child();
	if (!child)
		_exit(stranger_opens(number));
	ok = waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status);
	if (!ok)
		ksft_print_msg("the other process: status %#x\n", status);
	/* A second handle here; the first goes, and the target stays. */
	ok = ok && !xrc_target_open(&second, b->context, link->domain, number);
	if (ok) {
		end_free(&link->to);
		link->to = second;
		region_fill(&source);
		srq_post(&link->srqs[0], 3, &places[0], 0, SIZE);
		request(link, link->srqs[0].number, IBV_WR_SEND, LENGTH);
		ring_doorbell(link);
		ok = is_received(link, 0, 3, IBV_WC_RECV, LENGTH) && is_sent(IBV_WC_SUCCESS);
		memcpy(places[0].expected, source.memory, LENGTH);
		ok = region_check(&places[0], "place 0") && ok;
	}
	/* The same domain, which stays. */
	domain = domain_open(b, domain_file);
	link_free(link);
	/* With the last handle it has gone. */
	ok = target_has_gone(domain, number) && ok;
	domain_close(b, domain);
	return ok;
}

/* A target is no queue pair to post to, whoever asks. */
static bool run_target_posts(void)
{
	struct link *link = link_make();
	struct ib_uverbs_post_send_resp answer;
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_post_send core;
		struct ib_uverbs_send_wr wr;
	} bytes = {
		.core = {
			.response = (uintptr_t)&answer,
			.qp_handle = link->to.qp.handle,
			.wr_count = 1,
			.wqe_size = sizeof(struct ib_uverbs_send_wr),
		},
		.wr.opcode = IBV_WR_SEND,
	};
	struct ib_uverbs_post_recv_resp receive_answer;
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_post_recv core;
		struct ib_uverbs_recv_wr wr;
	} receive = {
		.core = {
			.response = (uintptr_t)&receive_answer,
			.qp_handle = link->to.qp.handle,
			.wr_count = 1,
			.wqe_size = sizeof(struct ib_uverbs_recv_wr),
		},
	};
	const int errors[] = {
		command_write(b->context, IB_USER_VERBS_CMD_POST_SEND, &bytes, sizeof(bytes), sizeof(answer)),
		command_write(b->context, IB_USER_VERBS_CMD_POST_RECV, &receive, sizeof(receive), sizeof(receive_answer)),
		xrc_doorbell(&link->to),
	};
	/* No process posts receives by command: ib_core refuses that by itself. */
	bool ok = errors[0] == EINVAL && errors[1] == EOPNOTSUPP && errors[2] == EINVAL;

	if (!ok)
		ksft_print_msg("a send: %d, a receive: %d, a doorbell: %d\n", errors[0], errors[1], errors[2]);
	link_free(link);
	return ok;
}

/* An SRQ goes while a message waits for pages of its receive: nothing of it is done any more. */
static bool run_destroyed_in_the_middle(void)
{
	struct link *link = link_make();
	uint8_t *memory = pages_make(SIZE, MAP_PRIVATE | MAP_ANONYMOUS);
	struct region place = { .memory = memory, .size = SIZE };
	struct xrc_srq srq;
	int absence;
	bool ok;

	place.mr = mr_make(pds[0], memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	srq_make(&srq, link->domain, pds[0], recv_cqs[0]);
	srq_post(&srq, 7, &place, 0, SIZE);
	absence = absence_begin(memory, SIZE);
	request(link, srq.number, IBV_WR_SEND, LENGTH);
	ring_doorbell(link);
	absence_noticed(absence);
	srq_free(&srq);
	close(absence);
	ok = is_sent(IBV_WC_REM_INV_REQ_ERR) && cq_quiet(recv_cqs[0], 20);
	link_free(link);
	if (ibv_dereg_mr(place.mr) || munmap(memory, SIZE))
		die("the memory cannot be freed");
	return ok;
}

/* What is in use stays. */
static bool run_busy_domain(void)
{
	struct link *link = link_make();
	bool ok = xrc_domain_close(b->context, link->domain) == EBUSY;

	link_free(link);
	return ok;
}

#define SHARERS 8
#define EACH 20

/* What processes tell each other. */
struct shared {
	uint32_t target;
	volatile uint32_t numbers[SHARERS];
};

/* Has an SRQ of the domain, and its part of the target; takes EACH messages, whose bytes say who they are for. */
static int sharer(struct shared *shared, int index)
{
	struct region place;
	struct xrc_qp target;
	struct ibv_cq *cq;
	uint32_t domain;
	struct xrc_srq srq;
	struct ibv_wc wc;
	int i;

	device_open(b, b->name, family);
	cq = cq_make(b, EACH);
	region_make(&place, b, SIZE, IBV_ACCESS_LOCAL_WRITE);
	domain = domain_open(b, domain_file);
	srq_make(&srq, domain, b->pd, cq);
	if (xrc_target_open(&target, b->context, domain, shared->target))
		return 2;
	for (i = 0; i < EACH; i++)
		srq_post(&srq, i, &place, 1000 * i, 1000);
	shared->numbers[index] = srq.number;
	for (i = 0; i < EACH; i++) {
		if (!cq_poll(cq, &wc, WAIT_MS) || wc.status || wc.wr_id != (uint64_t)i || wc.byte_len != 500)
			return 3;
		if (place.memory[1000 * i] != index || place.memory[1000 * i + 499] != index)
			return 4;
	}
	if (index)
		return 0;
	/* The first one is killed. */
	pause();
	return 5;
}

static bool run_sharers(void)
{
	struct link *link = link_make();
	struct shared *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t late = now_ms() + patience_ms(WAIT_MS);
	pid_t children[SHARERS];
	int i, status;
	bool ok = true;

	shared->target = link->to.qp.qp_num;
	for (i = 0; i < SHARERS; i++) {
		children[i] = fork_child();
		if (!children[i])
			_exit(sharer(shared, i));
	}
	for (i = 0; i < SHARERS; i++) {
		while (!shared->numbers[i] && now_ms() < late)
			usleep(1000);
	}
	for (i = 0; i < SHARERS * EACH && ok; i++) {
		memset(source.memory, i % SHARERS, 500);
		request(link, shared->numbers[i % SHARERS], IBV_WR_SEND, 500);
		ring_doorbell(link);
		ok = is_sent(IBV_WC_SUCCESS);
	}
	memcpy(source.expected, source.memory, 500);
	for (i = 1; i < SHARERS; i++) {
		if (waitpid(children[i], &status, 0) != children[i] || status) {
			ksft_print_msg("process %d: status %#x\n", i, status);
			ok = false;
		}
	}
	kill(children[0], SIGKILL);
	waitpid(children[0], &status, 0);
	/* The target is there still, and its SRQ is not. */
	srq_post(&link->srqs[1], 1, &places[1], 0, SIZE);
	request(link, link->srqs[1].number, IBV_WR_SEND, 500);
	ring_doorbell(link);
	ok = ok && is_received(link, 1, 1, IBV_WC_RECV, 500) && is_sent(IBV_WC_SUCCESS);
	memcpy(places[1].expected, source.memory, 500);
	request(link, shared->numbers[0], IBV_WR_SEND, 500);
	ring_doorbell(link);
	ok = ok && is_sent(IBV_WC_REM_INV_REQ_ERR);
	link_free(link);
	munmap(shared, 4096);
	return ok;
}

/* Root, but without the right to administer the system. */
static int unprivileged(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	uint32_t domain;

	if (syscall(SYS_capget, &header, data))
		return 1;
	data[0].effective &= ~(1U << CAP_SYS_ADMIN);
	if (syscall(SYS_capset, &header, data))
		return 2;
	device_open(b, b->name, family);
	if (xrc_domain_open(b->context, -1, O_CREAT, &domain) != EPERM)
		return 3;
	/* One that somebody else has made. */
	return xrc_domain_open(b->context, domain_file, 0, &domain) ? 4 : 0;
}

static bool run_unprivileged(void)
{
	uint32_t domain = domain_open(b, domain_file);
	int status = 0;
	pid_t child;

	child = fork_child();
	if (!child)
		_exit(unprivileged());
	waitpid(child, &status, 0);
	domain_close(b, domain);
	if (status)
		ksft_print_msg("the other process: status %#x\n", status);
	return !status;
}

/*
 * A program that dies with all of it leaves nothing: neither in a domain of its own, where the suite looks for objects at
 * its end, nor in one that others have.
 */
static bool run_left_behind(void)
{
	uint32_t *number = pages_make(4096, MAP_SHARED | MAP_ANONYMOUS), domain = domain_open(b, domain_file);
	int status = 0;
	pid_t child;
	bool ok;

	child = fork_child();
	if (!child) {
		struct device *device = &devices[1];
		struct xrc_qp own, shared;

		device_open(device, b->name, family);
		must(xrc_target_create(&own, device->context, domain_open(device, -1)), "a target");
		must(xrc_target_create(&shared, device->context, domain_open(device, domain_file)), "a target");
		*number = shared.qp.qp_num;
		_exit(0);
	}
	ok = waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status) && *number;
	if (!ok)
		ksft_print_msg("the other process: status %#x\n", status);
	ok = ok && target_has_gone(domain, *number);
	domain_close(b, domain);
	munmap(number, 4096);
	return ok;
}

static const struct row rows[] = {
	{ "SEND of 0 bytes", .run_with = run_send, .argument = 0 },
	{ "SEND of 100 bytes", .run_with = run_send, .argument = 100 },
	{ "SEND of 9000 bytes", .run_with = run_send, .argument = LENGTH },
	{ "SEND with immediate data", .run_with = run_immediate, .argument = IBV_WR_SEND_WITH_IMM },
	{ "RDMA WRITE with immediate data", .run_with = run_immediate,
	  .argument = IBV_WR_RDMA_WRITE_WITH_IMM },
	{ "RDMA WRITE, by keys of both domains", .run_with = run_remote, .argument = IBV_WR_RDMA_WRITE },
	{ "RDMA READ, by keys of both domains", .run_with = run_remote, .argument = IBV_WR_RDMA_READ },
	{ "compare and swap, by keys of both domains", .run_with = run_remote,
	  .argument = IBV_WR_ATOMIC_CMP_AND_SWP },
	{ "fetch and add, by keys of both domains", .run_with = run_remote,
	  .argument = IBV_WR_ATOMIC_FETCH_AND_ADD },
	{ "a key for one SRQ, and then for another", .run = run_same_key },
	{ "a receive with the other SRQ's key, behind one of its own", .run = run_other_receive },
	{ "memory that is paged on demand: SEND", .run_with = run_paged, .argument = IBV_WR_SEND },
	{ "memory that is paged on demand: RDMA WRITE", .run_with = run_paged, .argument = IBV_WR_RDMA_WRITE },
	{ "memory that is paged on demand: RDMA READ", .run_with = run_paged, .argument = IBV_WR_RDMA_READ },
	{ "memory that is paged on demand: RDMA READ into it", .run = run_paged_reader },
	{ "memory that is paged on demand: fetch and add", .run_with = run_paged,
	  .argument = IBV_WR_ATOMIC_FETCH_AND_ADD },
	{ "an SRQ that nobody has", .run_with = run_stranger, .argument = NOBODY },
	{ "no SRQ, as librxe asks", .run_with = run_stranger, .argument = NUMBER_0 },
	{ "an SRQ number of more than 24 bits", .run_with = run_stranger, .argument = TOO_LARGE },
	{ "an SRQ of another domain", .run_with = run_stranger, .argument = OTHER_DOMAIN },
	{ "an SRQ that is destroyed", .run_with = run_stranger, .argument = DESTROYED },
	{ "an SRQ that is destroyed in the middle of a message", .run = run_destroyed_in_the_middle },
	{ "an SRQ without receives, for a while", .run = run_not_ready },
	{ "an SRQ without receives, for good", .run = run_never_ready },
	{ "a message that is longer than the receive", .run = run_too_long },
	{ "SEND with invalidate, of a key that is none", .run = run_invalidate },
	{ "ATOMIC WRITE is refused", .run_with = run_refused_operation, .argument = 15 },
	{ "FLUSH is refused", .run_with = run_refused_operation, .argument = 14 },
	{ "a local invalidation with an SRQ number of more than 24 bits", .run = run_refused_invalidation },
	{ "messages to two SRQs", .run = run_many },
	{ "the limit of an XRC SRQ", .run = run_limit },
	{ "an event of an XRC SRQ's completion", .run = run_event },
	{ "an XRC SRQ whose ring is spoilt", .run = run_spoilt },
	{ "an XRC SRQ whose CQ overflows", .run = run_overflow },
	{ "a target that processes share", .run = run_shared },
	{ "eight processes that share a target, one is killed", .run = run_sharers },
	{ "posting to a target", .run = run_target_posts },
	{ "making a domain without CAP_SYS_ADMIN", .run = run_unprivileged },
	{ "closing a domain in use", .run = run_busy_domain },
	{ "a process that leaves a target behind", .run = run_left_behind },
};

/* Those that have to do with the way between the devices. */
static const char *const ways[] = {
	"SEND of 9000 bytes", "RDMA READ, by keys of both domains", "an SRQ without receives, for a while",
	"messages to two SRQs",
};

static void add(void)
{
	unsigned int i, j;

	for (i = 0; i < ARRAY_SIZE(rows); i++)
		row_add(rows[i]);
	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		for (j = 0; j < ARRAY_SIZE(rows); j++) {
			struct row row = rows[j];

			if (strcmp(row.name, ways[i]))
				continue;
			row.name = row_name("within a device: %s", ways[i]);
			row.needs = true;
			row_add(row);
		}
	}
}

static bool run_row(const struct row *row)
{
	int from = row->needs ? 1 : 0;

	a = &devices[from];
	send_cq = send_cqs[from];
	source = sources[from];
	return row_run(row);
}

static void begin(char **operands)
{
	int i;

	domain_file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	if (domain_file < 0)
		die("a file for the domain: %s", strerror(errno));
	for (i = 0; i < 2; i++) {
		struct device other = *b;

		send_cqs[i] = cq_make(&devices[i], 2 * DEPTH);
		region_make(&sources[i], &devices[i], SIZE, IBV_ACCESS_LOCAL_WRITE);
		recv_cqs[i] = cq_make(b, 2 * DEPTH);
		pds[i] = ibv_alloc_pd(b->context);
		if (!pds[i])
			die("ibv_alloc_pd: %s", strerror(errno));
		other.pd = pds[i];
		region_make(&places[i], &other, SIZE, IBV_ACCESS_LOCAL_WRITE);
		region_make(&windows[i], &other, SIZE, access_of(IBV_QPT_RC));
		region_fill(&places[i]);
		region_fill(&windows[i]);
	}
}

static void end(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		region_free(&sources[i]);
		cq_free(send_cqs[i]);
		region_free(&places[i]);
		region_free(&windows[i]);
		cq_free(recv_cqs[i]);
		if (ibv_dealloc_pd(pds[i]))
			die("ibv_dealloc_pd fails");
	}
	close(domain_file);
}

static bool take_option(int option, const char *argument)
{
	is_lossy = true;
	return true;
}

const struct test test = {
	.options = "l",
	.option = take_option,
	.add = add,
	.run_row = run_row,
	.with_devices = true,
	.begin = begin,
	.end = end,
};
