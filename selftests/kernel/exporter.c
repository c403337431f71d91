// SPDX-License-Identifier: GPL-2.0
/*
 * A driver whose buffers are dma-bufs, for the selftest dmabuf. Its buffers move unless they are pinned, as those of a
 * graphics card do: who maps one that is not pinned, or lets go of one in the wrong order, is counted.
 *
 * /dev/ferroce_exporter: ioctl() with one of the numbers below and a size in bytes returns a new buffer's file
 * descriptor; read() says how many buffers there are, and how many mistakes there were.
 */

#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/fs.h>
#include <linux/iosys-map.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

/* The kinds of buffers. */
#define KIND_MEMORY _IO('F', 0)
#define KIND_REGISTERS _IO('F', 1)
#define KIND_UNPINNABLE _IO('F', 2)
#define KIND_BUSY _IO('F', 3)

#define MAX_SIZE (16 << 20)

struct buffer {
	void *memory;
	unsigned int kind;
	/* Under the reservation lock. */
	unsigned int pins;
	unsigned int maps;
	atomic_t attachments;
	atomic_t accesses;
};

static atomic_t buffers, mistakes;

static void expect(bool ok, const char *what)
{
	if (ok)
		return;
	atomic_inc(&mistakes);
	pr_info("ferroce_exporter: %s\n", what);
}

static int buffer_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attachment)
{
	struct buffer *buffer = dmabuf->priv;

	atomic_inc(&buffer->attachments);
	return 0;
}

static void buffer_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attachment)
{
	struct buffer *buffer = dmabuf->priv;

	expect(atomic_dec_return(&buffer->attachments) >= 0, "detached without being attached");
	expect(!buffer->pins, "detached while pinned");
}

static int buffer_pin(struct dma_buf_attachment *attachment)
{
	struct buffer *buffer = attachment->dmabuf->priv;

	dma_resv_assert_held(attachment->dmabuf->resv);
	if (buffer->kind == KIND_UNPINNABLE)
		return -ENOSPC;
	buffer->pins++;
	return 0;
}

static void buffer_unpin(struct dma_buf_attachment *attachment)
{
	struct buffer *buffer = attachment->dmabuf->priv;

	dma_resv_assert_held(attachment->dmabuf->resv);
	expect(buffer->pins, "unpinned without being pinned");
	expect(!buffer->maps || buffer->pins > 1, "unpinned while mapped");
	buffer->pins--;
}

static int buffer_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct buffer *buffer = dmabuf->priv;

	dma_resv_assert_held(dmabuf->resv);
	expect(buffer->pins, "mapped without being pinned");
	buffer->maps++;
	if (buffer->kind == KIND_REGISTERS)
		iosys_map_set_vaddr_iomem(map, (void __iomem *)buffer->memory);
	else
		iosys_map_set_vaddr(map, buffer->memory);
	return 0;
}

static void buffer_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct buffer *buffer = dmabuf->priv;

	dma_resv_assert_held(dmabuf->resv);
	expect(buffer->maps, "unmapped without being mapped");
	expect(!atomic_read(&buffer->accesses), "unmapped while the CPU has access");
	buffer->maps--;
}

static int buffer_begin_access(struct dma_buf *dmabuf, enum dma_data_direction direction)
{
	struct buffer *buffer = dmabuf->priv;

	if (buffer->kind == KIND_BUSY)
		return -EBUSY;
	expect(buffer->maps, "access to what is not mapped");
	atomic_inc(&buffer->accesses);
	return 0;
}

static int buffer_end_access(struct dma_buf *dmabuf, enum dma_data_direction direction)
{
	struct buffer *buffer = dmabuf->priv;

	expect(atomic_dec_return(&buffer->accesses) >= 0, "an access ends that did not begin");
	return 0;
}

static struct sg_table *buffer_map(struct dma_buf_attachment *attachment, enum dma_data_direction direction)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static void buffer_unmap(struct dma_buf_attachment *attachment, struct sg_table *table,
			 enum dma_data_direction direction)
{
}

static int buffer_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	struct buffer *buffer = dmabuf->priv;

	return remap_vmalloc_range(vma, buffer->memory, vma->vm_pgoff);
}

static void buffer_release(struct dma_buf *dmabuf)
{
	struct buffer *buffer = dmabuf->priv;

	expect(!buffer->pins && !buffer->maps && !atomic_read(&buffer->attachments) && !atomic_read(&buffer->accesses),
	       "freed while in use");
	vfree(buffer->memory);
	kfree(buffer);
	atomic_dec(&buffers);
}

static const struct dma_buf_ops buffer_ops = {
	.attach = buffer_attach,
	.detach = buffer_detach,
	.pin = buffer_pin,
	.unpin = buffer_unpin,
	.map_dma_buf = buffer_map,
	.unmap_dma_buf = buffer_unmap,
	.release = buffer_release,
	.begin_cpu_access = buffer_begin_access,
	.end_cpu_access = buffer_end_access,
	.mmap = buffer_mmap,
	.vmap = buffer_vmap,
	.vunmap = buffer_vunmap,
};

static long exporter_ioctl(struct file *file, unsigned int kind, unsigned long size)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct buffer *buffer;
	struct dma_buf *dmabuf;
	int fd;

	if (kind < KIND_MEMORY || kind > KIND_BUSY || !size || size > MAX_SIZE || size % PAGE_SIZE)
		return -EINVAL;
	buffer = kzalloc(sizeof(*buffer), GFP_KERNEL);
	if (!buffer)
		return -ENOMEM;
	buffer->kind = kind;
	buffer->memory = vmalloc_user(size);
	if (!buffer->memory) {
		kfree(buffer);
		return -ENOMEM;
	}
	info.ops = &buffer_ops;
	info.size = size;
	info.flags = O_RDWR;
	info.priv = buffer;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		vfree(buffer->memory);
		kfree(buffer);
		return PTR_ERR(dmabuf);
	}
	atomic_inc(&buffers);
	fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(dmabuf);
	return fd;
}

static ssize_t exporter_read(struct file *file, char __user *to, size_t size, loff_t *at)
{
	char text[64];
	int length = scnprintf(text, sizeof(text), "%d buffers, %d mistakes\n", atomic_read(&buffers),
			       atomic_read(&mistakes));

	return simple_read_from_buffer(to, size, at, text, length);
}

static const struct file_operations exporter_operations = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = exporter_ioctl,
	.read = exporter_read,
};

static struct miscdevice exporter = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ferroce_exporter",
	.fops = &exporter_operations,
};

module_misc_device(exporter);
MODULE_IMPORT_NS("DMA_BUF");
MODULE_DESCRIPTION("Buffers for the selftest dmabuf");
MODULE_LICENSE("GPL");
