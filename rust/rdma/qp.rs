// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

use crate::{
    ah::Address,
    cq,
    driver::Driver,
    error::not_supported,
    object::Object,
    pd, ucontext,
    udata::Udata,
    wr::{
        RecvWrs,
        SendWrs, //
    },
};
use core::ops::BitOr;
use kernel::{
    error::from_result,
    impl_has_work, new_work,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};
use rdma_bindings as bindings;
use sync::Gate;

/// Transport services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// The general services QP, number 1.
    Gsi,
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

impl Type {
    fn from_raw(raw: bindings::ib_qp_type) -> Option<Self> {
        Some(match raw {
            bindings::ib_qp_type_IB_QPT_GSI => Self::Gsi,
            bindings::ib_qp_type_IB_QPT_RC => Self::Rc,
            bindings::ib_qp_type_IB_QPT_UC => Self::Uc,
            bindings::ib_qp_type_IB_QPT_UD => Self::Ud,
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
    /// Pieces per send request.
    pub max_send_sge: u32,
    /// Pieces per receive request.
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

/// What a consumer asks of a new QP.
pub struct Init<D: Driver> {
    /// Transport service.
    pub ty: Type,
    /// Sizes; what the driver leaves here is what the consumer is told.
    pub cap: Cap,
    /// Every send request asks for a completion.
    pub signal_all: bool,
    /// Whether a process owns the QP, for ever.
    pub is_user: bool,
    /// Port, for [`Type::Gsi`].
    pub port: u32,
    /// Where completions of send requests go.
    pub send_cq: Arc<D::Cq>,
    /// Where completions of receive requests go.
    pub recv_cq: Arc<D::Cq>,
    /// The process's context; [`None`] for a kernel consumer.
    pub context: Option<Arc<D::Context>>,
    /// Raises the QP's events.
    pub events: Events,
    /// Names the QP in completions.
    pub handle: Handle,
}

/// Which attributes a call means (`enum ib_qp_attr_mask`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrMask(u32);

macro_rules! attr_masks {
    ($($(#[$doc:meta])* $name:ident = $bit:ident;)*) => {
        impl AttrMask {
            $($(#[$doc])* pub const $name: Self = Self(bindings::$bit);)*
        }
    };
}

attr_masks! {
    /// State.
    STATE = ib_qp_attr_mask_IB_QP_STATE;
    /// State that the consumer assumes.
    CUR_STATE = ib_qp_attr_mask_IB_QP_CUR_STATE;
    /// Event when the send queue is drained.
    EN_SQD_ASYNC_NOTIFY = ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY;
    /// Rights of the peer.
    ACCESS_FLAGS = ib_qp_attr_mask_IB_QP_ACCESS_FLAGS;
    /// P_Key.
    PKEY_INDEX = ib_qp_attr_mask_IB_QP_PKEY_INDEX;
    /// Port.
    PORT = ib_qp_attr_mask_IB_QP_PORT;
    /// Q_Key.
    QKEY = ib_qp_attr_mask_IB_QP_QKEY;
    /// Address of the peer.
    AV = ib_qp_attr_mask_IB_QP_AV;
    /// Path MTU.
    PATH_MTU = ib_qp_attr_mask_IB_QP_PATH_MTU;
    /// Timeout for an ACK.
    TIMEOUT = ib_qp_attr_mask_IB_QP_TIMEOUT;
    /// Retries.
    RETRY_CNT = ib_qp_attr_mask_IB_QP_RETRY_CNT;
    /// Retries when the peer is not ready.
    RNR_RETRY = ib_qp_attr_mask_IB_QP_RNR_RETRY;
    /// First PSN to receive.
    RQ_PSN = ib_qp_attr_mask_IB_QP_RQ_PSN;
    /// Reads and atomics outstanding as a requester.
    MAX_QP_RD_ATOMIC = ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC;
    /// Alternate path.
    ALT_PATH = ib_qp_attr_mask_IB_QP_ALT_PATH;
    /// Time that a sender waits when the QP is not ready to receive.
    MIN_RNR_TIMER = ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER;
    /// First PSN to send.
    SQ_PSN = ib_qp_attr_mask_IB_QP_SQ_PSN;
    /// Reads and atomics outstanding as a responder.
    MAX_DEST_RD_ATOMIC = ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC;
    /// Path migration.
    PATH_MIG_STATE = ib_qp_attr_mask_IB_QP_PATH_MIG_STATE;
    /// Sizes of the queues.
    CAP = ib_qp_attr_mask_IB_QP_CAP;
    /// QP of the peer.
    DEST_QPN = ib_qp_attr_mask_IB_QP_DEST_QPN;
    /// Rate limit.
    RATE_LIMIT = ib_qp_attr_mask_IB_QP_RATE_LIMIT;
}

impl AttrMask {
    /// Whether all of `other` is in `self`.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl BitOr for AttrMask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Attributes (`struct ib_qp_attr`). Of those passed to `modify_qp`, only the ones in the mask mean
/// something; the others are zero.
#[derive(Clone, Default)]
#[expect(missing_docs)]
pub struct Attr {
    pub state: State,
    pub cur_state: State,
    /// As in `enum ib_mtu`, see [`crate::mtu::Mtu`].
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    /// See [`crate::access::Access`].
    pub access: u32,
    pub cap: Cap,
    /// Holds a reference to the GID table: must be dropped when the QP is destroyed.
    pub address: Option<Address>,
    pub pkey_index: u16,
    pub en_sqd_async_notify: bool,
    pub sq_draining: bool,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
}

impl Attr {
    /// Reads the attributes in `mask`; the C struct may be uninitialised otherwise.
    ///
    /// # Safety
    ///
    /// The fields of `raw` that `mask` names must be initialised, with a reference to the source
    /// GID if that includes an address.
    unsafe fn from_raw(raw: *const bindings::ib_qp_attr, mask: AttrMask) -> Result<Self> {
        let mut attr = Self::default();
        macro_rules! read {
            ($bit:ident, $to:ident, $from:ident) => {
                if mask.contains(AttrMask::$bit) {
                    // SAFETY: The mask names the field, so it is initialised.
                    attr.$to = unsafe { (*raw).$from };
                }
            };
        }
        read!(PATH_MTU, path_mtu, path_mtu);
        read!(PATH_MIG_STATE, path_mig_state, path_mig_state);
        read!(QKEY, qkey, qkey);
        read!(RQ_PSN, rq_psn, rq_psn);
        read!(SQ_PSN, sq_psn, sq_psn);
        read!(DEST_QPN, dest_qp_num, dest_qp_num);
        read!(PKEY_INDEX, pkey_index, pkey_index);
        read!(MAX_QP_RD_ATOMIC, max_rd_atomic, max_rd_atomic);
        read!(MAX_DEST_RD_ATOMIC, max_dest_rd_atomic, max_dest_rd_atomic);
        read!(MIN_RNR_TIMER, min_rnr_timer, min_rnr_timer);
        read!(PORT, port, port_num);
        read!(TIMEOUT, timeout, timeout);
        read!(RETRY_CNT, retry_cnt, retry_cnt);
        read!(RNR_RETRY, rnr_retry, rnr_retry);
        // SAFETY: As above, for each field that the mask names.
        unsafe {
            if mask.contains(AttrMask::STATE) {
                attr.state = State::from_raw((*raw).qp_state)?;
            }
            if mask.contains(AttrMask::CUR_STATE) {
                attr.cur_state = State::from_raw((*raw).cur_qp_state)?;
            }
            if mask.contains(AttrMask::ACCESS_FLAGS) {
                attr.access = (*raw).qp_access_flags as u32;
            }
            if mask.contains(AttrMask::EN_SQD_ASYNC_NOTIFY) {
                attr.en_sqd_async_notify = (*raw).en_sqd_async_notify != 0;
            }
            if mask.contains(AttrMask::CAP) {
                attr.cap = Cap::from_raw(&(*raw).cap);
            }
            if mask.contains(AttrMask::AV) {
                attr.address = Some(Address::from_raw(&(*raw).ah_attr)?);
            }
        }
        Ok(attr)
    }

    fn to_raw(&self, raw: &mut bindings::ib_qp_attr) {
        raw.qp_state = self.state as u32;
        raw.cur_qp_state = self.cur_state as u32;
        raw.path_mtu = self.path_mtu;
        raw.path_mig_state = self.path_mig_state;
        raw.qkey = self.qkey;
        raw.rq_psn = self.rq_psn;
        raw.sq_psn = self.sq_psn;
        raw.dest_qp_num = self.dest_qp_num;
        raw.qp_access_flags = self.access as c_int;
        self.cap.to_raw(&mut raw.cap);
        if let Some(address) = &self.address {
            address.to_raw(&mut raw.ah_attr);
        }
        raw.pkey_index = self.pkey_index;
        raw.en_sqd_async_notify = self.en_sqd_async_notify.into();
        raw.sq_draining = self.sq_draining.into();
        raw.max_rd_atomic = self.max_rd_atomic;
        raw.max_dest_rd_atomic = self.max_dest_rd_atomic;
        raw.min_rnr_timer = self.min_rnr_timer;
        raw.port_num = self.port;
        raw.timeout = self.timeout;
        raw.retry_cnt = self.retry_cnt;
        raw.rnr_retry = self.rnr_retry;
    }
}

/// Asynchronous events of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Event {
    /// The device cannot go on with the QP.
    Fatal = bindings::ib_event_type_IB_EVENT_QP_FATAL,
    /// The peer sent what makes no sense.
    RequestError = bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
    /// The peer asked for what it has no right to.
    AccessError = bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
    /// The first packet came to a QP that is not yet ready to send.
    CommEstablished = bindings::ib_event_type_IB_EVENT_COMM_EST,
    /// The send queue has drained.
    SendQueueDrained = bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
    /// A QP in error will take no more requests from its shared receive queue.
    LastWqeReached = bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
    /// The path has migrated.
    PathMigrated = bindings::ib_event_type_IB_EVENT_PATH_MIG,
    /// The path could not be migrated.
    PathMigrationError = bindings::ib_event_type_IB_EVENT_PATH_MIG_ERR,
}

/// The way back to the C object; closed when that is destroyed.
#[pin_data]
struct Link {
    /// The address of the `ib_qp`; 0 once it is destroyed.
    qp: Atomic<usize>,
    /// Events to be raised, a bit each.
    pending: Atomic<u32>,
    #[pin]
    gate: Gate,
    #[pin]
    work: Work<Link>,
    queue: Arc<sync::WorkQueue>,
}

impl_has_work! {
    impl HasWork<Self> for Link { self.work }
}

impl WorkItem for Link {
    type Pointer = Arc<Link>;

    fn run(link: Arc<Link>) {
        let Some(_pass) = link.gate.enter() else {
            return;
        };
        let qp = core::ptr::with_exposed_provenance_mut::<bindings::ib_qp>(link.qp.load(Acquire));
        if qp.is_null() {
            return;
        }
        let mut pending = link.pending.xchg(0, kernel::sync::atomic::Full);
        while pending != 0 {
            let kind = pending.trailing_zeros();
            pending &= pending.wrapping_sub(1);
            let mut event: bindings::ib_event = pin_init::zeroed();
            event.event = kind;
            event.element.bindgen_union_field = qp as u64;
            // SAFETY: The gate is open, so the object lives until the pass is dropped; handlers
            // are called from process context without locks, as they may expect.
            unsafe {
                event.device = (*qp).device;
                if let Some(handler) = (*qp).event_handler {
                    handler(&raw mut event, (*qp).qp_context);
                }
            }
        }
    }
}

/// Raises the asynchronous events of one QP.
///
/// Turns into nothing once the QP is destroyed.
#[derive(Clone)]
pub struct Events(Arc<Link>);

impl Events {
    /// Raises an event, once for all calls with the same event before it is delivered. Context:
    /// any; the consumer's handler runs later, in process context.
    pub fn raise(&self, event: Event) {
        let bit = 1u32.wrapping_shl(event as u32);
        let mut seen = self.0.pending.load(Relaxed);
        loop {
            match self
                .0
                .pending
                .cmpxchg(seen, seen | bit, kernel::sync::atomic::Full)
            {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        // A work item that is already queued will see the bit.
        let _ = self.0.queue.queue().enqueue(self.0.clone());
    }
}

/// Names a QP in completions. Turns into nothing once the QP is destroyed, so that a completion
/// that is polled late cannot lead its consumer to a QP that is gone.
#[derive(Clone)]
pub struct Handle(Arc<Link>);

impl Handle {
    pub(crate) fn raw(&self) -> Option<*mut bindings::ib_qp> {
        match self.0.qp.load(Acquire) {
            0 => None,
            address => Some(core::ptr::with_exposed_provenance_mut(address)),
        }
    }

    /// Whether the QP is not yet destroyed.
    pub fn is_live(&self) -> bool {
        self.0.qp.load(Acquire) != 0
    }

    /// Whether both name the same QP.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

pub(crate) struct Private<D: Driver> {
    core: Arc<D::Qp>,
    link: Arc<Link>,
    signal_all: bool,
    is_user: bool,
    ty: Type,
}

pub(crate) type Obj<D> = Object<bindings::ib_qp, Private<D>>;

/// `create_qp`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn create<D: Driver>(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_init_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes valid attributes that nobody else uses, and for user calls valid
        // driver data.
        let (attr, mut udata) = unsafe { (&mut *attr, Udata::from_raw(udata)) };
        let ty = Type::from_raw(attr.qp_type).ok_or_else(not_supported)?;
        if attr.create_flags != 0 || !attr.srq.is_null() || !attr.rwq_ind_tbl.is_null() {
            return Err(not_supported());
        }
        if attr.send_cq.is_null() || attr.recv_cq.is_null() {
            return Err(EINVAL);
        }
        let is_user = udata.is_some();
        // SAFETY: `ib_core` passes a new object that belongs to a protection domain of a device of
        // this driver, and queues of the same device.
        let (device, pd, send_cq, recv_cq, context) = unsafe {
            (
                crate::device::core::<D>((*qp).device),
                pd::Obj::<D>::get((*qp).pd),
                cq::Obj::<D>::get(attr.send_cq).core.clone(),
                cq::Obj::<D>::get(attr.recv_cq).core.clone(),
                ucontext::of_uobject::<D>((*(*qp).pd).uobject),
            )
        };
        if is_user && context.is_none() {
            return Err(EINVAL);
        }
        let link = Arc::pin_init(
            pin_init!(Link {
                qp: Atomic::new(qp.expose_provenance()),
                pending: Atomic::new(0),
                gate <- Gate::new(),
                work <- new_work!("rdma::qp::Link"),
                queue: D::process_queue(device),
            }),
            GFP_KERNEL,
        )?;
        let signal_all = attr.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR;
        let mut init = Init::<D> {
            ty,
            cap: Cap::from_raw(&attr.cap),
            signal_all,
            is_user,
            port: attr.port_num,
            send_cq,
            recv_cq,
            context: if is_user { context.cloned() } else { None },
            events: Events(link.clone()),
            handle: Handle(link.clone()),
        };
        let core = D::create_qp(pd, &mut init, udata.as_mut())?;
        init.cap.to_raw(&mut attr.cap);
        // SAFETY: The object is new; `ib_core` allocated it with the size in the vtable.
        unsafe {
            (*qp).qp_num = D::qp_number(&core);
            Obj::<D>::init(
                qp,
                Private {
                    core,
                    link,
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
pub(crate) unsafe extern "C" fn modify<D: Driver>(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    mask: c_int,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        let mask = AttrMask(mask as u32);
        if mask.0 & !bindings::ib_qp_attr_mask_IB_QP_ATTR_STANDARD_BITS != 0 {
            return Err(not_supported());
        }
        // SAFETY: `ib_core` passes an object that it created, and attributes of which those in the
        // mask are initialised; for an address it has looked up the source GID.
        let (private, attr) = unsafe { (Obj::<D>::get(qp), Attr::from_raw(attr, mask)?) };
        D::modify_qp(&private.core, &attr, mask)?;
        Ok(0)
    })
}

/// `query_qp`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn query<D: Driver>(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    _mask: c_int,
    init: *mut bindings::ib_qp_init_attr,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes an object that it created.
        let private = unsafe { Obj::<D>::get(qp) };
        let mut values = Attr::default();
        let cap = D::query_qp(&private.core, &mut values)?;
        values.cap = cap;
        // SAFETY: `ib_core` passes two structs to fill in. They may be uninitialised, so they are
        // zeroed before there are references to them.
        let (attr, init) = unsafe {
            attr.write_bytes(0, 1);
            init.write_bytes(0, 1);
            (&mut *attr, &mut *init)
        };
        values.to_raw(attr);
        cap.to_raw(&mut init.cap);
        init.sq_sig_type = if private.signal_all {
            bindings::ib_sig_type_IB_SIGNAL_ALL_WR
        } else {
            bindings::ib_sig_type_IB_SIGNAL_REQ_WR
        };
        // SAFETY: The object is valid; these fields are constant.
        unsafe {
            init.event_handler = (*qp).event_handler;
            init.qp_context = (*qp).qp_context;
            init.send_cq = (*qp).send_cq;
            init.recv_cq = (*qp).recv_cq;
            init.qp_type = (*qp).qp_type;
            init.port_num = (*qp).port;
        }
        Ok(0)
    })
}

/// `destroy_qp`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn destroy<D: Driver>(
    qp: *mut bindings::ib_qp,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: `ib_core` destroys an object that it created, once, and then frees it; no other
    // operation on it is in progress.
    let private = unsafe { Obj::<D>::take(qp) };
    D::destroy_qp(&private.core);
    private.link.qp.store(0, Release);
    private.link.gate.close_and_wait();
    0
}

/// `post_send`. Any context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn post_send<D: Driver>(
    qp: *mut bindings::ib_qp,
    list: *const bindings::ib_send_wr,
    bad: *mut *const bindings::ib_send_wr,
) -> c_int {
    // SAFETY: `ib_core` passes an object that it created.
    let private = unsafe { Obj::<D>::get(qp) };
    let (result, at) = if private.is_user {
        // A process's requests are in its ring. A list here was made by hand, with addresses and
        // keys that only a kernel consumer may use: refuse it.
        let result = if list.is_null() {
            D::doorbell(&private.core)
        } else {
            Err(EINVAL)
        };
        (result, list)
    } else {
        // SAFETY: A kernel consumer passes a valid list of requests that fit the QP.
        let mut wrs = unsafe { SendWrs::<D>::new(list, private.ty) };
        let result = D::post_send(&private.core, &mut wrs);
        (result, wrs.current())
    };
    match result {
        Ok(()) => 0,
        Err(error) => {
            if !bad.is_null() {
                // SAFETY: The pointer is not null, so it is valid for writes.
                unsafe { *bad = at };
            }
            error.to_errno()
        }
    }
}

/// `post_recv`. Any context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn post_recv<D: Driver>(
    qp: *mut bindings::ib_qp,
    list: *const bindings::ib_recv_wr,
    bad: *mut *const bindings::ib_recv_wr,
) -> c_int {
    // SAFETY: `ib_core` passes an object that it created.
    let private = unsafe { Obj::<D>::get(qp) };
    let (result, at) = if private.is_user {
        (Err(EINVAL), list)
    } else {
        // SAFETY: A kernel consumer passes a valid list of requests.
        let mut wrs = unsafe { RecvWrs::new(list) };
        let result = D::post_recv(&private.core, &mut wrs);
        (result, wrs.current())
    };
    match result {
        Ok(()) => 0,
        Err(error) => {
            if !bad.is_null() {
                // SAFETY: The pointer is not null, so it is valid for writes.
                unsafe { *bad = at };
            }
            error.to_errno()
        }
    }
}
