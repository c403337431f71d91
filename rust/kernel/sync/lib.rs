// SPDX-License-Identifier: GPL-2.0

//! Synchronisation: what the kernel crate does not have yet, written as if it were to become part of
//! [`kernel::sync`].
//!
//! Each item says in which contexts it may be used. "Any context" includes hard interrupts and interrupts
//! off; "process" means that the call may sleep.

// Functions that nobody calls are left out.
#![allow(clippy::new_without_default)]

pub mod context;
pub mod counters;
pub mod cpu;
pub mod crc;
pub mod gate;
pub mod lock;
pub mod random;
pub mod rcu;
pub mod table;
pub mod timer;
pub mod workqueue;

pub use context::{
    fatal_signal_pending,
    owns_softirq,
    BhGuard,
    PreemptionGuard, //
};
pub use counters::ShardedCounters;
pub use cpu::{
    online_nodes,
    Cpu, //
};
pub use crc::crc32_le;
pub use gate::{
    Gate,
    Pass, //
};
pub use lock::{
    SpinLockBh,
    SpinLockBhGuard,
    SpinLockIrq, //
};
pub use random::random_u32;
pub use rcu::{
    rcu_barrier,
    synchronize_rcu, //
};
pub use rdma_bindings::smp_mb;
pub use table::{
    RcuTable,
    Reservation, //
};
pub use timer::{
    cpu_clock_ns,
    monotonic_ns,
    Timer,
    TimerCallback, //
};
pub use workqueue::{
    call_in_kernel_thread,
    WorkQueue, //
};
