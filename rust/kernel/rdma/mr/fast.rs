// SPDX-License-Identifier: GPL-2.0

//! The memory of fast-registration regions: mapped by a kernel consumer, registered by its work requests.

use super::{
    MemoryRegion,
    Obj, //
};
use crate::{
    extents::Extents,
    memory::{
        Blocks,
        Fault,
        Memory, //
    }, //
};
use kernel::{
    error::from_result,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};
use rdma_bindings as bindings;
use sync::{
    new_spin_lock_bh,
    new_spin_lock_irq,
    SpinLockBh,
    SpinLockIrq, //
};

/// The memory that a kernel consumer maps: pages of one size, or pieces of any.
enum Mapping {
    Pages(Blocks),
    Gaps(Extents),
}

impl Mapping {
    /// Makes the mapping a copy of `other`. Returns false if that is of the other kind, or larger than this can be.
    fn copy_from(&mut self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pages(to), Self::Pages(from)) => to.copy_from(from),
            (Self::Gaps(to), Self::Gaps(from)) => to.copy_from(from),
            _ => false,
        }
    }

    fn clear(&mut self) {
        match self {
            Self::Pages(blocks) => blocks.clear(),
            Self::Gaps(extents) => extents.clear(),
        }
    }

    /// Bytes.
    fn len(&self) -> u64 {
        match self {
            Self::Pages(blocks) => blocks.len(),
            Self::Gaps(extents) => extents.len(),
        }
    }

    fn memory(&self) -> &dyn Memory {
        match self {
            Self::Pages(blocks) => blocks,
            Self::Gaps(extents) => extents,
        }
    }
}

/// The mapping that keys lead to.
struct Active {
    mapping: Mapping,
    /// Counts registrations, so that an access that one admitted does not act on the next.
    turn: u64,
}

/// The pages of a fast-registration region, or pieces of memory, which a kernel consumer maps ([`map_mr_sg`]) and a work
/// request activates.
///
/// [`map_mr_sg`]: srctree/include/rdma/ib_verbs.h
#[pin_data]
pub struct FastPages {
    /// The last mapping by the consumer.
    #[pin]
    mapped: SpinLockIrq<Mapping>,
    #[pin]
    active: SpinLockBh<Active>,
    /// Where the region's addresses start, as it was when the work request was posted: consumers
    /// may change it after mapping.
    pub(super) iova: Atomic<u64>,
}

/// A registration of [`FastPages`].
#[derive(Clone, Copy, Debug)]
pub struct Activation {
    /// The region's first address.
    pub iova: u64,
    /// Bytes.
    pub len: u64,
    turn: u64,
}

impl FastPages {
    pub(super) fn new(capacity: u32, with_gaps: bool) -> Result<Arc<Self>> {
        let empty = || {
            Ok::<_, Error>(if with_gaps {
                Mapping::Gaps(Extents::with_capacity(capacity as usize)?)
            } else {
                Mapping::Pages(Blocks::with_capacity(capacity as usize)?)
            })
        };
        let mapped = empty()?;
        let mapping = empty()?;
        Arc::pin_init(
            pin_init!(Self {
                mapped <- new_spin_lock_irq!(mapped),
                active <- new_spin_lock_bh!(Active { mapping, turn: 0 }),
                iova: Atomic::new(0),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Makes what was mapped last accessible. Context: process or softirq, here and below.
    pub fn activate(&self) -> Option<Activation> {
        let mut active = self.active.lock();
        let mapped = self.mapped.lock();
        if !active.mapping.copy_from(&mapped) {
            return None;
        }
        active.turn = active.turn.wrapping_add(1);
        Some(Activation {
            iova: self.iova.load(Relaxed),
            len: mapped.len(),
            turn: active.turn,
        })
    }

    /// Makes the region inaccessible; copies from or into it have ended when this returns.
    pub fn deactivate(&self) {
        self.active.lock().mapping.clear();
    }

    /// Calls `f` with the pages, if `activation` is the last one. `f` must not sleep: it runs under a spinlock, with bottom
    /// halves off.
    #[inline]
    pub fn with<R>(
        &self,
        activation: &Activation,
        f: impl FnOnce(&dyn Memory) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let active = self.active.lock();
        if active.turn != activation.turn {
            return Err(Fault::OutOfRange);
        }
        f(active.mapping.memory())
    }
}

/// Adds a page to the list that [`map`] is filling.
///
/// # Safety
///
/// Only `ib_sg_to_pages` may call this, from within [`map`].
unsafe extern "C" fn set_page<M: MemoryRegion>(mr: *mut bindings::ib_mr, address: u64) -> c_int {
    // SAFETY: `map` passed the object.
    let private = unsafe { Obj::<M>::get(mr) };
    let Some(fast) = &private.fast else {
        return EINVAL.to_errno();
    };
    let Mapping::Pages(blocks) = &mut *fast.mapped.lock() else {
        return EINVAL.to_errno();
    };
    if blocks.push(address as usize) {
        0
    } else {
        ENOMEM.to_errno()
    }
}

/// Fills a list with pieces of a consumer's, beginning `offset` bytes into the first one. Returns how many, which are all
/// of them or as many as there is room for, and the address of the first byte.
///
/// # Safety
///
/// `sg` must be a list of at least `entries` pieces, mapped for a device of virtual DMA; for its memory see
/// [`Extents::push`].
unsafe fn fill(
    extents: &mut Extents,
    mut sg: *mut kernel::bindings::scatterlist,
    entries: u32,
    mut offset: u32,
) -> Result<(c_int, u64)> {
    let mut count: c_int = 0;
    let mut first = None;
    for _ in 0..entries {
        if sg.is_null() {
            break;
        }
        // SAFETY: The caller promises that the entry is valid. The address of virtual DMA is the kernel's own.
        let (addr, len) = unsafe {
            (
                kernel::bindings::sg_dma_address(sg),
                kernel::bindings::sg_dma_len(sg),
            )
        };
        let addr = addr.checked_add(u64::from(offset)).ok_or(EINVAL)?;
        let len = len.checked_sub(offset).ok_or(EINVAL)?;
        // SAFETY: By the promise of the caller.
        if !unsafe { extents.push(addr as usize, len) } {
            break;
        }
        first.get_or_insert(addr);
        count = count.wrapping_add(1);
        offset = 0;
        // SAFETY: The entry is valid.
        sg = unsafe { kernel::bindings::sg_next(sg) };
    }
    Ok((count, first.ok_or(EINVAL)?))
}

/// `map_mr_sg`. Any context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn map<M: MemoryRegion>(
    mr: *mut bindings::ib_mr,
    sg: *mut kernel::bindings::scatterlist,
    entries: c_int,
    offset: *mut c_uint,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes an object that it created.
        let private = unsafe { Obj::<M>::get(mr) };
        let fast = private.fast.as_ref().ok_or(EINVAL)?;
        {
            let mut mapped = fast.mapped.lock();
            mapped.clear();
            if let Mapping::Gaps(extents) = &mut *mapped {
                let skipped = if offset.is_null() {
                    0
                } else {
                    // SAFETY: `ib_core` passes null, or a place with the offset in the first piece, to write that in the
                    // last one to: 0, as pieces are mapped as a whole.
                    unsafe { offset.replace(0) }
                };
                let entries = u32::try_from(entries)?;
                // SAFETY: The consumer passes a valid list, and vouches for the memory: a peer gets at a copy of the list from
                // the work request that registers it until the key is invalidated; what is mapped then is what the
                // consumer means, and nobody uses it otherwise.
                let (count, iova) = unsafe { fill(extents, sg, entries, skipped)? };
                // SAFETY: The object is valid, and the consumer uses it for nothing else meanwhile.
                unsafe {
                    (*mr).iova = iova;
                    (*mr).length = extents.len();
                }
                fast.iova.store(iova, Relaxed);
                return Ok(count);
            }
        }
        // SAFETY: The consumer passes a valid list; `set_page` accepts the object.
        let count =
            unsafe { bindings::ib_sg_to_pages(mr, sg, entries, offset, Some(set_page::<M>)) };
        if count < 0 {
            return Ok(count);
        }
        // SAFETY: The object is valid, and `ib_sg_to_pages` has set these fields.
        let (iova, length, page_size) = unsafe { ((*mr).iova, (*mr).length, (*mr).page_size) };
        // A part of the first piece counts as none, but is mapped.
        if length == 0 {
            return Ok(count);
        }
        if !page_size.is_power_of_two() {
            return Err(EINVAL);
        }
        let first_offset = (iova as usize) & (page_size as usize).wrapping_sub(1);
        let Mapping::Pages(blocks) = &mut *fast.mapped.lock() else {
            return Err(EINVAL);
        };
        // SAFETY: The consumer vouches for the pages: it maps them for access by peers until it
        // invalidates the key.
        unsafe { blocks.set_range(page_size.trailing_zeros(), first_offset, length)? };
        fast.iova.store(iova, Relaxed);
        Ok(count)
    })
}
