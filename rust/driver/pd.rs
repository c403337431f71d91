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
    is_user: bool,
    _live: Live,
}

impl Pd {
    /// Allocates a protection domain. Context: process, may sleep.
    pub(crate) fn new(device: &Arc<Device>, is_user: bool) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                device: device.clone(),
                is_user,
                _live: Live::new(Kind::Pd),
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    /// The device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Whether it belongs to a process.
    pub(crate) fn is_user(&self) -> bool {
        self.is_user
    }
}
