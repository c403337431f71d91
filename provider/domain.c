// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Protection domains; thread domains, whose queues one thread at a time uses; and parent domains, which stand for one of
 * each. The kernel knows protection domains only.
 */

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "ferroce.h"

struct td {
	struct ibv_td td;
	/* Parent domains that it is part of. */
	atomic_uint users;
};

struct pd {
	struct ibv_pd pd;
	/* Parent domains that it is part of. */
	atomic_uint users;
	/* Of a parent domain only: its parts. The thread domain may be missing. */
	struct pd *protection;
	struct td *thread;
};

static struct pd *pd_of(struct ibv_pd *pd)
{
	return container_of(pd, struct pd, pd);
}

struct ibv_pd *pd_alloc(struct ibv_context *context)
{
	struct ib_uverbs_alloc_pd_resp response;
	struct pd *pd = calloc(1, sizeof(*pd));
	struct ibv_alloc_pd command;
	int error;

	if (!pd)
		return NULL;
	error = ibv_cmd_alloc_pd(context, &pd->pd, &command, sizeof(command), &response, sizeof(response));
	if (error) {
		free(pd);
		errno = error;
		return NULL;
	}
	return &pd->pd;
}

int pd_dealloc(struct ibv_pd *ibpd)
{
	struct pd *pd = pd_of(ibpd);
	int error;

	if (atomic_load(&pd->users))
		return EBUSY;
	if (pd->protection) {
		atomic_fetch_sub(&pd->protection->users, 1);
		if (pd->thread)
			atomic_fetch_sub(&pd->thread->users, 1);
		free(pd);
		return 0;
	}
	error = ibv_cmd_dealloc_pd(ibpd);
	if (!error)
		free(pd);
	return error;
}

/* The kernel has no call that says whether there is such a domain: who uses it will learn it. */
struct ibv_pd *pd_import(struct ibv_context *context, uint32_t handle)
{
	struct pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return NULL;
	pd->pd.context = context;
	pd->pd.handle = handle;
	return &pd->pd;
}

void pd_unimport(struct ibv_pd *pd)
{
	free(pd_of(pd));
}

struct ibv_td *td_alloc(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct td *td;

	if (attr->comp_mask) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td)
		return NULL;
	td->td.context = context;
	return &td->td;
}

int td_dealloc(struct ibv_td *ibtd)
{
	struct td *td = container_of(ibtd, struct td, td);

	if (atomic_load(&td->users))
		return EBUSY;
	free(td);
	return 0;
}

/* Allocators are never called: the memory of the queues is the kernel's. */
struct ibv_pd *parent_domain_alloc(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	struct pd *pd;

	if (ibv_check_alloc_parent_domain(attr))
		return NULL;
	if (attr->comp_mask & ~known) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	/* A domain of domains has no meaning. */
	if (pd_of(attr->pd)->protection) {
		errno = EINVAL;
		return NULL;
	}
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	ibv_initialize_parent_domain(&pd->pd, attr->pd);
	pd->protection = pd_of(attr->pd);
	atomic_fetch_add(&pd->protection->users, 1);
	if (attr->td) {
		pd->thread = container_of(attr->td, struct td, td);
		atomic_fetch_add(&pd->thread->users, 1);
	}
	return &pd->pd;
}

bool pd_is_of_one_thread(struct ibv_pd *pd)
{
	return pd && pd_of(pd)->thread;
}
