// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use crate::{
    device::Device,
    live::{
        Kind,
        Live, //
    },
    prefetch::{
        Pending,
        PREFETCH, //
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

/// A protection domain; two are the same if they are the same object.
#[pin_data]
pub(crate) struct Pd {
    device: Arc<Device>,
    /// What processes asked to have brought in.
    #[pin]
    pub(crate) pending: Mutex<Pending>,
    #[pin]
    prefetch: Work<Pd, PREFETCH>,
    _live: Live,
}

impl_has_work! {
    impl HasWork<Self, PREFETCH> for Pd { self.prefetch }
}

impl Pd {
    /// Allocates a protection domain. Context: process, may sleep.
    pub(crate) fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                device: device.clone(),
                pending <- new_mutex!(Pending::default()),
                prefetch <- new_work!("Pd::prefetch"),
                _live: Live::new(Kind::Pd),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}
