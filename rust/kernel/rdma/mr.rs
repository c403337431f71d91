// SPDX-License-Identifier: GPL-2.0

//! Memory regions.

mod advice;
mod fast;

pub(crate) use self::{
    advice::advise,
    fast::map, //
};
pub use self::{
    advice::{
        Advice,
        Advise,
        Advised,
        AdvisedRanges, //
    },
    fast::{
        Activation,
        FastPages, //
    }, //
};

use crate::{
    access::Access,
    details::Details,
    driver::Driver,
    error::not_supported,
    memory::Unchecked,
    object::Object,
    on_demand::OnDemand,
    pd,
    umem::Umem, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};
use rdma_bindings as bindings;

/// A process's memory, for a region.
#[derive(Clone)]
pub enum UserMemory {
    /// Pinned until the region is destroyed; also another driver's buffer.
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

/// Memory that a process registers.
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

    /// The memory that a process has registered. Errors: `EINVAL` if it was no process. Context: process.
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

    /// Adds to `rdma -dd resource show mr`, beyond what `ib_core` knows, for any user: no addresses.
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

/// Makes a region of a process at the address `iova`, of the `length` bytes that `find` returns for its rights. Process
/// context.
///
/// # Safety
///
/// `pd` must be a protection domain of a registered device whose driver's regions are of the type `M`.
unsafe fn register<M: MemoryRegion>(
    pd: *mut bindings::ib_pd,
    iova: u64,
    length: u64,
    access: c_int,
    dmah: *mut bindings::ib_dmah,
    find: impl FnOnce(Access) -> Result<UserMemory>,
) -> *mut bindings::ib_mr {
    into_ptr((|| {
        if !dmah.is_null() {
            return Err(not_supported());
        }
        let access = user_access(access)?;
        let region = UserRegion {
            iova,
            access,
            memory: find(access)?,
        };
        // SAFETY: By the promise of the caller.
        let pd = unsafe { pd::Obj::<M::Pd>::get(pd) };
        let mr = publish(None, || M::register_user(pd, region))?;
        // `ib_core` does so after some of its calls only.
        // SAFETY: `publish` has just returned it, so it is valid, and nobody else has it.
        unsafe {
            (*mr).iova = iova;
            (*mr).length = length;
        }
        Ok(mr)
    })())
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
    // SAFETY: `ib_core` passes a protection domain of a registered device of this driver.
    unsafe {
        register::<M>(pd, iova, length, access, dmah, |access| {
            user_memory((*pd).device, start, length, iova, access)
        })
    }
}

/// `reg_user_mr_dmabuf`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn register_dma_buf<M: MemoryRegion>(
    pd: *mut bindings::ib_pd,
    offset: u64,
    length: u64,
    iova: u64,
    fd: c_int,
    access: c_int,
    dmah: *mut bindings::ib_dmah,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> *mut bindings::ib_mr {
    let find = |access: Access| {
        if access.contains(Access::ON_DEMAND) || access.contains(Access::FLUSH_PERSISTENT) {
            return Err(not_supported());
        }
        // The last address must exist.
        iova.checked_add(length).ok_or(EINVAL)?;
        // SAFETY: `ib_core` passes a protection domain of a registered device, which outlives its regions.
        let umem = unsafe {
            let device = crate::device::embedded((*pd).device);
            Umem::of_dma_buf(device, fd, offset, length)?
        };
        Ok(UserMemory::Pinned(umem))
    };
    // SAFETY: `ib_core` passes a protection domain of a registered device of this driver.
    unsafe { register::<M>(pd, iova, length, access, dmah, find) }
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
    Ok(UserMemory::Pinned(umem))
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

/// Whether the process was not told of its region, and is not going to be: its verb fails. uverbs does not expect that
/// such a region cannot be destroyed. But it was there while the answer was written; and a thread that reads it as it is
/// written knows the key.
///
/// # Safety
///
/// `mr` must be a region that `ib_core` is destroying.
unsafe fn is_unanswered(mr: *const bindings::ib_mr) -> bool {
    // SAFETY: The caller promises that the region is valid. The union is the `uobject` of a region of this type, which
    // lives longer, or null if a kernel client registered it.
    unsafe {
        if (*mr).type_ != bindings::ib_mr_type_IB_MR_TYPE_USER {
            return false;
        }
        let user = (&raw const (*mr).__bindgen_anon_1).cast::<*const bindings::ib_uobject>();
        let user = user.read();
        if user.is_null() {
            return false;
        }
        // An object whose creation was answered is on the list of its file.
        let list = &raw const (*user).list;
        // Other threads change it, under a lock of the file.
        core::ptr::eq((&raw const (*list).next).read_volatile(), list)
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
        // SAFETY: As above.
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
