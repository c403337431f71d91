// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU's TCG: how often each instruction of the guest was executed.
 *
 * Counts blocks as they are executed, on one CPU. Each time that the guest executes the mark (mark.h),
 * all counts so far are written to DIRECTORY/counts.N, N from 1: one line for each block, with its address,
 * how many instructions it has, and how often it was executed.
 *
 * What is declared here of QEMU is what its documentation (docs/devel/tcg-plugins) describes: Debian has no
 * package with the header.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mark.h"

#define EXPORT __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint64_t plugin_id;
typedef void translated(plugin_id id, struct qemu_plugin_tb *tb);
typedef void executed(unsigned int cpu, void *data);
enum { NO_REGISTERS = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, translated *callback);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, executed *callback, int flags, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, executed *callback, int flags,
					    void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t len);

EXPORT int qemu_plugin_version = 4;

struct block {
	struct block *next;
	uint64_t address;
	uint64_t instructions;
	uint64_t executed;
};

#define BUCKETS (1 << 18)

static struct block *buckets[BUCKETS];
static const char *directory;
static unsigned int marks;

static void count(unsigned int cpu, void *data)
{
	(void)cpu;
	((struct block *)data)->executed++;
}

static void mark(unsigned int cpu, void *data)
{
	char name[4096];
	FILE *file;

	(void)cpu;
	(void)data;
	snprintf(name, sizeof(name), "%s/counts.%u", directory, ++marks);
	file = fopen(name, "w");
	if (!file) {
		perror(name);
		exit(1);
	}
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct block *block = buckets[i]; block; block = block->next)
			if (block->executed)
				fprintf(file, "%" PRIx64 " %" PRIu64 " %" PRIu64 "\n", block->address,
					block->instructions, block->executed);
	if (fclose(file)) {
		perror(name);
		exit(1);
	}
}

static struct block *find(uint64_t address, uint64_t instructions)
{
	uint64_t hash = (address * 0x9e3779b97f4a7c15 + instructions) >> 46;
	struct block **at = &buckets[hash % BUCKETS];

	while (*at) {
		if ((*at)->address == address && (*at)->instructions == instructions)
			return *at;
		at = &(*at)->next;
	}
	*at = calloc(1, sizeof(**at));
	if (!*at)
		abort();
	(*at)->address = address;
	(*at)->instructions = instructions;
	return *at;
}

static void translate(plugin_id id, struct qemu_plugin_tb *tb)
{
	static const unsigned char wanted[] = { MARK_BYTES };
	size_t n = qemu_plugin_tb_n_insns(tb);

	(void)id;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, count, NO_REGISTERS, find(qemu_plugin_tb_vaddr(tb), n));
	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		unsigned char bytes[sizeof(wanted) + 1];

		if (qemu_plugin_insn_data(insn, bytes, sizeof(bytes)) == sizeof(wanted) &&
		    !memcmp(bytes, wanted, sizeof(wanted)))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, mark, NO_REGISTERS, NULL);
	}
}

EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "to=", 3)) {
		fprintf(stderr, "count: needs to=DIRECTORY\n");
		return 1;
	}
	directory = strdup(argv[0] + 3);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
	return 0;
}
