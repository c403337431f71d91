// SPDX-License-Identifier: GPL-2.0

//! The driver as `ib_core` sees it: which function is behind which verb.

use crate::{
    ah::Ah,
    context::Context,
    counters::{
        self,
        QpCounter, //
    },
    cq::Cq,
    device::{
        self,
        Device, //
    },
    gid,
    mr::Mr,
    multicast,
    pd::Pd,
    qp::{
        self,
        Qp, //
    },
    srq::Srq, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc, //
    },
};
use rdma::{
    details::Details,
    gid::Gid,
    stats::Descriptor,
    udata::Udata,
    wr::{
        RecvWrs,
        SendWrs, //
    },
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
    type Address = gid::Known;
    type Pd = Pd;
    type Ah = Ah;
    type Cq = Cq;
    type Qp = Qp;
    type Srq = Srq;
    type Mr = Mr;
    type Mw = Mr;
    type Counter = QpCounter;

    const ID: u32 = DRIVER_ID;
    const ABI_VERSION: u32 = ABI_VERSION;
    const COUNTERS: &'static [Descriptor] = &COUNTERS;
    const MAX_FAST_PAGES: u32 = device::MAX_FAST_PAGES;

    fn is_counter_of_qp(index: usize) -> bool {
        qp::is_counted(index)
    }

    fn new_counter() -> Result<Arc<QpCounter>> {
        QpCounter::new()
    }

    fn bind_counter(qp: &Qp, counter: &Arc<QpCounter>) -> Result {
        qp.bind(counter)
    }

    fn unbind_counter(qp: &Qp) {
        qp.unbind();
    }

    fn read_counter(counter: &QpCounter, values: &[Atomic<u64>]) {
        counter.read(values);
    }

    fn describe_qp(qp: &Qp, details: &mut Details<'_>) -> Result {
        qp.describe(details)
    }

    fn create_qp(
        pd: &Arc<Pd>,
        init: &mut rdma::qp::Init<Self>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<Arc<Qp>> {
        qp::create(pd, init, udata)
    }

    fn qp_number(qp: &Qp) -> u32 {
        qp::number(qp)
    }

    fn modify_qp(qp: &Arc<Qp>, attr: &rdma::qp::Attr, mask: rdma::qp::AttrMask) -> Result {
        qp::modify(qp, attr, mask)
    }

    fn query_qp(qp: &Arc<Qp>, attr: &mut rdma::qp::Attr) -> Result<rdma::qp::Cap> {
        qp::query(qp, attr)
    }

    fn destroy_qp(qp: &Arc<Qp>) {
        qp::destroy(qp);
    }

    fn doorbell(qp: &Arc<Qp>) -> Result {
        qp::doorbell(qp)
    }

    fn post_send(qp: &Arc<Qp>, wrs: &mut SendWrs<'_, Ah, Mr>) -> Result {
        qp::post_send(qp, wrs)
    }

    fn post_recv(qp: &Arc<Qp>, wrs: &mut RecvWrs<'_>) -> Result {
        qp::post_recv(qp, wrs)
    }

    fn attach_multicast(qp: &Arc<Qp>, group: &Gid) -> Result {
        multicast::attach(qp, group)
    }

    fn detach_multicast(qp: &Arc<Qp>, group: &Gid) -> Result {
        multicast::detach(qp, group)
    }
}
