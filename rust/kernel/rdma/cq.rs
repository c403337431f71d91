// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use crate::{
    details::Details,
    error::not_supported,
    object::Object,
    qp,
    ucontext,
    udata::Udata,
    wc::Completion, //
};
use core::marker::PhantomData;
use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;
use sync::Gate;

/// Which completion raises the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// A solicited one, or one in error.
    Solicited,
    /// Any.
    Next,
}

/// When an armed completion queue notifies its consumer: after `count` completions, or `period` after the first of them.
///
/// Zero for either turns moderation off, so no completion can wait for ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moderation {
    /// Completions.
    pub count: u16,
    /// Microseconds.
    pub period: u16,
}

impl Moderation {
    /// The number of completions that raise a notification at once.
    #[inline]
    pub fn least(self) -> u32 {
        match (self.count, self.period) {
            (0, _) | (_, 0) => 1,
            (count, _) => count.into(),
        }
    }

    /// The period in nanoseconds.
    pub fn period_ns(self) -> u64 {
        u64::from(self.period).saturating_mul(1000)
    }
}

/// The attributes of a new completion queue; `C` is a context.
pub struct Init<'a, C> {
    /// Entries, at least 1.
    pub entries: u32,
    /// Completion vector: of a process, below the number of CPUs that were online when the device was made.
    pub vector: u32,
    /// The process's context; [`None`] for a kernel consumer.
    pub context: Option<&'a Arc<C>>,
    /// Calls the consumer.
    pub events: Events,
}

/// The core of a completion queue.
pub trait CompletionQueue: Sized + Send + Sync + 'static {
    /// The core of the device.
    type Device: 'static;
    /// The core of a process's context.
    type Context: 'static;

    /// Makes a completion queue. Context: process, may sleep.
    fn create(
        device: &Arc<Self::Device>,
        init: Init<'_, Self::Context>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<Arc<Self>>;

    /// The completions that it has room for. Context: process.
    fn entries(&self) -> u32;

    /// Gives a process's queue room for at least `entries` completions; what was not polled stays in it, in order.
    ///
    /// Errors: `EINVAL` if `entries` is out of range or smaller than what is queued, `EBUSY` if completions come faster
    /// than they can be moved, `EFAULT`, `ENOMEM`; the queue stays as it was. Context: process, may sleep.
    fn resize(
        self: &Arc<Self>,
        entries: u32,
        context: &Arc<Self::Context>,
        udata: &mut Udata<'_>,
    ) -> Result;

    /// Hands completions to a kernel consumer. Context: any, interrupts may be off.
    fn poll(&self, slots: &mut WcSlots<'_>);

    /// Asks for the next notification. Returns whether there are completions now: they raise none for a kernel consumer.
    /// Context: any, interrupts may be off; no lock held.
    fn request_notify(self: &Arc<Self>, arm: Arm) -> bool;

    /// Sets when it notifies its consumer. Context: process, no lock held.
    fn moderate(self: &Arc<Self>, moderation: Moderation);

    /// Destroys it: its process can no longer map it. Context: process, may sleep.
    fn destroy(self: &Arc<Self>);

    /// Adds to `rdma -dd resource show cq`, beyond what `ib_core` knows. Context: process.
    fn describe(&self, details: &mut Details<'_>) -> Result;
}

/// The way back to the C object; closed when that is destroyed, or about to be.
#[pin_data]
struct Link {
    #[pin]
    gate: Gate,
    cq: *mut bindings::ib_cq,
}

// SAFETY: The pointer is used only behind the gate, while the object lives, and the handlers that
// are called through it may be called on any CPU.
unsafe impl Send for Link {}
// SAFETY: As above.
unsafe impl Sync for Link {}

/// Calls the consumer of one completion queue.
///
/// Turns into nothing once the queue is destroyed; destroying waits for calls in progress.
#[derive(Clone)]
pub struct Events(Arc<Link>);

impl Events {
    /// Calls the completion handler.
    ///
    /// The handler may call verbs: no lock may be held, the caller must not be inside a verbs call
    /// for a kernel consumer's queue, and must see to it that there is one call at a time for such
    /// a queue. Context: process or softirq.
    pub fn notify(&self) {
        let Some(_pass) = self.0.gate.enter() else {
            return;
        };
        let cq = self.0.cq;
        // SAFETY: The gate is open, so the object lives until the pass is dropped.
        unsafe {
            if let Some(handler) = (*cq).comp_handler {
                handler(cq, (*cq).cq_context);
            }
        }
    }

    /// Tells the consumer that the queue has overflowed. No lock may be held. Context: process or
    /// softirq.
    pub fn error(&self) {
        let Some(_pass) = self.0.gate.enter() else {
            return;
        };
        let cq = self.0.cq;
        let mut event: bindings::ib_event = pin_init::zeroed();
        event.event = bindings::ib_event_type_IB_EVENT_CQ_ERR;
        event.element.bindgen_union_field = cq as u64;
        // SAFETY: As in `notify`.
        unsafe {
            event.device = (*cq).device;
            if let Some(handler) = (*cq).event_handler {
                handler(&raw mut event, (*cq).cq_context);
            }
        }
    }
}

/// Room for completions that a kernel consumer polls.
pub struct WcSlots<'a> {
    base: *mut bindings::ib_wc,
    len: usize,
    filled: usize,
    _array: PhantomData<&'a mut bindings::ib_wc>,
}

impl WcSlots<'_> {
    /// Whether there is no room left.
    pub fn is_full(&self) -> bool {
        self.filled >= self.len
    }

    /// Hands a completion to the consumer; drops it if its QP is destroyed. Must not be called
    /// when there is no room left: the completion is lost then. Context: any, interrupts may be off.
    pub fn push(&mut self, qp: &qp::Handle, completion: &Completion) {
        if self.is_full() {
            return;
        }
        let Some(qp) = qp.raw() else {
            return;
        };
        let mut raw = completion.to_raw();
        raw.qp = qp;
        // SAFETY: `filled` is below `len`, and the consumer's array has `len` elements.
        unsafe { self.base.add(self.filled).write(raw) };
        self.filled = self.filled.wrapping_add(1);
    }
}

pub(crate) struct Private<T> {
    pub(crate) core: Arc<T>,
    link: Arc<Link>,
}

pub(crate) type Obj<T> = Object<bindings::ib_cq, Private<T>>;

/// `create_cq`.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn create<Q: CompletionQueue>(
    cq: *mut bindings::ib_cq,
    attr: *const bindings::ib_cq_init_attr,
    attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes a new object that belongs to a device of this driver, and valid
        // attributes.
        let (device, attr) = unsafe { (crate::device::core::<Q::Device>((*cq).device), &*attr) };
        if attr.flags != 0 {
            return Err(not_supported());
        }
        // SAFETY: `attrs` is null, or the attributes of a user call with a context, of which the
        // driver data is a part. Both union fields have the same layout.
        let (context, mut udata) = unsafe {
            if attrs.is_null() {
                (None, None)
            } else {
                let header = &raw const (*attrs).__bindgen_anon_1.__bindgen_anon_1;
                (
                    Some(ucontext::Obj::<Q::Context>::get((*header).context)),
                    Udata::from_raw(&raw const (*header).driver_udata),
                )
            }
        };
        let link = Arc::pin_init(
            pin_init!(Link {
                gate <- Gate::new(),
                cq,
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let core = Q::create(
            device,
            Init {
                entries: attr.cqe,
                vector: attr.comp_vector,
                context,
                events: Events(link.clone()),
            },
            udata.as_mut(),
        )
        // The driver may still have what it was given, somewhere, when it fails.
        .inspect_err(|_| link.gate.close_and_wait())?;
        let entries = core.entries();
        // SAFETY: The object is new; `ib_core` allocated it with the size in the vtable.
        unsafe {
            (*cq).cqe = i32::try_from(entries).unwrap_or(i32::MAX);
            Obj::<Q>::init(cq, Private { core, link });
        }
        Ok(0)
    })
}

/// `destroy_cq`: the end of a process's queue, and of one of `ib_create_cq`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn destroy<Q: CompletionQueue>(
    cq: *mut bindings::ib_cq,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: By the promise of the caller; `ib_core` uses either this or `end` for an object.
    unsafe { end::<Q>(cq) };
    0
}

/// `pre_destroy_cq`: when this returns, the consumer is not called any more. Process context.
///
/// `ib_free_cq` then ends the work that polls the queue, which the consumer's handler starts, so a call
/// between that and the end of the queue would start it for good.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn silence<Q: CompletionQueue>(cq: *mut bindings::ib_cq) -> c_int {
    // SAFETY: `ib_core` passes an object that it created and has not destroyed.
    let private = unsafe { Obj::<Q>::get(cq) };
    private.link.gate.close_and_wait();
    0
}

/// `post_destroy_cq`: the end of a queue of `ib_alloc_cq`, after `pre_destroy_cq`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn end<Q: CompletionQueue>(cq: *mut bindings::ib_cq) {
    // SAFETY: `ib_core` destroys an object that it created, once, and then frees it; no other
    // operation on it is in progress.
    let private = unsafe { Obj::<Q>::take(cq) };
    private.core.destroy();
    // Harmless if `pre_destroy_cq` has done it.
    private.link.gate.close_and_wait();
}

/// `resize_user_cq`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn resize<Q: CompletionQueue>(
    cq: *mut bindings::ib_cq,
    entries: c_uint,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes an object that it created for the process that calls, and the
        // valid driver data of its call.
        let (private, context, udata) = unsafe {
            (
                Obj::<Q>::get(cq),
                ucontext::of_udata::<Q::Context>(udata),
                Udata::from_raw(udata),
            )
        };
        let (context, mut udata) = (context.ok_or(EINVAL)?, udata.ok_or(EINVAL)?);
        private.core.resize(entries, context, &mut udata)?;
        let entries = private.core.entries();
        // SAFETY: The object is valid; the field is a plain number that is only shown.
        unsafe { (*cq).cqe = i32::try_from(entries).unwrap_or(i32::MAX) };
        Ok(0)
    })
}

/// `modify_cq`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn moderate<Q: CompletionQueue>(
    cq: *mut bindings::ib_cq,
    count: u16,
    period: u16,
) -> c_int {
    // SAFETY: `ib_core` passes an object that it created.
    let private = unsafe { Obj::<Q>::get(cq) };
    private.core.moderate(Moderation { count, period });
    0
}

/// `poll_cq`. Any context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn poll<Q: CompletionQueue>(
    cq: *mut bindings::ib_cq,
    count: c_int,
    wc: *mut bindings::ib_wc,
) -> c_int {
    // SAFETY: `ib_core` passes an object that it created.
    let private = unsafe { Obj::<Q>::get(cq) };
    let mut slots = WcSlots {
        base: wc,
        len: usize::try_from(count).unwrap_or(0),
        filled: 0,
        _array: PhantomData,
    };
    private.core.poll(&mut slots);
    slots.filled as c_int
}

/// `req_notify_cq`. Any context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn request_notify<Q: CompletionQueue>(
    cq: *mut bindings::ib_cq,
    flags: bindings::ib_cq_notify_flags,
) -> c_int {
    // SAFETY: `ib_core` passes an object that it created.
    let private = unsafe { Obj::<Q>::get(cq) };
    let arm = match flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK {
        bindings::ib_cq_notify_flags_IB_CQ_SOLICITED => Arm::Solicited,
        _ => Arm::Next,
    };
    let missed = private.core.request_notify(arm);
    let report = flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0;
    c_int::from(report && missed)
}
