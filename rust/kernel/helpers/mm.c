// SPDX-License-Identifier: GPL-2.0

#include <linux/ioport.h>
#include <linux/libnvdimm.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/sched/mm.h>

__rust_helper struct mem_cgroup *rust_helper_get_mem_cgroup_from_mm(struct mm_struct *mm)
{
	return get_mem_cgroup_from_mm(mm);
}

__rust_helper void rust_helper_mem_cgroup_put(struct mem_cgroup *memcg)
{
	mem_cgroup_put(memcg);
}

__rust_helper bool rust_helper_is_persistent_page(const void *address)
{
	return region_intersects(virt_to_phys((void *)address), PAGE_SIZE, IORESOURCE_MEM,
				 IORES_DESC_PERSISTENT_MEMORY) == REGION_INTERSECTS;
}

/* What was written is in the domain of persistence once the barrier is passed, on this CPU. */
__rust_helper void rust_helper_make_persistent(void *address, size_t len)
{
	arch_wb_cache_pmem(address, len);
	wmb();
}

__rust_helper bool rust_helper_mmu_interval_read_retry(struct mmu_interval_notifier *interval_sub,
						       unsigned long seq)
{
	return mmu_interval_read_retry(interval_sub, seq);
}

__rust_helper void rust_helper_mmu_interval_set_seq(struct mmu_interval_notifier *interval_sub,
						    unsigned long cur_seq)
{
	mmu_interval_set_seq(interval_sub, cur_seq);
}

__rust_helper void *rust_helper_page_address(const struct page *page)
{
	return page_address(page);
}

__rust_helper void rust_helper_put_page(struct page *page)
{
	put_page(page);
}

__rust_helper struct mem_cgroup *rust_helper_set_active_memcg(struct mem_cgroup *memcg)
{
	return set_active_memcg(memcg);
}

__rust_helper unsigned long rust_helper_totalram_pages(void)
{
	return totalram_pages();
}
