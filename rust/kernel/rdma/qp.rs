// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

mod attr;
mod exclusion;
mod handle;
mod multicast;

pub(crate) use self::multicast::{
    attach,
    detach, //
};
pub use self::{
    attr::{
        Attr,
        AttrMask,
        Modify, //
    },
    handle::{
        Event,
        Handle, //
    },
    multicast::Multicast, //
};

use self::exclusion::Exclusion;
use crate::{
    counter::Counter,
    cq,
    details::Details,
    device::Device,
    error::not_supported,
    events::Link,
    object::Object,
    pd, srq, ucontext,
    udata::Udata,
    wr::{
        self,
        RecvWrs,
        SendWrs, //
    },
    xrcd::{
        self,
        XrcDomain, //
    },
};
use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// Transport services (`enum ib_qp_type`; the same numbers in userspace).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Type {
    /// The general services QP, number 1.
    Gsi = bindings::ib_qp_type_IB_QPT_GSI,
    /// Reliable connection.
    Rc = bindings::ib_qp_type_IB_QPT_RC,
    /// Unreliable connection.
    Uc = bindings::ib_qp_type_IB_QPT_UC,
    /// Unreliable datagram.
    Ud = bindings::ib_qp_type_IB_QPT_UD,
    /// Raw packets: whole frames of the link. A process has it only with `CAP_NET_RAW`: `ib_core` asks.
    RawPacket = bindings::ib_qp_type_IB_QPT_RAW_PACKET,
    /// The end of an XRC connection that sends requests.
    XrcInitiator = bindings::ib_qp_type_IB_QPT_XRC_INI,
    /// The end of an XRC connection that takes requests, each for the XRC SRQ that it names. It may be shared by
    /// processes.
    XrcTarget = bindings::ib_qp_type_IB_QPT_XRC_TGT,
}

impl Type {
    fn from_raw(raw: bindings::ib_qp_type) -> Option<Self> {
        Some(match raw {
            bindings::ib_qp_type_IB_QPT_GSI => Self::Gsi,
            bindings::ib_qp_type_IB_QPT_RC => Self::Rc,
            bindings::ib_qp_type_IB_QPT_UC => Self::Uc,
            bindings::ib_qp_type_IB_QPT_UD => Self::Ud,
            bindings::ib_qp_type_IB_QPT_RAW_PACKET => Self::RawPacket,
            bindings::ib_qp_type_IB_QPT_XRC_INI => Self::XrcInitiator,
            bindings::ib_qp_type_IB_QPT_XRC_TGT => Self::XrcTarget,
            _ => return None,
        })
    }
}

/// States (`enum ib_qp_state`; the same numbers in userspace).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// As created.
    #[default]
    Reset = bindings::ib_qp_state_IB_QPS_RESET,
    /// Receives may be posted.
    Init = bindings::ib_qp_state_IB_QPS_INIT,
    /// Ready to receive.
    Rtr = bindings::ib_qp_state_IB_QPS_RTR,
    /// Ready to send.
    Rts = bindings::ib_qp_state_IB_QPS_RTS,
    /// Send queue drained, or draining.
    Sqd = bindings::ib_qp_state_IB_QPS_SQD,
    /// Send queue in error.
    Sqe = bindings::ib_qp_state_IB_QPS_SQE,
    /// In error.
    Error = bindings::ib_qp_state_IB_QPS_ERR,
}

impl State {
    /// Makes a state from its number; a number that is none means [`State::Error`].
    #[inline]
    pub const fn from_bits(bits: u32) -> Self {
        match bits {
            bindings::ib_qp_state_IB_QPS_RESET => Self::Reset,
            bindings::ib_qp_state_IB_QPS_INIT => Self::Init,
            bindings::ib_qp_state_IB_QPS_RTR => Self::Rtr,
            bindings::ib_qp_state_IB_QPS_RTS => Self::Rts,
            bindings::ib_qp_state_IB_QPS_SQD => Self::Sqd,
            bindings::ib_qp_state_IB_QPS_SQE => Self::Sqe,
            _ => Self::Error,
        }
    }

    fn from_raw(raw: bindings::ib_qp_state) -> Result<Self> {
        if raw > bindings::ib_qp_state_IB_QPS_ERR {
            return Err(EINVAL);
        }
        Ok(Self::from_bits(raw))
    }
}

/// Sizes of a QP's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cap {
    /// Send requests outstanding.
    pub max_send_wr: u32,
    /// Receive requests outstanding.
    pub max_recv_wr: u32,
    /// Segments per send request.
    pub max_send_sge: u32,
    /// Segments per receive request.
    pub max_recv_sge: u32,
    /// Bytes of inline data per send request.
    pub max_inline_data: u32,
}

impl Cap {
    fn from_raw(raw: &bindings::ib_qp_cap) -> Self {
        Self {
            max_send_wr: raw.max_send_wr,
            max_recv_wr: raw.max_recv_wr,
            max_send_sge: raw.max_send_sge,
            max_recv_sge: raw.max_recv_sge,
            max_inline_data: raw.max_inline_data,
        }
    }

    fn to_raw(self, raw: &mut bindings::ib_qp_cap) {
        raw.max_send_wr = self.max_send_wr;
        raw.max_recv_wr = self.max_recv_wr;
        raw.max_send_sge = self.max_send_sge;
        raw.max_recv_sge = self.max_recv_sge;
        raw.max_inline_data = self.max_inline_data;
    }
}

/// The attributes of a new QP, whose core is a `Q`.
pub struct Init<Q: QueuePair> {
    /// Transport service.
    pub ty: Type,
    /// Sizes; what the driver leaves here is what the consumer is told.
    pub cap: Cap,
    /// Every send request asks for a completion.
    pub signal_all: bool,
    /// Where completions of send requests go.
    pub send_cq: Arc<Q::Cq>,
    /// Where completions of receive requests go. Of an XRC initiator, which has none, that of its send requests.
    pub recv_cq: Arc<Q::Cq>,
    /// The domain of an XRC target, which gives it stand-ins for a protection domain and completion queues.
    pub xrcd: Option<Arc<Q::Xrcd>>,
    /// Where receive requests come from; [`None`] if the QP has a receive queue of its own.
    pub srq: Option<Arc<Q::Srq>>,
    /// The context of the process that owns the QP, for ever; [`None`] for a kernel consumer.
    pub context: Option<Arc<Q::Context>>,
    /// Raises the QP's events, and names it in completions.
    pub handle: Handle,
}

/// The core of a queue pair.
pub trait QueuePair: Modify + Multicast + Sized + Send + Sync + 'static {
    /// The core of the device.
    type Device: Device;
    /// The core of a process's context.
    type Context: 'static;
    /// The core of a protection domain.
    type Pd: 'static;
    /// The core of an address handle.
    type Ah: 'static;
    /// The core of a completion queue.
    type Cq: 'static;
    /// The core of a shared receive queue.
    type Srq: 'static;
    /// The core of an XRC domain.
    type Xrcd: XrcDomain<Pd = Self::Pd, Cq = Self::Cq>;
    /// The core of a memory region.
    type Mr: 'static;
    /// The core of a counter.
    type Counter: Counter;

    /// Makes a QP. Context: process, may sleep.
    fn create(
        pd: &Arc<Self::Pd>,
        init: &mut Init<Self>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<Arc<Self>>;

    /// Its number. Context: process.
    fn number(&self) -> u32;

    /// Destroys it: returns when nobody is in it. Its requests get no completions. Context: process, may sleep.
    fn destroy(self: &Arc<Self>);

    /// A process has put send requests into its ring.
    ///
    /// Errors: `EINVAL` if the QP's state takes no send requests; they are dropped then.
    /// Context: process.
    fn doorbell(self: &Arc<Self>) -> Result;

    /// Posts a kernel consumer's send requests, up to the first one that cannot be posted. That has to be the one taken last
    /// from `wrs` then: the consumer is told that this one is refused, and those before it are posted.
    ///
    /// Errors: `EINVAL` if the QP's state takes no requests, or if one does not fit the QP; `ENOMEM` if the queue is full;
    /// `EIO` if the device has stopped. Context: any, interrupts may be off.
    fn post_send(self: &Arc<Self>, wrs: &mut SendWrs<'_, Self::Ah, Self::Mr>) -> Result;

    /// Posts a kernel consumer's receive requests, as [`QueuePair::post_send`] does. Errors: `EINVAL` in RESET, or if a
    /// list is too long; `ENOMEM` if the queue is full. Context: any, interrupts may be off.
    fn post_recv(self: &Arc<Self>, wrs: &mut RecvWrs<'_>) -> Result;

    /// Binds it to a counter: what it counts from now on is `counter`'s, and not the device's. Errors: `EBUSY` if it is
    /// bound. Context: process.
    fn bind_counter(&self, counter: &Arc<Self::Counter>) -> Result;

    /// Undoes [`QueuePair::bind_counter`]: what it counts from now on is the device's. Earlier counts stay.
    /// Context: process.
    fn unbind_counter(&self);

    /// Adds to `rdma -dd resource show qp`, beyond what `ib_core` knows. Context: process.
    fn describe(&self, details: &mut Details<'_>) -> Result;
}

pub(crate) struct Private<T> {
    pub(crate) core: Arc<T>,
    link: Arc<Link<bindings::ib_qp>>,
    /// Calls that wait to be the only one on the C object.
    exclusion: Pin<KBox<Exclusion>>,
    signal_all: bool,
    is_user: bool,
    ty: Type,
}

pub(crate) type Obj<T> = Object<bindings::ib_qp, Private<T>>;

/// `create_qp`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn create<Q: QueuePair>(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_init_attr,
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
        let ty = Type::from_raw(attr.qp_type).ok_or_else(not_supported)?;
        if attr.create_flags != 0 || !attr.rwq_ind_tbl.is_null() {
            return Err(not_supported());
        }
        let is_user = udata.is_some();
        // SAFETY: `ib_core` passes a new object of a device of this driver.
        let device = unsafe { crate::device::core::<Q::Device>((*qp).device) };
        let xrcd = (ty == Type::XrcTarget).then(|| {
            // SAFETY: `ib_core` passes a domain of the same device with such a QP.
            unsafe { xrcd::Obj::<Q::Xrcd>::get(attr.xrcd).clone() }
        });
        // SAFETY: `ib_core` passes queues of the same device, or none.
        let cq = |raw: *mut bindings::ib_cq| unsafe {
            (!raw.is_null()).then(|| &cq::Obj::<Q::Cq>::get(raw).core)
        };
        let (pd, send_cq, recv_cq) = match &xrcd {
            Some(xrcd) => (xrcd.pd(), xrcd.cq(), xrcd.cq()),
            None => {
                let send_cq = cq(attr.send_cq).ok_or(EINVAL)?;
                let recv_cq = match ty {
                    Type::XrcInitiator => send_cq,
                    _ => cq(attr.recv_cq).ok_or(EINVAL)?,
                };
                // SAFETY: A QP of any other type belongs to a protection domain of the same device.
                (unsafe { pd::Obj::<Q::Pd>::get((*qp).pd) }, send_cq, recv_cq)
            }
        };
        // A target may be given an XRC SRQ, which `ib_core` forgets: each request names its own.
        let has_srq = xrcd.is_none() && !attr.srq.is_null();
        let srq = has_srq.then(|| {
            // SAFETY: `ib_core` passes a queue of the same device.
            unsafe { srq::Obj::<Q::Srq>::get(attr.srq).core.clone() }
        });
        if is_user && context.is_none() {
            return Err(EINVAL);
        }
        let exclusion = KBox::pin_init(Exclusion::new(), GFP_KERNEL_ACCOUNT)?;
        // SAFETY: The object lives until it is destroyed, which cuts the link, or until its creation
        // fails, which does so too.
        let link = unsafe { Link::new(qp, device.process_queue())? };
        let signal_all = attr.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR;
        let mut init = Init::<Q> {
            ty,
            cap: Cap::from_raw(&attr.cap),
            signal_all,
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            xrcd: xrcd.clone(),
            srq,
            context: context.cloned(),
            handle: Handle(link.clone()),
        };
        // The driver may still have what it was given, somewhere, when it fails.
        let core = Q::create(pd, &mut init, udata.as_mut()).inspect_err(|_| link.cut())?;
        init.cap.to_raw(&mut attr.cap);
        // SAFETY: The object is new; `ib_core` allocated it with the size in the vtable.
        unsafe {
            (*qp).qp_num = core.number();
            Obj::<Q>::init(
                qp,
                Private {
                    core,
                    link,
                    exclusion,
                    signal_all,
                    is_user,
                    ty,
                },
            );
        }
        Ok(0)
    })
}

/// `modify_qp`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn modify<Q: Modify>(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    mask: c_int,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        let mask = mask as u32;
        if mask & !bindings::ib_qp_attr_mask_IB_QP_ATTR_STANDARD_BITS != 0 {
            return Err(not_supported());
        }
        let mask = AttrMask::from_bits(mask);
        // SAFETY: `ib_core` passes an object that it created, and attributes of which those in the
        // mask are initialised; for an address it has looked up the source GID.
        let (private, attr) = unsafe { (Obj::<Q>::get(qp), Attr::from_raw(attr, mask)?) };
        if mask.contains(AttrMask::AV) || mask.contains(AttrMask::ALT_PATH) {
            // SAFETY: As above.
            unsafe { private.exclusion.enter(qp)? };
        }
        private.core.modify(&attr, mask)?;
        Ok(0)
    })
}

/// `query_qp`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn query<Q: Modify>(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    _mask: c_int,
    init: *mut bindings::ib_qp_init_attr,
) -> c_int {
    // SAFETY: `ib_core` passes an object that it created.
    let private = unsafe { Obj::<Q>::get(qp) };
    let values = private.core.query();
    // SAFETY: `ib_core` passes two structs to fill in. They may be uninitialised, so they are
    // zeroed before there are references to them.
    let (attr, init) = unsafe {
        attr.write_bytes(0, 1);
        init.write_bytes(0, 1);
        (&mut *attr, &mut *init)
    };
    values.to_raw(attr);
    values.cap.to_raw(&mut init.cap);
    init.sq_sig_type = if private.signal_all {
        bindings::ib_sig_type_IB_SIGNAL_ALL_WR
    } else {
        bindings::ib_sig_type_IB_SIGNAL_REQ_WR
    };
    // SAFETY: The object is valid; these fields are constant.
    unsafe {
        // `event_handler` is `ib_core`'s own.
        init.event_handler = (*qp).registered_event_handler;
        init.qp_context = (*qp).qp_context;
        init.send_cq = (*qp).send_cq;
        init.recv_cq = (*qp).recv_cq;
        init.srq = (*qp).srq;
        init.qp_type = (*qp).qp_type;
        init.port_num = (*qp).port;
    }
    0
}

/// `destroy_qp`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn destroy<Q: QueuePair>(
    qp: *mut bindings::ib_qp,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: `ib_core` destroys an object that it created, once, and then frees it; no other
    // operation on it is in progress.
    let private = unsafe { Obj::<Q>::take(qp) };
    private.core.destroy();
    private.link.cut();
    0
}

/// `post_send`. Any context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn post_send<Q: QueuePair>(
    qp: *mut bindings::ib_qp,
    list: *const bindings::ib_send_wr,
    bad: *mut *const bindings::ib_send_wr,
) -> c_int {
    // SAFETY: `ib_core` passes an object that it created.
    let private = unsafe { Obj::<Q>::get(qp) };
    let (result, at) = if private.ty == Type::XrcTarget {
        // It sends nothing. `ib_core` made it, so it is no process's, but processes name it in their calls.
        (Err(EINVAL), list)
    } else if private.is_user {
        // A process's requests are in its ring. A list here was made by hand, with addresses and
        // keys that only a kernel consumer may use: refuse it.
        let result = if list.is_null() {
            private.core.doorbell()
        } else {
            Err(EINVAL)
        };
        (result, list)
    } else {
        // SAFETY: A kernel consumer passes a valid list of requests that fit the QP.
        let mut wrs = unsafe { SendWrs::new(list, private.ty) };
        let result = private.core.post_send(&mut wrs);
        (result, wrs.current())
    };
    // SAFETY: `ib_core` passes null, or a place to fill in.
    unsafe { wr::answer(result, at, bad) }
}

/// `post_recv`. Any context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn post_recv<Q: QueuePair>(
    qp: *mut bindings::ib_qp,
    list: *const bindings::ib_recv_wr,
    bad: *mut *const bindings::ib_recv_wr,
) -> c_int {
    // SAFETY: `ib_core` passes an object that it created.
    let private = unsafe { Obj::<Q>::get(qp) };
    let (result, at) = if private.is_user || private.ty == Type::XrcTarget {
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
