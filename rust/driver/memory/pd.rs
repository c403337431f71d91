// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use crate::{
    device::Device,
    live::{
        Kind,
        Live, //
    },
    memory::{
        context::Context,
        paging_turns::{
            self,
            Pager,
            Turn,
            Turns, //
        }, //
    }, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::Work, //
};
use rdma::{
    on_demand::{
        Effort,
        MissingPages,
        OnDemand, //
    },
    pd::ProtectionDomain, //
};
use sync::{
    new_spin_lock_bh,
    SpinLockBh, //
};

/// The number of the work that faults in pages, among a protection domain's.
pub(super) const PREFETCH: u64 = 0;

/// Pages to fault in.
pub(super) struct Wanted {
    pub(super) memory: OnDemand,
    pub(super) pages: MissingPages,
    pub(super) effort: Effort,
}

/// A protection domain; two are the same if they are the same object.
#[pin_data]
pub(crate) struct Pd {
    device: Arc<Device>,
    /// Ranges that processes asked to be faulted in.
    #[pin]
    pub(super) pending: Mutex<KVVec<Wanted>>,
    #[pin]
    prefetch: Work<Pd, PREFETCH>,
    /// Those of its context.
    turns: Arc<Turns>,
    #[pin]
    turn: SpinLockBh<Turn>,
    _live: Live,
}

impl_has_work! {
    impl HasWork<Self, PREFETCH> for Pd { self.prefetch }
}

impl Pd {
    /// The device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Pager for Pd {
    fn turns(&self) -> &Turns {
        &self.turns
    }

    fn turn(&self) -> &SpinLockBh<Turn> {
        &self.turn
    }

    fn run(self: Arc<Self>) {
        let device = self.device.clone();
        let _ = device.registry.paging.enqueue::<_, PREFETCH>(self);
    }
}

impl ProtectionDomain for Pd {
    type Device = Device;
    type Context = Context;

    fn alloc(device: &Arc<Device>, context: Option<&Arc<Context>>) -> Result<Arc<Self>> {
        let turns = match context {
            Some(context) => context.turns().clone(),
            None => Turns::new()?,
        };
        let turn = Turn::new()?;
        Arc::pin_init(
            pin_init!(Self {
                device: device.clone(),
                pending <- new_mutex!(KVVec::new()),
                prefetch <- new_work!("Pd::prefetch"),
                turns,
                turn <- new_spin_lock_bh!(turn),
                _live: Live::new(Kind::Pd),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    fn dealloc(self: &Arc<Self>) {
        let pager: Arc<dyn Pager> = self.clone();
        paging_turns::withdraw(&pager);
    }
}
