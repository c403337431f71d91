// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use crate::{
    cq,
    details::Details,
    device::Device,
    error::not_supported,
    events::{
        Link,
        Source, //
    },
    object::Object,
    pd,
    ucontext,
    udata::Udata,
    wr::{
        self,
        RecvWrs, //
    },
    xrcd, //
};
use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// The attributes of a shared receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Receive requests outstanding.
    pub max_wr: u32,
    /// Segments per receive request.
    pub max_sge: u32,
    /// The limit that is armed, in requests; 0 if none is.
    pub limit: u32,
}

/// The changes that a consumer asks for.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Receive requests outstanding.
    pub max_wr: Option<u32>,
    /// Arms the event for when there are fewer requests than this; 0 disarms it.
    pub limit: Option<u32>,
}

/// The domain and the CQ of an XRC SRQ.
pub struct Xrc<D, C> {
    /// The domain: QPs of it, and no others, take from the queue.
    pub domain: Arc<D>,
    /// Where its requests complete, whichever QP takes them.
    pub cq: Arc<C>,
}

/// The attributes that a consumer asks for of a new shared receive queue, whose core is a `Q`.
pub struct Init<Q: SharedReceiveQueue> {
    /// Receive requests outstanding.
    pub max_wr: u32,
    /// Segments per receive request.
    pub max_sge: u32,
    /// The process's context; [`None`] for a kernel consumer.
    pub context: Option<Arc<Q::Context>>,
    /// [`None`] for a queue that is named by the QPs that take from it.
    pub xrc: Option<Xrc<Q::Xrcd, Q::Cq>>,
    /// Raises the queue's events.
    pub events: Events,
}

/// The core of a shared receive queue.
pub trait SharedReceiveQueue: Sized + Send + Sync + 'static {
    /// The core of the device.
    type Device: Device;
    /// The core of a process's context.
    type Context: 'static;
    /// The core of a protection domain.
    type Pd: 'static;
    /// The core of a completion queue.
    type Cq: 'static;
    /// The core of an XRC domain.
    type Xrcd: 'static;

    /// Makes a shared receive queue. Its limit is not armed: that is for `modify` alone.
    ///
    /// Errors: `EINVAL` if a size is out of range. Context: process, may sleep.
    fn create(
        pd: &Arc<Self::Pd>,
        init: Init<Self>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<Arc<Self>>;

    /// The number by which packets name it, if it is an XRC SRQ. Context: process.
    fn xrc_number(&self) -> Option<u32>;

    /// Its sizes, and the limit that is armed. Context: any, interrupts may be off.
    fn query(&self) -> Attr;

    /// Changes its size, or arms its limit. A limit that is above the number of requests is reached at
    /// once. `udata` is of the process that calls; [`None`] for a kernel consumer.
    ///
    /// Errors: `EINVAL` if the size is out of range, smaller than what is posted, or smaller than the
    /// limit, or if the queue has failed; `EOPNOTSUPP` for the size of a kernel consumer's queue. Nothing is
    /// changed then.
    /// Context: process, may sleep.
    fn modify(
        self: &Arc<Self>,
        change: Change,
        udata: Option<(&Arc<Self::Context>, &mut Udata<'_>)>,
    ) -> Result;

    /// Destroys it: its process can no longer map it. No QP uses it any more. Context: process, may sleep.
    fn destroy(self: &Arc<Self>);

    /// Posts a kernel consumer's receive requests.
    ///
    /// Errors: `ENOMEM` if the queue is full, `EINVAL` if a list is too long or the queue is a
    /// process's. Context: any, interrupts may be off.
    fn post_recv(self: &Arc<Self>, wrs: &mut RecvWrs<'_>) -> Result;

    /// Adds to `rdma -dd resource show srq`, beyond what `ib_core` knows. Context: process.
    fn describe(&self, details: &mut Details<'_>) -> Result;
}

/// The error in what [`Events`] notes. The bits below count limits: each was armed by a call of its own.
const FAILED: u32 = 1 << 31;

impl Source for bindings::ib_srq {
    fn kinds(pending: u32) -> impl Iterator<Item = bindings::ib_event_type> {
        let limits =
            (0..pending & !FAILED).map(|_| bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED);
        limits.chain((pending & FAILED != 0).then_some(bindings::ib_event_type_IB_EVENT_SRQ_ERR))
    }

    unsafe fn tell(srq: *mut Self, event: &mut bindings::ib_event) {
        // SAFETY: The caller promises that the object is valid, and the context that handlers may expect.
        unsafe {
            event.device = (*srq).device;
            if let Some(handler) = (*srq).event_handler {
                handler(event, (*srq).srq_context);
            }
        }
    }
}

/// Raises the asynchronous events of one shared receive queue.
///
/// Turns into nothing once the queue is destroyed.
#[derive(Clone)]
pub struct Events(Arc<Link<bindings::ib_srq>>);

impl Events {
    /// Tells the consumer that its limit was reached, once for each call. Context: any; the
    /// consumer's handler runs later, in process context.
    pub fn limit_reached(&self) {
        self.0.raise(|pending| pending.wrapping_add(1));
    }

    /// Tells the consumer that the queue is in error, at most once for all calls before it is told.
    /// Context: any; the consumer's handler runs later, in process context.
    pub fn error(&self) {
        self.0.raise(|pending| pending | FAILED);
    }
}

pub(crate) struct Private<T> {
    pub(crate) core: Arc<T>,
    link: Arc<Link<bindings::ib_srq>>,
    is_user: bool,
}

pub(crate) type Obj<T> = Object<bindings::ib_srq, Private<T>>;

/// `create_srq`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn create<Q: SharedReceiveQueue>(
    srq: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_init_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes valid attributes that nobody else uses, and for user calls valid
        // driver data.
        let (attr, context, mut udata) = unsafe {
            (
                &mut *attr,
                ucontext::of_udata::<Q::Context>(udata),
                Udata::from_raw(udata),
            )
        };
        let is_xrc = match attr.srq_type {
            bindings::ib_srq_type_IB_SRQT_BASIC => false,
            bindings::ib_srq_type_IB_SRQT_XRC => true,
            _ => return Err(not_supported()),
        };
        let is_user = udata.is_some();
        // SAFETY: `ib_core` passes a new object that belongs to a protection domain of a device of
        // this driver.
        let (device, pd) = unsafe {
            (
                crate::device::core::<Q::Device>((*srq).device),
                pd::Obj::<Q::Pd>::get((*srq).pd),
            )
        };
        if is_user && context.is_none() {
            return Err(EINVAL);
        }
        // SAFETY: The object lives until it is destroyed, which cuts the link, or until its creation
        // fails, which does so too.
        let link = unsafe { Link::new(srq, device.process_queue())? };
        // SAFETY: For such a queue, `ib_core` passes a domain and a queue of the same device.
        let xrc = is_xrc.then(|| unsafe {
            let domain = attr.ext.__bindgen_anon_1.xrc.as_ref().xrcd;
            Xrc {
                domain: xrcd::Obj::<Q::Xrcd>::get(domain).clone(),
                cq: cq::Obj::<Q::Cq>::get(attr.ext.cq).core.clone(),
            }
        });
        let init = Init::<Q> {
            max_wr: attr.attr.max_wr,
            max_sge: attr.attr.max_sge,
            context: context.cloned(),
            xrc,
            events: Events(link.clone()),
        };
        // The driver may still have what it was given, somewhere, when it fails.
        let core = Q::create(pd, init, udata.as_mut()).inspect_err(|_| link.cut())?;
        core.query().to_raw(&mut attr.attr);
        // SAFETY: The object is new; `ib_core` allocated it with the size in the vtable.
        unsafe {
            if let Some(number) = core.xrc_number() {
                (*srq).ext.__bindgen_anon_1.xrc.as_mut().srq_num = number;
            }
            Obj::<Q>::init(
                srq,
                Private {
                    core,
                    link,
                    is_user,
                },
            );
        }
        Ok(0)
    })
}

impl Attr {
    fn to_raw(self, raw: &mut bindings::ib_srq_attr) {
        raw.max_wr = self.max_wr;
        raw.max_sge = self.max_sge;
        raw.srq_limit = self.limit;
    }
}

/// `modify_srq`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn modify<Q: SharedReceiveQueue>(
    srq: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_attr,
    mask: bindings::ib_srq_attr_mask,
    udata: *mut bindings::ib_udata,
) -> c_int {
    const MAX_WR: u32 = bindings::ib_srq_attr_mask_IB_SRQ_MAX_WR;
    const LIMIT: u32 = bindings::ib_srq_attr_mask_IB_SRQ_LIMIT;
    from_result(|| {
        if mask & !(MAX_WR | LIMIT) != 0 {
            return Err(EINVAL);
        }
        // SAFETY: `ib_core` passes an object that it created, valid attributes, and the valid
        // driver data of a process's call; the call is to the object's device.
        let (private, attr, context, mut udata) = unsafe {
            (
                Obj::<Q>::get(srq),
                &*attr,
                ucontext::of_udata::<Q::Context>(udata),
                Udata::from_raw(udata),
            )
        };
        let change = Change {
            max_wr: (mask & MAX_WR != 0).then_some(attr.max_wr),
            limit: (mask & LIMIT != 0).then_some(attr.srq_limit),
        };
        private.core.modify(change, context.zip(udata.as_mut()))?;
        Ok(0)
    })
}

/// `query_srq`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn query<Q: SharedReceiveQueue>(
    srq: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_attr,
) -> c_int {
    // SAFETY: `ib_core` passes an object that it created, and a struct to fill in, which may be
    // uninitialised, so it is zeroed before there is a reference to it.
    let (private, attr) = unsafe {
        attr.write_bytes(0, 1);
        (Obj::<Q>::get(srq), &mut *attr)
    };
    private.core.query().to_raw(attr);
    0
}

/// `destroy_srq`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn destroy<Q: SharedReceiveQueue>(
    srq: *mut bindings::ib_srq,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: `ib_core` destroys an object that it created, once, and then frees it; no other
    // operation on it is in progress.
    let private = unsafe { Obj::<Q>::take(srq) };
    private.core.destroy();
    private.link.cut();
    0
}

/// `post_srq_recv`. Any context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn post_recv<Q: SharedReceiveQueue>(
    srq: *mut bindings::ib_srq,
    list: *const bindings::ib_recv_wr,
    bad: *mut *const bindings::ib_recv_wr,
) -> c_int {
    // SAFETY: `ib_core` passes an object that it created.
    let private = unsafe { Obj::<Q>::get(srq) };
    let (result, at) = if private.is_user {
        // A process's requests are in its ring. A list here was made by hand.
        (Err(EINVAL), list)
    } else {
        // SAFETY: A kernel consumer passes a valid list of requests.
        let mut wrs = unsafe { RecvWrs::new(list) };
        let result = private.core.post_recv(&mut wrs);
        (result, wrs.current())
    };
    // SAFETY: `ib_core` passes null, or a place to fill in.
    unsafe { wr::answer(result, at, bad) }
}
