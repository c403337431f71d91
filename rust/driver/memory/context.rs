// SPDX-License-Identifier: GPL-2.0

//! A process's context: the rings that it may map.

use crate::{
    device::Device,
    live::{
        Kind,
        Live, //
    },
    memory::paging_turns::Turns, //
};
use kernel::{
    mm::virt::VmaNew,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::Arc,
};
use rdma::{
    ring::SharedRing,
    ucontext::{
        self,
        UserContext, //
    },
};
use sync::{
    new_spin_lock_irq,
    SpinLockIrq, //
};
use zerocopy_derive::{
    Immutable,
    IntoBytes, //
};

/// Where a ring can be mapped: `struct mminfo` of librxe.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct MmapInfo {
    offset: u64,
    size: u32,
    pad: u32,
}

impl MmapInfo {
    /// There is nothing to map.
    pub(crate) const NONE: Self = Self {
        offset: 0,
        size: 0,
        pad: 0,
    };
}

struct Rings {
    by_offset: RBTree<u64, Arc<SharedRing>>,
    next: u64,
}

/// A process that has the device open.
#[pin_data]
pub(crate) struct Context {
    /// Open until the process has closed it.
    _device: Arc<Device>,
    #[pin]
    rings: SpinLockIrq<Rings>,
    turns: Arc<Turns>,
    _live: Live,
}

impl Context {
    /// The turns of its page faults. Context: any.
    pub(crate) fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    /// Lets the process map `ring`, until the result is withdrawn or dropped. Context: process, may
    /// sleep.
    pub(crate) fn publish(self: &Arc<Self>, ring: &Arc<SharedRing>) -> Result<Published> {
        let size = u32::try_from(ring.size()).or(Err(EINVAL))?;
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut rings = self.rings.lock();
        let offset = rings.next;
        rings.next = offset
            .checked_add(ring.size() as u64)
            .filter(|&next| next < 1 << 62)
            .ok_or(ENOSPC)?;
        // Offsets are not used twice, so there is nothing to replace.
        rings.by_offset.insert(node.into_node(offset, ring.clone()));
        drop(rings);
        Ok(Published {
            context: self.clone(),
            info: MmapInfo {
                offset,
                size,
                pad: 0,
            },
        })
    }
}

impl UserContext for Context {
    type Device = Device;

    const FEATURES: u64 = ucontext::XRC;

    fn alloc(device: &Arc<Device>) -> Result<Arc<Self>> {
        let turns = Turns::new()?;
        Arc::pin_init(
            pin_init!(Self {
                _device: device.clone(),
                rings <- new_spin_lock_irq!(Rings {
                    by_offset: RBTree::new(),
                    next: 0,
                }),
                turns,
                _live: Live::new(Kind::Context),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    fn mmap(self: &Arc<Self>, offset: u64, vma: &VmaNew) -> Result {
        let ring = {
            let rings = self.rings.lock();
            rings.by_offset.get(&offset).ok_or(EINVAL)?.clone()
        };
        ring.map(vma)
    }
}

/// A ring that its process may map; what it has mapped stays mapped when this is dropped.
/// Drop: any context in which a [`SharedRing`] may be dropped.
pub(crate) struct Published {
    context: Arc<Context>,
    info: MmapInfo,
}

impl Published {
    /// Where the process maps it.
    pub(crate) fn info(&self) -> MmapInfo {
        self.info
    }

    /// Withdraws the ring. Context: as for dropping it.
    pub(crate) fn withdraw(&self) {
        let removed = {
            let mut rings = self.context.rings.lock();
            rings.by_offset.remove_node(&self.info.offset)
        };
        drop(removed);
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        self.withdraw();
    }
}

const _: () = assert!(size_of::<MmapInfo>() == 16);
