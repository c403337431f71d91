/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints of ferroce: Documentation/tracing.rst. A tracepoint that is off costs a load and a branch.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ferroce

#if !defined(_TRACE_FERROCE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_FERROCE_H

#include <linux/tracepoint.h>
#include <linux/types.h>

/*
 * BTH opcodes: the transport's three bits, and the operation's five (IBTA 9.2.1, tables 38 and A19; annex A14 for XRC).
 */
#define ferroce_transport(opcode)						\
	__print_symbolic((opcode) >> 5, { 0, "RC" }, { 1, "UC" }, { 3, "UD" }, { 4, "CNP" },	\
			 { 5, "XRC" })

#define ferroce_operation(opcode)						\
	__print_symbolic((opcode) & 0x1f,					\
		{ 0x00, "SEND_FIRST" }, { 0x01, "SEND_MIDDLE" },		\
		{ 0x02, "SEND_LAST" }, { 0x03, "SEND_LAST_IMM" },		\
		{ 0x04, "SEND_ONLY" }, { 0x05, "SEND_ONLY_IMM" },		\
		{ 0x06, "WRITE_FIRST" }, { 0x07, "WRITE_MIDDLE" },		\
		{ 0x08, "WRITE_LAST" }, { 0x09, "WRITE_LAST_IMM" },		\
		{ 0x0a, "WRITE_ONLY" }, { 0x0b, "WRITE_ONLY_IMM" },		\
		{ 0x0c, "READ_REQUEST" }, { 0x0d, "READ_RESPONSE_FIRST" },	\
		{ 0x0e, "READ_RESPONSE_MIDDLE" }, { 0x0f, "READ_RESPONSE_LAST" },	\
		{ 0x10, "READ_RESPONSE_ONLY" }, { 0x11, "ACKNOWLEDGE" },	\
		{ 0x12, "ATOMIC_ACKNOWLEDGE" }, { 0x13, "COMPARE_SWAP" },	\
		{ 0x14, "FETCH_ADD" }, { 0x16, "SEND_LAST_INVALIDATE" },	\
		{ 0x17, "SEND_ONLY_INVALIDATE" }, { 0x1c, "FLUSH" },		\
		{ 0x1d, "ATOMIC_WRITE" })

/* The upper three bits of an AETH's syndrome (IBTA 9.7.5.1, table 43). */
#define ferroce_acknowledge(syndrome)						\
	__print_symbolic((syndrome) < 0 ? -1 : (syndrome) >> 5,			\
		{ -1, "-" }, { 0, "ACK" }, { 1, "RNR" }, { 3, "NAK" })

/*
 * enum ib_qp_state and enum ib_wc_status. Numbers, not names: perf and trace-cmd read these tables as they stand. The
 * numbers are a part of the user ABI.
 */
#define ferroce_qp_state(state)							\
	__print_symbolic(state,							\
		{ 0, "RESET" }, { 1, "INIT" }, { 2, "RTR" }, { 3, "RTS" },	\
		{ 4, "SQD" }, { 5, "SQE" }, { 6, "ERR" })

#define ferroce_wc_status(status)						\
	__print_symbolic(status,						\
		{ 0, "SUCCESS" }, { 1, "LOC_LEN_ERR" }, { 2, "LOC_QP_OP_ERR" },	\
		{ 4, "LOC_PROT_ERR" }, { 5, "WR_FLUSH_ERR" },			\
		{ 6, "MW_BIND_ERR" }, { 7, "BAD_RESP_ERR" },			\
		{ 8, "LOC_ACCESS_ERR" }, { 9, "REM_INV_REQ_ERR" },		\
		{ 10, "REM_ACCESS_ERR" }, { 11, "REM_OP_ERR" },			\
		{ 12, "RETRY_EXC_ERR" }, { 13, "RNR_RETRY_EXC_ERR" })

DECLARE_EVENT_CLASS(ferroce_qp,
	TP_PROTO(u32 qpn),
	TP_ARGS(qpn),
	TP_STRUCT__entry(
		__field(u32, qpn)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
	),
	TP_printk("qpn=%u", __entry->qpn)
);

/* Send requests were posted: by a doorbell, or by a consumer in the kernel. */
DEFINE_EVENT(ferroce_qp, ferroce_post_send,
	TP_PROTO(u32 qpn),
	TP_ARGS(qpn)
);

/* A side of the QP needs pages that are not present, and stops until they are. */
DEFINE_EVENT(ferroce_qp, ferroce_page_wait,
	TP_PROTO(u32 qpn),
	TP_ARGS(qpn)
);

/* It goes on. */
DEFINE_EVENT(ferroce_qp, ferroce_page_ready,
	TP_PROTO(u32 qpn),
	TP_ARGS(qpn)
);

DECLARE_EVENT_CLASS(ferroce_packet,
	TP_PROTO(u32 dest_qpn, u8 opcode, u32 psn, u32 len, int syndrome),
	TP_ARGS(dest_qpn, opcode, psn, len, syndrome),
	TP_STRUCT__entry(
		__field(u32, dest_qpn)
		__field(u32, psn)
		__field(u32, len)
		__field(s16, syndrome)
		__field(u8, opcode)
	),
	TP_fast_assign(
		__entry->dest_qpn = dest_qpn;
		__entry->psn = psn;
		__entry->len = len;
		__entry->syndrome = syndrome;
		__entry->opcode = opcode;
	),
	TP_printk("dest_qpn=%u opcode=%s_%s psn=%u len=%u aeth=%s syndrome=%d",
		  __entry->dest_qpn, ferroce_transport(__entry->opcode),
		  ferroce_operation(__entry->opcode), __entry->psn, __entry->len,
		  ferroce_acknowledge(__entry->syndrome), __entry->syndrome)
);

/* A packet was built, and is about to leave. len: bytes of payload. syndrome: of its AETH, or -1. */
DEFINE_EVENT(ferroce_packet, ferroce_packet_out,
	TP_PROTO(u32 dest_qpn, u8 opcode, u32 psn, u32 len, int syndrome),
	TP_ARGS(dest_qpn, opcode, psn, len, syndrome)
);

/* A packet came whose headers and ICRC are right. */
DEFINE_EVENT(ferroce_packet, ferroce_packet_in,
	TP_PROTO(u32 dest_qpn, u8 opcode, u32 psn, u32 len, int syndrome),
	TP_ARGS(dest_qpn, opcode, psn, len, syndrome)
);

/* A packet was dropped. qpn: of the QP that it was for, if that is known, or 0. reason: the counter of it. */
TRACE_EVENT(ferroce_drop,
	TP_PROTO(u32 qpn, const char *reason),
	TP_ARGS(qpn, reason),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__string(reason, reason)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__assign_str(reason);
	),
	TP_printk("qpn=%u reason=%s", __entry->qpn, __get_str(reason))
);

/* Packets are sent again: requests, or responses to a READ. */
TRACE_EVENT(ferroce_retransmit,
	TP_PROTO(u32 qpn, u32 packets),
	TP_ARGS(qpn, packets),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, packets)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->packets = packets;
	),
	TP_printk("qpn=%u packets=%u", __entry->qpn, __entry->packets)
);

TRACE_EVENT(ferroce_completion,
	TP_PROTO(u32 qpn, u64 wr_id, u32 status, u32 opcode),
	TP_ARGS(qpn, wr_id, status, opcode),
	TP_STRUCT__entry(
		__field(u64, wr_id)
		__field(u32, qpn)
		__field(u32, status)
		__field(u32, opcode)
	),
	TP_fast_assign(
		__entry->wr_id = wr_id;
		__entry->qpn = qpn;
		__entry->status = status;
		__entry->opcode = opcode;
	),
	TP_printk("qpn=%u wr_id=%#llx status=%s (%u) opcode=%u", __entry->qpn, __entry->wr_id,
		  ferroce_wc_status(__entry->status), __entry->status, __entry->opcode)
);

TRACE_EVENT(ferroce_qp_state,
	TP_PROTO(u32 qpn, u32 from, u32 to),
	TP_ARGS(qpn, from, to),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, from)
		__field(u32, to)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->from = from;
		__entry->to = to;
	),
	TP_printk("qpn=%u %s -> %s", __entry->qpn, ferroce_qp_state(__entry->from),
		  ferroce_qp_state(__entry->to))
);

#endif /* _TRACE_FERROCE_H */

#include <trace/define_trace.h>
