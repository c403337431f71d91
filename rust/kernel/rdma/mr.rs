// SPDX-License-Identifier: GPL-2.0

//! Memory regions.

use crate::{
    access::Access,
    details::Details,
    driver::Driver,
    error::not_supported,
    extents::Extents,
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

/// What a kernel consumer maps: pages of one size, or pieces of any.
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

/// What keys lead to.
struct Active {
    mapping: Mapping,
    /// Counts registrations, so that who was let in by one does not act on the next.
    turn: u64,
}

/// The pages of a fast-registration region, or pieces of memory, which a kernel consumer maps ([`map_mr_sg`]) and a work
/// request activates.
///
/// [`map_mr_sg`]: srctree/include/rdma/ib_verbs.h
#[pin_data]
pub struct FastPages {
    capacity: u32,
    /// What the consumer mapped last.
    #[pin]
    mapped: SpinLockIrq<Mapping>,
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
    fn new(capacity: u32, with_gaps: bool) -> Result<Arc<Self>> {
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
                capacity,
                mapped <- new_spin_lock_irq!(mapped),
                active <- new_spin_lock_bh!(Active { mapping, turn: 0 }),
                iova: Atomic::new(0),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Pages or pieces that can be mapped.
    pub fn capacity(&self) -> u32 {
        self.capacity
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

    /// Makes the region inaccessible; who copies from or into it at the moment has finished when
    /// this returns.
    pub fn deactivate(&self) {
        self.active.lock().mapping.clear();
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
        f(active.mapping.memory())
    }
}

/// A process's memory, for a region.
#[derive(Clone)]
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

    /// Whether it is the same as `other`: not only the same addresses.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pinned(this), Self::Pinned(other)) => Arc::ptr_eq(this, other),
            (Self::OnDemand(this), Self::OnDemand(other)) => this.is_same(other),
            _ => false,
        }
    }

    /// Gives it back, once nobody copies from or into it. Context: process, may sleep.
    pub fn release(&self) {
        match self {
            Self::Pinned(umem) => umem.release(),
            Self::OnDemand(memory) => memory.release(),
        }
    }

    /// Whether it can have these rights as it is. Errors: `EOPNOTSUPP`, `EINVAL`.
    fn check_access(&self, access: Access) -> Result {
        match self {
            Self::Pinned(_) if access.contains(Access::ON_DEMAND) => Err(EINVAL),
            Self::Pinned(umem) => umem.check_access(access),
            Self::OnDemand(_) if !access.contains(Access::ON_DEMAND) => Err(EINVAL),
            Self::OnDemand(_) => Ok(()),
        }
    }
}

/// What a process registers.
pub struct UserRegion {
    /// The first address.
    pub iova: u64,
    /// The rights.
    pub access: Access,
    /// The memory.
    pub memory: UserMemory,
}

/// The core of a memory region.
pub trait MemoryRegion: Sized + Send + Sync + 'static {
    /// The core of a protection domain.
    type Pd: 'static;

    /// Makes a region of a process's memory. Context: process, may sleep.
    fn register_user(pd: &Arc<Self::Pd>, region: UserRegion) -> Result<Arc<Self>>;

    /// What a process has registered. Errors: `EINVAL` if it was no process. Context: process.
    fn user_region(&self) -> Result<UserRegion>;

    /// Registers something else in the place of a process's region, under the same key, and lets go of memory that is
    /// not in it any more: when this returns nobody copies from or into memory that was its, and is not any more, or by
    /// rights or from a domain that it had.
    ///
    /// Errors: `EBUSY` while memory windows are bound to it (IBTA 10.6.7.2.7), `EINVAL` if it is no such region, or its
    /// last byte had no address; nothing is changed then. Context: process, may sleep.
    fn reregister_user(&self, pd: &Arc<Self::Pd>, region: UserRegion) -> Result;

    /// Makes a region of all memory, for a kernel consumer. Context: process, may sleep.
    fn get_dma(pd: &Arc<Self::Pd>, access: Access, memory: Unchecked) -> Result<Arc<Self>>;

    /// Makes a fast-registration region, free for now. Context: process, may sleep.
    fn alloc(pd: &Arc<Self::Pd>, pages: Arc<FastPages>) -> Result<Arc<Self>>;

    /// Its key, local and remote. Context: process or softirq.
    fn key(&self) -> u32;

    /// Destroys a region: when this returns its memory is not touched any more.
    ///
    /// Errors: `EBUSY` while memory windows are bound to it, as `ibv_dereg_mr(3)` has it (IBTA 10.6.7.2.6), which only
    /// happens to one of a process; nothing is changed then. Context: process, may sleep.
    fn deregister(self: &Arc<Self>) -> Result;

    /// Destroys a region of which its process was never told: as [`MemoryRegion::deregister`], but windows that are
    /// bound to it do not keep it; they have no memory any more. Context: process, may sleep.
    fn abandon(self: &Arc<Self>);

    /// What `rdma -dd resource show mr` shows of it, beyond what `ib_core` knows, to any user: no addresses.
    /// Context: process.
    fn describe(&self, details: &mut Details<'_>) -> Result;
}

pub(crate) struct Private<T> {
    pub(crate) core: Arc<T>,
    fast: Option<Arc<FastPages>>,
}

pub(crate) type Obj<T> = Object<bindings::ib_mr, Private<T>>;

impl<T> Private<T> {
    /// Notes where a fast-registration region starts, at the moment its registration is posted.
    pub(crate) fn note_iova(&self, iova: u64) {
        if let Some(fast) = &self.fast {
            fast.iova.store(iova, Relaxed);
        }
    }
}

/// Makes the C object of a region, which drivers allocate, and the region by `make`: last, as peers may use it, and bind
/// windows to it, from then on.
fn publish<M: MemoryRegion>(
    fast: Option<Arc<FastPages>>,
    make: impl FnOnce() -> Result<Arc<M>>,
) -> Result<*mut bindings::ib_mr> {
    let memory = KBox::<Obj<M>>::new_uninit(GFP_KERNEL_ACCOUNT | __GFP_ZERO)?;
    let core = make()?;
    let key = core.key();
    let mr = KBox::into_raw(memory).cast::<bindings::ib_mr>();
    // SAFETY: The memory is zeroed, which is valid for a `struct ib_mr`, has room for an `Obj<M>`,
    // and nobody else knows it.
    unsafe {
        (*mr).lkey = key;
        (*mr).rkey = key;
        Obj::<M>::init(mr, Private { core, fast });
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
pub(crate) unsafe extern "C" fn register_user<M: MemoryRegion>(
    pd: *mut bindings::ib_pd,
    start: u64,
    length: u64,
    iova: u64,
    access: c_int,
    dmah: *mut bindings::ib_dmah,
    _udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    into_ptr((|| {
        if !dmah.is_null() {
            return Err(not_supported());
        }
        let access = user_access(access)?;
        // SAFETY: `ib_core` passes a protection domain of a registered device of this driver.
        let (memory, pd) = unsafe {
            (
                user_memory((*pd).device, start, length, iova, access)?,
                pd::Obj::<M::Pd>::get(pd),
            )
        };
        let region = UserRegion {
            iova,
            access,
            memory,
        };
        publish(None, || M::register_user(pd, region))
    })())
}

/// The rights that a process asks for. Errors: `EOPNOTSUPP` if there are none such.
fn user_access(bits: c_int) -> Result<Access> {
    let access = Access::from_bits(bits as u32).without(Access::OPTIONAL);
    let known = Access::LOCAL_WRITE
        | Access::REMOTE
        | Access::FLUSH
        | Access::MW_BIND
        | Access::ON_DEMAND
        | Access::HUGETLB;
    if access.without(known) != Access::NONE {
        return Err(not_supported());
    }
    // Its pages may be ordinary ones tomorrow.
    if access.contains(Access::ON_DEMAND | Access::FLUSH_PERSISTENT) {
        return Err(not_supported());
    }
    Ok(access)
}

/// The memory that a process registers at the address `iova`. Process context.
///
/// # Safety
///
/// `device` must be a registered device without a DMA device.
unsafe fn user_memory(
    device: *mut bindings::ib_device,
    start: u64,
    length: u64,
    iova: u64,
    access: Access,
) -> Result<UserMemory> {
    // The last address must exist.
    iova.checked_add(length).ok_or(EINVAL)?;
    if access.contains(Access::ON_DEMAND) {
        return Ok(UserMemory::OnDemand(match (start, length) {
            // All of the address space, as `ibv_reg_mr(3)` has it, for its own addresses.
            (0, u64::MAX) if iova != 0 || access.contains(Access::HUGETLB) => {
                return Err(EINVAL);
            }
            (0, u64::MAX) => OnDemand::all()?,
            _ => OnDemand::range(start, length)?,
        }));
    }
    // SAFETY: By the promise of the caller.
    let umem = unsafe { Umem::get(device, start, length, access)? };
    Ok(UserMemory::Pinned(Arc::pin_init(umem, GFP_KERNEL_ACCOUNT)?))
}

/// `rereg_user_mr`: in place, under the same keys. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn reregister_user<M: MemoryRegion>(
    mr: *mut bindings::ib_mr,
    flags: c_int,
    start: u64,
    length: u64,
    iova: u64,
    access: c_int,
    pd: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    const TRANSLATION: c_int = bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS as c_int;
    const ACCESS: c_int = bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS as c_int;
    let result = (|| {
        // SAFETY: `ib_core` passes a region of a process, and the protection domain that it is to be in: its own, or
        // another one of the device, as the process says.
        let (core, device, pd) = unsafe {
            (
                &Obj::<M>::get(mr).core,
                (*mr).device,
                pd::Obj::<M::Pd>::get(pd),
            )
        };
        let mut region = core.user_region()?;
        if flags & ACCESS != 0 {
            region.access = user_access(access)?;
        }
        if flags & TRANSLATION != 0 {
            region.iova = iova;
            // SAFETY: The device is registered, as it has objects, and has no DMA device.
            region.memory = unsafe { user_memory(device, start, length, iova, region.access)? };
        } else {
            region.memory.check_access(region.access)?;
        }
        core.reregister_user(pd, region)
    })();
    match result {
        Ok(()) => core::ptr::null_mut(),
        Err(error) => error.to_ptr(),
    }
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

/// A protection domain in which processes say what they will do with their memory.
pub trait Advise: Sized + Send + Sync + 'static {
    /// Prepares for what will be done with regions that are paged on demand, before it returns if `flush`. Nothing is done
    /// if one of the ranges is refused.
    ///
    /// Errors: as [`ibv_advise_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_advise_mr.3.html) has them.
    /// Context: process; with `flush` it may sleep for as long as whoever serves the process's page faults likes.
    fn advise(self: &Arc<Self>, advice: Advice, flush: bool, ranges: AdvisedRanges<'_>) -> Result;
}

/// `advise_mr`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn advise<P: Advise>(
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
            (pd::Obj::<P>::get(pd), list)
        };
        let ranges = AdvisedRanges(list.iter());
        pd.advise(advice, flags & flush != 0, ranges)?;
        Ok(0)
    })
}

/// `get_dma_mr`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn get_dma<M: MemoryRegion>(
    pd: *mut bindings::ib_pd,
    access: c_int,
) -> *mut bindings::ib_mr {
    // SAFETY: `ib_core` passes a protection domain. Only kernel consumers get such regions,
    // and vouch for the addresses that they use with them.
    let (core, memory) = unsafe { (pd::Obj::<M::Pd>::get(pd), Unchecked::new()) };
    let access = Access::from_bits(access as u32);
    into_ptr(publish(None, || M::get_dma(core, access, memory)))
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
        let with_gaps = match ty {
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG => false,
            bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS => true,
            _ => return Err(not_supported()),
        };
        if max_pages > D::MAX_FAST_PAGES {
            return Err(EINVAL);
        }
        // SAFETY: `ib_core` passes a protection domain.
        let core = unsafe { pd::Obj::<D::Pd>::get(pd) };
        let fast = FastPages::new(max_pages, with_gaps)?;
        publish(Some(fast.clone()), || D::Mr::alloc(core, fast))
    })())
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
        if count <= 0 {
            return Ok(count);
        }
        // SAFETY: The object is valid, and `ib_sg_to_pages` has set these fields.
        let (iova, length, page_size) = unsafe { ((*mr).iova, (*mr).length, (*mr).page_size) };
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
pub(crate) unsafe extern "C" fn deregister<M: MemoryRegion>(
    mr: *mut bindings::ib_mr,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: `ib_core` destroys an object that `publish` made; no other operation on it is in progress.
    // It comes again if this fails, and only then.
    let core = unsafe { &Obj::<M>::get(mr).core };
    if let Err(error) = core.deregister() {
        // SAFETY: As above; that fails for a process's region only.
        if !unsafe { is_unanswered(mr) } {
            return error.to_errno();
        }
        core.abandon();
    }
    // SAFETY: As above; nobody uses the private part any more, and nobody will.
    let private = unsafe { Obj::<M>::take(mr) };
    drop(private);
    // SAFETY: The memory came from a `KBox` of this type, whose private part was just moved out;
    // an `Object` drops neither part by itself.
    drop(unsafe { KBox::from_raw(mr.cast::<Obj<M>>()) });
    0
}
