// SPDX-License-Identifier: GPL-2.0
/*
 * A user of verbs in the kernel, for the selftest kverbs: an ib_client of one device. In debugfs, below consumer:
 *
 *   names    of the rows, one in a line
 *   chosen   to be written: the numbers of the rows that are wanted, from 1 on, with spaces between; at first all
 *   results  runs the chosen rows as it is read, and has a line of KTAP for each
 *   traffic  "start" starts traffic, "stop" ends it; read, it says what has become of it: "messages N", then "failed"
 *            and why, "gone" if the device was removed under it, "gone, and its connection was not told", or "none"
 *
 * A row leaves nothing behind, whether it passes or not. When the device is removed, the row that runs comes to its
 * end first; the traffic is ended.
 */

#include <linux/bitmap.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/init.h>
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "consumer.h"

#define ROWS_MAX 512

static char *device_name = "";
module_param_named(device, device_name, charp, 0444);
MODULE_PARM_DESC(device, "name of the device");

static u8 gid_index;
module_param(gid_index, byte, 0644);
MODULE_PARM_DESC(gid_index, "index of the GID that is used");

static unsigned int linger;
module_param(linger, uint, 0644);
MODULE_PARM_DESC(linger, "how long it keeps a device that is removed, in ms; 0 ends it");

static bool is_peer_silent;
module_param(is_peer_silent, bool, 0644);
MODULE_PARM_DESC(is_peer_silent, "the peer of the traffic's connection does not answer when that ends");

static const struct rows *const all_rows[] = {
	&verbs_rows, &relay_rows, &queue_rows, &datagram_rows, &memory_rows, &drain_rows, &rw_rows, &end_rows,
};

/* Held while a row runs, and while the device comes or goes. */
static DEFINE_MUTEX(lock);
static struct ib_device *device;
static struct traffic *traffic;
static bool is_traffic_gone, is_traffic_right;
static DECLARE_BITMAP(chosen, ROWS_MAX);
static struct dentry *directory;

static unsigned int row_count(void)
{
	unsigned int i, count = 0;

	for (i = 0; i < ARRAY_SIZE(all_rows); i++)
		count += all_rows[i]->count;
	return count;
}

static const struct row *row_at(unsigned int index)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(all_rows); i++) {
		if (index < all_rows[i]->count)
			return &all_rows[i]->rows[index];
		index -= all_rows[i]->count;
	}
	return NULL;
}

/* --- What a row says -------------------------------------------------------------------------- */

static void say(struct test *test, const char *format, va_list arguments)
{
	/* A row may have several threads. */
	static DEFINE_SPINLOCK(text_lock);

	spin_lock(&text_lock);
	test->length += scnprintf(test->text + test->length, TEXT - test->length, "# ");
	test->length += vscnprintf(test->text + test->length, TEXT - test->length, format, arguments);
	test->length += scnprintf(test->text + test->length, TEXT - test->length, "\n");
	spin_unlock(&text_lock);
}

int row_fails(struct test *test, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(test, format, arguments);
	va_end(arguments);
	test->has_failed = true;
	return -1;
}

int row_skips(struct test *test, const char *reason)
{
	test->skipped = reason;
	return -1;
}

void test_init(struct test *test, struct ib_device *of, u8 index)
{
	memset(test, 0, sizeof(*test));
	test->device = of;
	test->gid_index = index;
	INIT_LIST_HEAD(&test->links);
	INIT_LIST_HEAD(&test->memories);
}

/* --- Results ---------------------------------------------------------------------------------- */

struct reader {
	struct test test;
	/* How much of the test's text has been read. */
	size_t done;
	/* The next row, and its number among the chosen ones. */
	unsigned int next, number;
};

static int results_open(struct inode *inode, struct file *file)
{
	struct reader *reader = kzalloc(sizeof(*reader), GFP_KERNEL);

	if (!reader)
		return -ENOMEM;
	test_init(&reader->test, NULL, 0);
	reader->test.length = scnprintf(reader->test.text, TEXT, "KTAP version 1\n1..%u\n",
					bitmap_weight(chosen, row_count()));
	file->private_data = reader;
	return 0;
}

static int results_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

static void run_row(struct reader *reader, const struct row *row)
{
	struct test *test = &reader->test;
	/* Of the text, so that there is room for it however much was said. */
	size_t room = 256;

	test_init(test, device, gid_index);
	if (!device)
		row_fails(test, "there is no device %s", device_name);
	else if (row->run(test, row) && !test->skipped)
		test->has_failed = true;
	test_free(test);
	test->length = min(test->length, TEXT - room);
	if (test->length && test->text[test->length - 1] != '\n')
		test->text[test->length++] = '\n';
	test->length += scnprintf(test->text + test->length, TEXT - test->length, "%s %u %s%s%s\n",
				  test->has_failed ? "not ok" : "ok", ++reader->number, row->name,
				  test->skipped && !test->has_failed ? " # SKIP " : "",
				  test->skipped && !test->has_failed ? test->skipped : "");
	reader->done = 0;
}

static ssize_t results_read(struct file *file, char __user *buffer, size_t size, loff_t *position)
{
	struct reader *reader = file->private_data;
	struct test *test = &reader->test;
	ssize_t count;

	if (mutex_lock_interruptible(&lock))
		return -ERESTARTSYS;
	if (reader->done == test->length) {
		reader->next = find_next_bit(chosen, row_count(), reader->next);
		if (reader->next < row_count())
			run_row(reader, row_at(reader->next++));
	}
	count = min(size, test->length - reader->done);
	if (copy_to_user(buffer, test->text + reader->done, count))
		count = -EFAULT;
	else
		reader->done += count;
	mutex_unlock(&lock);
	return count;
}

static const struct file_operations results_operations = {
	.owner = THIS_MODULE,
	.open = results_open,
	.release = results_release,
	.read = results_read,
};

static int names_show(struct seq_file *file, void *data)
{
	unsigned int i;

	for (i = 0; i < row_count(); i++)
		seq_printf(file, "%s\n", row_at(i)->name);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(names);

static ssize_t chosen_write(struct file *file, const char __user *buffer, size_t size, loff_t *position)
{
	DECLARE_BITMAP(wanted, ROWS_MAX) = {};
	char *text = memdup_user_nul(buffer, size), *rest = text, *word;
	unsigned int number;
	int error = 0;

	if (IS_ERR(text))
		return PTR_ERR(text);
	while (!error && (word = strsep(&rest, " \n"))) {
		if (!*word)
			continue;
		error = kstrtouint(word, 10, &number);
		if (!error && (!number || number > row_count()))
			error = -EINVAL;
		if (!error)
			__set_bit(number - 1, wanted);
	}
	kfree(text);
	if (error)
		return error;
	mutex_lock(&lock);
	bitmap_copy(chosen, wanted, ROWS_MAX);
	mutex_unlock(&lock);
	return size;
}

static const struct file_operations chosen_operations = {
	.owner = THIS_MODULE,
	.write = chosen_write,
};

/* --- Traffic ---------------------------------------------------------------------------------- */

static void traffic_stop(void)
{
	if (traffic)
		is_traffic_right = traffic_end(traffic);
	traffic = NULL;
}

static int traffic_show(struct seq_file *file, void *data)
{
	const char *failure;

	mutex_lock(&lock);
	if (traffic) {
		seq_printf(file, "messages %lu\n", traffic_messages(traffic));
		failure = traffic_failure(traffic);
		if (failure)
			seq_printf(file, "failed: %s", failure);
	} else if (!is_traffic_gone) {
		seq_puts(file, "none\n");
	} else {
		seq_puts(file, is_traffic_right ? "gone\n" : "gone, but not as it should: see the kernel log\n");
	}
	mutex_unlock(&lock);
	return 0;
}

static int traffic_open(struct inode *inode, struct file *file)
{
	return single_open(file, traffic_show, NULL);
}

static ssize_t traffic_write(struct file *file, const char __user *buffer, size_t size, loff_t *position)
{
	char *text = memdup_user_nul(buffer, size);
	int error = 0;

	if (IS_ERR(text))
		return PTR_ERR(text);
	mutex_lock(&lock);
	if (sysfs_streq(text, "stop")) {
		traffic_stop();
		is_traffic_gone = false;
	} else if (!sysfs_streq(text, "start")) {
		error = -EINVAL;
	} else if (!device) {
		error = -ENODEV;
	} else if (traffic) {
		error = -EBUSY;
	} else {
		is_traffic_gone = false;
		traffic = traffic_start(device, gid_index, is_peer_silent);
		if (!traffic)
			error = -EIO;
	}
	mutex_unlock(&lock);
	kfree(text);
	return error ?: size;
}

static const struct file_operations traffic_operations = {
	.owner = THIS_MODULE,
	.open = traffic_open,
	.release = single_release,
	.read = seq_read,
	.llseek = seq_lseek,
	.write = traffic_write,
};

/* --- The client ------------------------------------------------------------------------------- */

static int consumer_add(struct ib_device *added)
{
	if (strcmp(dev_name(&added->dev), device_name))
		return -EOPNOTSUPP;
	mutex_lock(&lock);
	device = added;
	mutex_unlock(&lock);
	return 0;
}

static void consumer_remove(struct ib_device *removed, void *data)
{
	unsigned long end = jiffies + msecs_to_jiffies(linger);

	/* Or until a write of 0 to `linger`. */
	while (READ_ONCE(linger) && time_before(jiffies, end))
		msleep(20);
	mutex_lock(&lock);
	if (device == removed) {
		is_traffic_gone = traffic;
		traffic_stop();
		device = NULL;
	}
	mutex_unlock(&lock);
}

static struct ib_client client = {
	.name = "consumer",
	.add = consumer_add,
	.remove = consumer_remove,
};

static int __init consumer_init(void)
{
	int error;

	BUILD_BUG_ON(TEXT < 1024);
	if (WARN_ON(row_count() > ROWS_MAX))
		return -EINVAL;
	bitmap_set(chosen, 0, row_count());
	error = ib_register_client(&client);
	if (error)
		return error;
	directory = debugfs_create_dir("consumer", NULL);
	debugfs_create_file("names", 0400, directory, NULL, &names_fops);
	debugfs_create_file("chosen", 0200, directory, NULL, &chosen_operations);
	debugfs_create_file("results", 0400, directory, NULL, &results_operations);
	debugfs_create_file("traffic", 0600, directory, NULL, &traffic_operations);
	return 0;
}

static void __exit consumer_exit(void)
{
	debugfs_remove_recursive(directory);
	ib_unregister_client(&client);
}

module_init(consumer_init);
module_exit(consumer_exit);
MODULE_DESCRIPTION("A user of verbs, for a selftest");
MODULE_LICENSE("GPL");
