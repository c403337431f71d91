// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Memory regions and windows: what the kernel does alone. */

#include <errno.h>
#include <stdlib.h>

#include "ferroce.h"

struct ibv_mr *mr_reg(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va, int access)
{
	struct verbs_mr *mr = calloc(1, sizeof(*mr));
	struct ib_uverbs_reg_mr_resp response;
	struct ibv_reg_mr command;
	int error;

	if (!mr)
		return NULL;
	error = ibv_cmd_reg_mr(pd, addr, length, hca_va, access, mr, &command, sizeof(command), &response,
			       sizeof(response));
	if (error) {
		free(mr);
		errno = error;
		return NULL;
	}
	return &mr->ibv_mr;
}

struct ibv_mr *mr_import(struct ibv_pd *pd, uint32_t handle)
{
	struct verbs_mr *mr = calloc(1, sizeof(*mr));
	int error;

	if (!mr)
		return NULL;
	error = ibv_cmd_query_mr(pd, mr, handle);
	if (error) {
		free(mr);
		errno = error;
		return NULL;
	}
	return &mr->ibv_mr;
}

void mr_unimport(struct ibv_mr *mr)
{
	free(container_of(mr, struct verbs_mr, ibv_mr));
}

struct ibv_mr *mr_reg_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	struct verbs_mr *mr = calloc(1, sizeof(*mr));
	int error;

	if (!mr)
		return NULL;
	error = ibv_cmd_reg_dmabuf_mr(pd, offset, length, iova, fd, access, mr, NULL);
	if (error) {
		free(mr);
		errno = error;
		return NULL;
	}
	return &mr->ibv_mr;
}

int mr_rereg(struct verbs_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ib_uverbs_rereg_mr_resp response;
	struct ibv_rereg_mr command;

	return ibv_cmd_rereg_mr(mr, flags, addr, length, (uintptr_t)addr, access, pd, &command, sizeof(command),
				&response, sizeof(response));
}

int mr_dereg(struct verbs_mr *mr)
{
	int error = ibv_cmd_dereg_mr(mr);

	if (!error)
		free(mr);
	return error;
}

struct ibv_mw *mw_alloc(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ib_uverbs_alloc_mw_resp response;
	struct ibv_mw *mw = calloc(1, sizeof(*mw));
	struct ibv_alloc_mw command;
	int error;

	if (!mw)
		return NULL;
	error = ibv_cmd_alloc_mw(pd, type, mw, &command, sizeof(command), &response, sizeof(response));
	if (error) {
		free(mw);
		errno = error;
		return NULL;
	}
	return mw;
}

int mw_dealloc(struct ibv_mw *mw)
{
	int error = ibv_cmd_dealloc_mw(mw);

	if (!error)
		free(mw);
	return error;
}
