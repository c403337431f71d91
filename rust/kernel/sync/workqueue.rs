// SPDX-License-Identifier: GPL-2.0

//! Workqueues of one's own, which can be flushed and destroyed, unlike the system's, and calls in kernel threads.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use crate::cpu::Cpu;
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    bindings,
    ffi::c_void,
    prelude::*,
    workqueue::RawWorkItem, //
};

/// Calls `function` in a thread of the kernel, which is bound to no CPU, and returns when it has. Nothing that it makes
/// belongs to the cgroups of the calling task. Process; `function` must not wait for a lock that the caller has.
pub fn call_in_kernel_thread<F: FnMut() + Send>(function: &mut F) {
    let argument = ptr::from_mut(function).cast::<c_void>();
    // SAFETY: `call` fits the argument, which is borrowed until the call has returned, and goes to one thread only, as `F` is
    // `Send`.
    unsafe { rdma_bindings::call_in_worker(Some(call::<F>), argument) };
}

/// # Safety
///
/// `function` must be an `F` that nobody else uses meanwhile.
unsafe extern "C" fn call<F: FnMut()>(function: *mut c_void) {
    // SAFETY: The caller promises it.
    unsafe { (*function.cast::<F>())() };
}

/// An own workqueue.
///
/// Dropping it (process context) runs what is queued to its end and takes the workqueue away; nothing may
/// queue work any more by then. As the queue is reached through `&self` only, the borrow
/// checker sees to that for direct users. It must not be dropped by work on it, which would wait for
/// itself: as long as an object whose last reference such work may drop owns the queue, somebody else does, too.
///
/// Work cannot be queued with a delay: its timer might fire when the queue has gone.
///
/// # Invariants
///
/// The pointer is a workqueue that [`Drop`] alone destroys.
pub struct WorkQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: The functions of a workqueue may be called from any thread.
unsafe impl Send for WorkQueue {}
// SAFETY: The functions of a workqueue do their own locking.
unsafe impl Sync for WorkQueue {}

impl WorkQueue {
    /// Makes a queue whose work runs on the CPU that queued it and must not sleep: in softirq context, or with
    /// `PREEMPT_RT` in an ordinary thread. There, BH work that a timer queues would run in `ktimers`, whose real-time
    /// priority keeps all ordinary threads from the CPU. Process.
    pub fn new_bh(name: &CStr) -> Result<Self> {
        let context = if cfg!(CONFIG_PREEMPT_RT) {
            bindings::wq_flags_WQ_MEM_RECLAIM
        } else {
            bindings::wq_flags_WQ_BH
        };
        Self::new(name, context | bindings::wq_flags_WQ_PERCPU)
    }

    /// Makes a queue whose work may sleep, and runs on whatever CPU is free. It promises no progress
    /// under memory pressure: its work may wait for queues that make no such promise. At most 1024 works run at
    /// the same time; those that the CPUs of one memory node queued have the share of these CPUs in all. Process.
    pub fn new_unbound(name: &CStr) -> Result<Self> {
        Self::new(name, bindings::wq_flags_WQ_UNBOUND)
    }

    /// Makes a queue whose work may keep a CPU busy: it runs in a thread, on the CPU that it was queued on, or for,
    /// before all ordinary threads there. Works of one CPU share it as threads do. They make progress under memory
    /// pressure. Process.
    pub fn new_bulk(name: &CStr) -> Result<Self> {
        let flags = bindings::wq_flags_WQ_PERCPU
            | bindings::wq_flags_WQ_HIGHPRI
            | bindings::wq_flags_WQ_CPU_INTENSIVE
            | bindings::wq_flags_WQ_MEM_RECLAIM;
        Self::new(name, flags)
    }

    fn new(name: &CStr, flags: bindings::wq_flags) -> Result<Self> {
        // SAFETY: The format takes exactly one string, and `name` is one; it is copied.
        let queue = unsafe {
            bindings::alloc_workqueue_noprof(c"%s".as_char_ptr(), flags, 0, name.as_char_ptr())
        };
        // INVARIANT: Made just now, for us alone.
        NonNull::new(queue).map(Self).ok_or(ENOMEM)
    }

    /// As [`kernel::workqueue::Queue::enqueue`]. Any context.
    #[inline]
    pub fn enqueue<W, const ID: u64>(&self, work: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        // CAST: No CPU has this number.
        self.enqueue_at(bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int, work)
    }

    /// As [`Self::enqueue`], but the work runs on `cpu`. Any context.
    #[inline]
    pub fn enqueue_on<W, const ID: u64>(&self, cpu: &Cpu<'_>, work: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        // CAST: The number of a CPU.
        self.enqueue_at(cpu.number() as c_int, work)
    }

    #[inline]
    fn enqueue_at<W, const ID: u64>(&self, cpu: c_int, work: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        let queue = self.0.as_ptr();
        // SAFETY: By the type invariant this is a workqueue. The closure returns `false` only if the work was queued
        // already, and hands it on to the queue otherwise; `W` is `Send` and static, so it may run anywhere, any time.
        unsafe { work.__enqueue(move |work| kernel::bindings::queue_work_on(cpu, queue, work)) }
    }

    /// Waits until what was queued before the call has run. Process, not from work on this queue.
    pub fn flush(&self) {
        // SAFETY: By the type invariant this is a workqueue.
        unsafe { bindings::__flush_workqueue(self.0.as_ptr()) };
    }

    /// Returns the C workqueue.
    pub(crate) fn as_ptr(&self) -> *mut bindings::workqueue_struct {
        self.0.as_ptr()
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this is a workqueue that nobody else destroys.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}
