// SPDX-License-Identifier: GPL-2.0

//! XRC domains (IBTA annex A14), and the XRC SRQs by the numbers that packets name them by.

use crate::{
    device::Device,
    live::{
        Kind,
        Live, //
    },
    memory::{
        context::Context,
        pd::Pd, //
    },
    queue::{
        cq::Cq,
        srq::Srq, //
    },
    table::Table, //
};
use core::ops::RangeInclusive;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    pd::ProtectionDomain,
    xrcd::XrcDomain, //
};

/// Numbers of XRC SRQs: 24 bits. librxe leaves 0 in the requests of a process that names none.
pub(super) const NUMBERS: RangeInclusive<u32> = 1..=0x00ff_ffff;

/// The XRC SRQs of all devices.
pub(crate) static SRQS: Table<Srq> = Table::new();

/// An XRC domain; two are the same if they are the same object.
pub(crate) struct Xrcd {
    /// Lent to its target QPs, which have neither a protection domain nor CQs. Nobody registers memory in `pd` or posts to
    /// `cq`.
    pd: Arc<Pd>,
    cq: Arc<Cq>,
    _live: Live,
}

impl Xrcd {
    /// The queue of the domain that packets call `number`. Context: any.
    pub(crate) fn srq(self: &Arc<Self>, number: u32) -> Option<Arc<Srq>> {
        SRQS.get(number).filter(|srq| srq.is_in(self))
    }
}

impl XrcDomain for Xrcd {
    type Device = Device;
    type Context = Context;
    type Pd = Pd;
    type Cq = Cq;

    fn alloc(device: &Arc<Device>, context: Option<&Arc<Context>>) -> Result<Arc<Self>> {
        let domain = Self {
            pd: Pd::alloc(device, context)?,
            cq: Cq::stand_in(device)?,
            _live: Live::new(Kind::Xrcd),
        };
        Ok(Arc::new(domain, GFP_KERNEL_ACCOUNT)?)
    }

    fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    fn dealloc(self: &Arc<Self>) {
        self.pd.dealloc();
    }
}
