// SPDX-License-Identifier: GPL-2.0
/*
 * Counts calls of memcpy() at given places, and the bytes: memcpy() itself cannot be probed, and tracefs has no
 * probes in functions without ftrace's entry, as those of Rust are.
 *
 * The parameter `sites` has the addresses of the instructions that call. For scripts/bench.d.
 */

#include <linux/atomic.h>
#include <linux/init.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/moduleparam.h>

#define SITES 256

static unsigned long sites[SITES];
static int site_count;
module_param_array(sites, ulong, &site_count, 0400);
MODULE_PARM_DESC(sites, "addresses of calls");

static struct kprobe probes[SITES];
static atomic64_t calls, bytes;

static int on_call(struct kprobe *probe, struct pt_regs *regs)
{
	/* The third argument. */
	atomic64_inc(&calls);
	atomic64_add(regs_get_kernel_argument(regs, 2), &bytes);
	return 0;
}

static int get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%lld\n", atomic64_read((atomic64_t *)param->arg));
}

static const struct kernel_param_ops counter_ops = { .get = get };

module_param_cb(calls, &counter_ops, &calls, 0400);
MODULE_PARM_DESC(calls, "how many so far");
module_param_cb(bytes, &counter_ops, &bytes, 0400);
MODULE_PARM_DESC(bytes, "how many bytes so far");

static int __init copies_init(void)
{
	int i, error;

	for (i = 0; i < site_count; i++) {
		probes[i].addr = (kprobe_opcode_t *)sites[i];
		probes[i].pre_handler = on_call;
		error = register_kprobe(&probes[i]);
		if (error) {
			pr_err("copies: %pS cannot be probed: %d\n", (void *)sites[i], error);
			while (i-- > 0)
				unregister_kprobe(&probes[i]);
			return error;
		}
	}
	return 0;
}

static void __exit copies_exit(void)
{
	int i;

	for (i = 0; i < site_count; i++)
		unregister_kprobe(&probes[i]);
}

module_init(copies_init);
module_exit(copies_exit);
MODULE_DESCRIPTION("Bytes copied by memcpy() at given places, for scripts/bench.d");
MODULE_LICENSE("GPL");
