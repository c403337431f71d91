// SPDX-License-Identifier: GPL-2.0

//! Memory regions.

use crate::{
    access::Access,
    driver::Driver,
    error::not_supported,
    memory::{
        Blocks,
        Fault,
        Memory,
        Unchecked, //
    },
    object::Object,
    on_demand::OnDemand,
    pd,
    umem::Umem, //
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

/// What keys lead to.
struct Active {
    blocks: Blocks,
    /// Counts registrations, so that who was let in by one does not act on the next.
    turn: u64,
}

/// The pages of a fast-registration region, which a kernel consumer maps ([`map_mr_sg`]) and a work
/// request activates.
///
/// [`map_mr_sg`]: srctree/include/rdma/ib_verbs.h
#[pin_data]
pub struct FastPages {
    capacity: u32,
    /// What the consumer mapped last.
    #[pin]
    mapped: SpinLockIrq<Blocks>,
    #[pin]
    active: SpinLockBh<Active>,
    /// Where the region's addresses start, as it was when the work request was posted: consumers
    /// may change it after mapping.
    iova: Atomic<u64>,
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
    fn new(capacity: u32) -> Result<Arc<Self>> {
        let mapped = Blocks::with_capacity(capacity as usize)?;
        let blocks = Blocks::with_capacity(capacity as usize)?;
        Arc::pin_init(
            pin_init!(Self {
                capacity,
                mapped <- new_spin_lock_irq!(mapped),
                active <- new_spin_lock_bh!(Active { blocks, turn: 0 }),
                iova: Atomic::new(0),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Pages that can be mapped.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Makes what was mapped last accessible. Context: process or softirq, here and below.
    pub fn activate(&self) -> Option<Activation> {
        let mut active = self.active.lock();
        let mapped = self.mapped.lock();
        if !active.blocks.copy_from(&mapped) {
            return None;
        }
        active.turn = active.turn.wrapping_add(1);
        Some(Activation {
            iova: self.iova.load(Relaxed),
            len: mapped.len(),
            turn: active.turn,
        })
    }

    /// Makes the region inaccessible; who copies from or into it at the moment has finished when
    /// this returns.
    pub fn deactivate(&self) {
        self.active.lock().blocks.clear();
    }

    /// Calls `f` with the pages, if `activation` is the last one.
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
        f(&active.blocks)
    }
}

/// A process's memory, for a region.
pub enum UserMemory {
    /// Pinned until the region is destroyed.
    Pinned(Arc<Umem>),
    /// Paged on demand.
    OnDemand(OnDemand),
}

impl UserMemory {
    /// Bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Pinned(umem) => umem.len(),
            Self::OnDemand(memory) => memory.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

pub(crate) struct Private<D: Driver> {
    pub(crate) core: Arc<D::Mr>,
    fast: Option<Arc<FastPages>>,
}

pub(crate) type Obj<D> = Object<bindings::ib_mr, Private<D>>;

impl<D: Driver> Private<D> {
    /// Notes where a fast-registration region starts, at the moment its registration is posted.
    pub(crate) fn note_iova(&self, iova: u64) {
        if let Some(fast) = &self.fast {
            fast.iova.store(iova, Relaxed);
        }
    }
}

/// Makes the C object of a region, which drivers allocate, and the region by `make`: last, as peers may use it, and bind
/// windows to it, from then on.
fn publish<D: Driver>(
    fast: Option<Arc<FastPages>>,
    make: impl FnOnce() -> Result<Arc<D::Mr>>,
) -> Result<*mut bindings::ib_mr> {
    let memory = KBox::<Obj<D>>::new_uninit(GFP_KERNEL_ACCOUNT | __GFP_ZERO)?;
    let core = make()?;
    let key = D::mr_key(&core);
    let mr = KBox::into_raw(memory).cast::<bindings::ib_mr>();
    // SAFETY: The memory is zeroed, which is valid for a `struct ib_mr`, has room for an `Obj<D>`,
    // and nobody else knows it.
    unsafe {
        (*mr).lkey = key;
        (*mr).rkey = key;
        Obj::<D>::init(mr, Private { core, fast });
    }
    Ok(mr)
}

fn into_ptr(result: Result<*mut bindings::ib_mr>) -> *mut bindings::ib_mr {
    match result {
        Ok(mr) => mr,
        Err(error) => error.to_ptr(),
    }
}

/// `reg_user_mr`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn register_user<D: Driver>(
    pd: *mut bindings::ib_pd,
    start: u64,
    length: u64,
    iova: u64,
    access: c_int,
    dmah: *mut bindings::ib_dmah,
    _udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    into_ptr((|| {
        let access = Access::from_bits(access as u32).without(Access::OPTIONAL);
        let known = Access::LOCAL_WRITE
            | Access::REMOTE
            | Access::FLUSH
            | Access::MW_BIND
            | Access::ON_DEMAND
            | Access::HUGETLB;
        if !dmah.is_null() || access.without(known) != Access::NONE {
            return Err(not_supported());
        }
        // Its pages may be ordinary ones tomorrow.
        if access.contains(Access::ON_DEMAND | Access::FLUSH_PERSISTENT) {
            return Err(not_supported());
        }
        // The last address must exist.
        iova.checked_add(length).ok_or(EINVAL)?;
        let memory = if access.contains(Access::ON_DEMAND) {
            UserMemory::OnDemand(match (start, length) {
                // All of the address space, as `ibv_reg_mr(3)` has it, for its own addresses.
                (0, u64::MAX) if iova != 0 || access.contains(Access::HUGETLB) => {
                    return Err(EINVAL);
                }
                (0, u64::MAX) => OnDemand::all()?,
                _ => OnDemand::range(start, length)?,
            })
        } else {
            // SAFETY: `ib_core` passes a protection domain of a registered device of this driver,
            // which has no DMA device.
            let umem = unsafe { Umem::get((*pd).device, start, length, access)? };
            UserMemory::Pinned(Arc::pin_init(umem, GFP_KERNEL_ACCOUNT)?)
        };
        // SAFETY: As above.
        let pd = unsafe { pd::Obj::<D>::get(pd) };
        publish::<D>(None, || D::register_user_mr(pd, iova, access, memory))
    })())
}

/// What a process says that it will do with memory (`ib_uverbs_advise_mr_advice`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It will be read.
    Read,
    /// It will be written to.
    Write,
    /// It will be accessed, as far as it is there.
    IfPresent,
}

/// A range of a region that an advice is about.
#[derive(Clone, Copy, Debug)]
pub struct Advised {
    /// The region's local key.
    pub key: u32,
    /// The first address, of the region's.
    pub start: u64,
    /// Bytes.
    pub len: u64,
}

/// The ranges that an advice is about.
#[derive(Clone)]
pub struct AdvisedRanges<'a>(core::slice::Iter<'a, bindings::ib_sge>);

impl Iterator for AdvisedRanges<'_> {
    type Item = Advised;

    fn next(&mut self) -> Option<Advised> {
        self.0.next().map(|sge| Advised {
            key: sge.lkey,
            start: sge.addr,
            len: u64::from(sge.length),
        })
    }
}

/// `advise_mr`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn advise<D: Driver>(
    pd: *mut bindings::ib_pd,
    advice: bindings::ib_uverbs_advise_mr_advice,
    flags: u32,
    list: *mut bindings::ib_sge,
    count: u32,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    from_result(|| {
        let advice = match advice {
            bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH => {
                Advice::Read
            }
            bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE => {
                Advice::Write
            }
            bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => {
                Advice::IfPresent
            }
            _ => return Err(not_supported()),
        };
        let flush = bindings::ib_uverbs_advise_mr_flag_IB_UVERBS_ADVISE_MR_FLAG_FLUSH;
        if flags & !flush != 0 {
            return Err(EINVAL);
        }
        if list.is_null() || count == 0 {
            return Ok(0);
        }
        // SAFETY: `ib_core` passes a protection domain, and a copy of the list of the one who advises,
        // which is not empty and stays as it is during the call.
        let (pd, list) = unsafe {
            let list = core::slice::from_raw_parts(list.cast_const(), count as usize);
            (pd::Obj::<D>::get(pd), list)
        };
        let ranges = AdvisedRanges(list.iter());
        D::advise_mr(pd, advice, flags & flush != 0, ranges)?;
        Ok(0)
    })
}

/// `get_dma_mr`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn get_dma<D: Driver>(
    pd: *mut bindings::ib_pd,
    access: c_int,
) -> *mut bindings::ib_mr {
    // SAFETY: `ib_core` passes a protection domain. Only kernel consumers get such regions,
    // and vouch for the addresses that they use with them.
    let (core, memory) = unsafe { (pd::Obj::<D>::get(pd), Unchecked::new()) };
    let access = Access::from_bits(access as u32);
    into_ptr(publish::<D>(None, || D::get_dma_mr(core, access, memory)))
}

/// `alloc_mr`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn alloc<D: Driver>(
    pd: *mut bindings::ib_pd,
    ty: bindings::ib_mr_type,
    max_pages: u32,
) -> *mut bindings::ib_mr {
    into_ptr((|| {
        if ty != bindings::ib_mr_type_IB_MR_TYPE_MEM_REG {
            return Err(not_supported());
        }
        if max_pages > D::MAX_FAST_PAGES {
            return Err(EINVAL);
        }
        // SAFETY: `ib_core` passes a protection domain.
        let core = unsafe { pd::Obj::<D>::get(pd) };
        let fast = FastPages::new(max_pages)?;
        publish::<D>(Some(fast.clone()), || D::alloc_mr(core, fast))
    })())
}

/// Adds a page to the list that [`map`] is filling.
///
/// # Safety
///
/// Only `ib_sg_to_pages` may call this, from within [`map`].
unsafe extern "C" fn set_page<D: Driver>(mr: *mut bindings::ib_mr, address: u64) -> c_int {
    // SAFETY: `map` passed the object.
    let private = unsafe { Obj::<D>::get(mr) };
    match &private.fast {
        Some(fast) if fast.mapped.lock().push(address as usize) => 0,
        Some(_) => ENOMEM.to_errno(),
        None => EINVAL.to_errno(),
    }
}

/// `map_mr_sg`. Any context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn map<D: Driver>(
    mr: *mut bindings::ib_mr,
    sg: *mut kernel::bindings::scatterlist,
    entries: c_int,
    offset: *mut c_uint,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes an object that it created.
        let private = unsafe { Obj::<D>::get(mr) };
        let fast = private.fast.as_ref().ok_or(EINVAL)?;
        fast.mapped.lock().clear();
        // SAFETY: The consumer passes a valid list; `set_page` accepts the object.
        let count =
            unsafe { bindings::ib_sg_to_pages(mr, sg, entries, offset, Some(set_page::<D>)) };
        if count <= 0 {
            return Ok(count);
        }
        // SAFETY: The object is valid, and `ib_sg_to_pages` has set these fields.
        let (iova, length, page_size) = unsafe { ((*mr).iova, (*mr).length, (*mr).page_size) };
        if !page_size.is_power_of_two() {
            return Err(EINVAL);
        }
        let first_offset = (iova as usize) & (page_size as usize).wrapping_sub(1);
        // SAFETY: The consumer vouches for the pages: it maps them for access by peers until it
        // invalidates the key.
        unsafe {
            fast.mapped
                .lock()
                .set_range(page_size.trailing_zeros(), first_offset, length)?;
        }
        fast.iova.store(iova, Relaxed);
        Ok(count)
    })
}

/// Whether the process was not told of its region, and is not going to be: its verb fails. uverbs does not expect that
/// such a region cannot be destroyed. But it was there while the answer was written; and who reads that as it is written
/// knows the key.
///
/// # Safety
///
/// `mr` must be a process's region that `ib_core` is destroying.
unsafe fn is_unanswered(mr: *const bindings::ib_mr) -> bool {
    // SAFETY: The caller promises that the region is valid, and of a process: then the union is its `uobject`, which
    // lives longer.
    unsafe {
        let user = (&raw const (*mr).__bindgen_anon_1).cast::<*const bindings::ib_uobject>();
        // What was answered is on the list of its file.
        let list = &raw const (*user.read()).list;
        core::ptr::eq((*list).next, list)
    }
}

/// `dereg_mr`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn deregister<D: Driver>(
    mr: *mut bindings::ib_mr,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: `ib_core` destroys an object that `publish` made; no other operation on it is in progress.
    // It comes again if this fails, and only then.
    let core = unsafe { &Obj::<D>::get(mr).core };
    if let Err(error) = D::dereg_mr(core) {
        // SAFETY: As above; that fails for a process's region only.
        if !unsafe { is_unanswered(mr) } {
            return error.to_errno();
        }
        D::abandon_mr(core);
    }
    // SAFETY: As above; nobody uses the private part any more, and nobody will.
    let private = unsafe { Obj::<D>::take(mr) };
    drop(private);
    // SAFETY: The memory came from a `KBox` of this type, whose private part was just moved out;
    // an `Object` drops neither part by itself.
    drop(unsafe { KBox::from_raw(mr.cast::<Obj<D>>()) });
    0
}
