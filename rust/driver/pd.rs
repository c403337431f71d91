// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use crate::{
    device::Device,
    live::{
        Kind,
        Live, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A protection domain; two are the same if they are the same object.
pub(crate) struct Pd {
    device: Arc<Device>,
    _live: Live,
}

impl Pd {
    /// Allocates a protection domain. Context: process, may sleep.
    pub(crate) fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                device: device.clone(),
                _live: Live::new(Kind::Pd),
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    /// The device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}
