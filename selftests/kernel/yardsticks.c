// SPDX-License-Identifier: GPL-2.0
/*
 * How fast the machine copies and computes a CRC: reading /sys/module/yardsticks/parameters/memcpy or
 * crc32_le measures it there and then, in bytes per second, on pieces of 4 KiB that stay in the cache.
 *
 * Each figure is the median of many short stretches, so that an interrupt or two do not count. For
 * scripts/bench.d; nothing stays behind when it is unloaded.
 */

#include <linux/crc32.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/string.h>

#define PIECE 4096
#define PIECES 64
#define STRETCHES 101

static u8 *source, *target;
static u32 state;

static void copy_piece(void)
{
	size_t length = PIECE;

	/* The function, not instructions made for this length; and as if somebody read what it writes. */
	OPTIMIZER_HIDE_VAR(length);
	memcpy(target, source, length);
	barrier_data(target);
}

static void check_piece(void)
{
	WRITE_ONCE(state, crc32_le(state, source, PIECE));
}

static int is_longer(const void *a, const void *b)
{
	return cmp_int(*(const u64 *)a, *(const u64 *)b);
}

static int measure(char *buffer, void (*piece)(void))
{
	u64 *times = kmalloc_array(STRETCHES, sizeof(*times), GFP_KERNEL);
	u64 median;
	int i, j;

	if (!times)
		return -ENOMEM;
	for (i = 0; i < STRETCHES; i++) {
		u64 began = ktime_get_ns();

		for (j = 0; j < PIECES; j++)
			piece();
		times[i] = ktime_get_ns() - began;
		cond_resched();
	}
	sort(times, STRETCHES, sizeof(*times), is_longer, NULL);
	median = max(times[STRETCHES / 2], 1ULL);
	kfree(times);
	return sysfs_emit(buffer, "%llu\n", div64_u64((u64)PIECE * PIECES * NSEC_PER_SEC, median));
}

static int memcpy_get(char *buffer, const struct kernel_param *param)
{
	return measure(buffer, copy_piece);
}

static int crc32_le_get(char *buffer, const struct kernel_param *param)
{
	return measure(buffer, check_piece);
}

static const struct kernel_param_ops memcpy_ops = { .get = memcpy_get };
static const struct kernel_param_ops crc32_le_ops = { .get = crc32_le_get };

module_param_cb(memcpy, &memcpy_ops, NULL, 0400);
MODULE_PARM_DESC(memcpy, "bytes copied per second");
module_param_cb(crc32_le, &crc32_le_ops, NULL, 0400);
MODULE_PARM_DESC(crc32_le, "bytes per second through crc32_le()");

static int __init yardsticks_init(void)
{
	source = kmalloc(PIECE, GFP_KERNEL);
	target = kmalloc(PIECE, GFP_KERNEL);
	if (!source || !target) {
		kfree(source);
		kfree(target);
		return -ENOMEM;
	}
	get_random_bytes(source, PIECE);
	return 0;
}

static void __exit yardsticks_exit(void)
{
	kfree(source);
	kfree(target);
}

module_init(yardsticks_init);
module_exit(yardsticks_exit);
MODULE_DESCRIPTION("Speed of memcpy() and crc32_le(), for scripts/bench.d");
MODULE_LICENSE("GPL");
