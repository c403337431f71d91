/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR Linux-OpenIB */
/*
 * What ferroce's user ABI has beyond that of rdma_rxe (rdma_user_rxe.h). It only grows: a longer answer has the shorter
 * one at its beginning. Documentation/user-abi.rst describes all of it.
 */
#ifndef FERROCE_ABI_H
#define FERROCE_ABI_H

#include <linux/types.h>

/* The bits of ferroce_alloc_ucontext_resp.features. */
enum ferroce_feature {
	/* XRC domains, and what belongs to them. The device does not announce XRC itself, as librxe has none. */
	FERROCE_FEATURE_XRC = 1 << 0,
};

/* What the kernel appends to the answer of alloc_ucontext if there is room. It writes all of it, or nothing. */
struct ferroce_alloc_ucontext_resp {
	__aligned_u64 features;
};

#endif
