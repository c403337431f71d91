// SPDX-License-Identifier: GPL-2.0

//! The driver as `ib_core` sees it: which type is behind which object of the verbs.
//!
//! Each has the trait of its object in its own file.

use crate::{
    device::{
        addresses::Known,
        attributes,
        counters::{
            self,
            QpCounter, //
        },
        Device, //
    },
    memory::{
        context::Context,
        key::Mr,
        pd::Pd, //
    },
    packet::ah::Ah,
    qp::Qp,
    queue::{
        cq::Cq,
        srq::Srq,
        xrcd::Xrcd, //
    }, //
};
use rdma::{
    stats::Descriptor,
    Driver, //
};

/// `RDMA_DRIVER_RXE`: librxe, rdma-core's provider for rxe, binds to devices with this id.
const DRIVER_ID: u32 = 14;
/// The version of its ABI, `RXE_UVERBS_ABI_VERSION`.
const ABI_VERSION: u32 = 2;

/// The counters' descriptions, made of their names.
static COUNTERS: [Descriptor; counters::NAMES.len()] = {
    let mut descriptors = [const { Descriptor::new(c"") }; counters::NAMES.len()];
    let mut index = 0;
    while index < descriptors.len() {
        descriptors[index] = Descriptor::new(counters::NAMES[index]);
        index += 1;
    }
    descriptors
};

/// The driver.
pub(crate) struct Ferroce;

impl Driver for Ferroce {
    type Device = Device;
    type Context = Context;
    type Address = Known;
    type Pd = Pd;
    type Ah = Ah;
    type Cq = Cq;
    type Qp = Qp;
    type Srq = Srq;
    type Xrcd = Xrcd;
    type Mr = Mr;
    type Mw = Mr;
    type Counter = QpCounter;

    const ID: u32 = DRIVER_ID;
    const ABI_VERSION: u32 = ABI_VERSION;
    const COUNTERS: &'static [Descriptor] = &COUNTERS;
    const MAX_FAST_PAGES: u32 = attributes::MAX_FAST_PAGES;
}
