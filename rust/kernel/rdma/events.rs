// SPDX-License-Identifier: GPL-2.0

//! The way from an object's core back to its C object, for the events that the object's consumer is told of.

use core::ptr;
use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
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
use sync::{
    Gate,
    WorkQueue, //
};

/// A C object whose consumer is told of events.
pub(crate) trait Source: Sized + 'static {
    /// The events that `pending` stands for, in the order in which they are told.
    fn kinds(pending: u32) -> impl Iterator<Item = bindings::ib_event_type>;

    /// Calls the consumer's handler, if there is one, with `event`, whose kind and object are filled in.
    ///
    /// # Safety
    ///
    /// `object` must be valid. Context: process, no lock held, as handlers may expect.
    unsafe fn tell(object: *mut Self, event: &mut bindings::ib_event);
}

/// The way back to the C object; closed when that is destroyed.
#[pin_data]
pub(crate) struct Link<T: Source> {
    /// Null once the object is destroyed.
    object: Atomic<*mut T>,
    /// Events to be raised, as `T` notes them.
    pending: Atomic<u32>,
    #[pin]
    gate: Gate,
    #[pin]
    work: Work<Link<T>>,
    queue: Arc<WorkQueue>,
}

impl_has_work! {
    impl{T: Source} HasWork<Self> for Link<T> { self.work }
}

impl<T: Source> WorkItem for Link<T> {
    type Pointer = Arc<Self>;

    fn run(link: Arc<Self>) {
        let Some(_pass) = link.gate.enter() else {
            return;
        };
        let Some(object) = link.object() else {
            return;
        };
        for kind in T::kinds(link.pending.xchg(0, Full)) {
            let mut event: bindings::ib_event = pin_init::zeroed();
            event.event = kind;
            event.element.bindgen_union_field = object as u64;
            // SAFETY: The gate is open, so the object lives until the pass is dropped; this is process context, without
            // locks.
            unsafe { T::tell(object, &mut event) };
        }
    }
}

impl<T: Source> Link<T> {
    /// Refers to `object`; its events are raised on `queue`.
    ///
    /// # Safety
    ///
    /// `object` must stay valid until [`Link::cut`] has returned.
    pub(crate) unsafe fn new(object: *mut T, queue: Arc<WorkQueue>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                object: Atomic::new(object),
                pending: Atomic::new(0),
                gate <- Gate::new(),
                work <- new_work!("rdma::events::Link"),
                queue,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The object; [`None`] once it is destroyed. Context: any.
    pub(crate) fn object(&self) -> Option<*mut T> {
        Some(self.object.load(Acquire)).filter(|object| !object.is_null())
    }

    /// Has `note` add an event to those that are pending. Context: any; the consumer's handler runs later, in process
    /// context.
    pub(crate) fn raise(self: &Arc<Self>, note: impl Fn(u32) -> u32) {
        let mut seen = self.pending.load(Relaxed);
        while let Err(now) = self.pending.cmpxchg(seen, note(seen), Full) {
            seen = now;
        }
        // A work item that is already queued will see it.
        let _ = self.queue.enqueue(self.clone());
    }

    /// Forgets the C object, and waits for those who use it. Process context.
    pub(crate) fn cut(&self) {
        self.object.store(ptr::null_mut(), Release);
        self.gate.close_and_wait();
    }
}
