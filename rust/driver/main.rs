// SPDX-License-Identifier: GPL-2.0

//! ferroce: a software RoCEv2 device.
//!
//! `Documentation/` says how it is built, and which contexts and locks there are.

#![forbid(unsafe_code)]

mod debugfs;
mod demux;
mod device;
mod gid;
mod hash;
mod lifecycle;
mod link;
mod live;
mod memory;
mod packet;
mod qp;
mod queue;
mod storage;
mod table;
mod users;
mod verbs;

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::global::Guard;
use sync::{
    RcuTable,
    WorkQueue, //
};

module! {
    type: Ferroce,
    name: "ferroce",
    authors: ["The ferroce developers"],
    description: "Software RoCEv2 device",
    license: "GPL v2",
    alias: ["rdma-link-ferroce"],
    imports_ns: ["DMA_BUF"],
}

/// The loaded module. The fields stand in the order of their drop, see [`Ferroce::drop`].
struct Ferroce {
    link: Option<rdma::link::LinkType<verbs::Ferroce>>,
    client: Option<rdma::client::Client<verbs::Ferroce>>,
    watch: Option<net::NetdevNotifier<device::registry::Registry>>,
    files: Option<Pin<KBox<debugfs::Files>>>,
    registry: Arc<device::registry::Registry>,
    tables: Option<Tables>,
    guard: Option<Guard<device::registry::Registry>>,
}

/// The tables of all objects that packets and requests find by number, as long as this lives.
struct Tables {
    _qps: Guard<RcuTable<qp::Qp>>,
    _general_services: Guard<RcuTable<qp::Qp>>,
    _regions: Guard<RcuTable<memory::key::Mr>>,
    _handles: Guard<RcuTable<packet::ah::Ah>>,
    _xrc_srqs: Guard<RcuTable<queue::srq::Srq>>,
    _groups: Guard<RcuTable<device::multicast::Group>>,
}

impl Tables {
    fn open(queue: &Arc<WorkQueue>) -> Result<Self> {
        hash::begin();
        qp::table::begin_anywhere();
        Ok(Self {
            _qps: qp::table::QPS.open(queue)?,
            _general_services: qp::table::GENERAL_SERVICES.open(queue)?,
            _regions: memory::key::REGIONS.open(queue)?,
            _handles: packet::ah::HANDLES.open(queue)?,
            _xrc_srqs: queue::xrcd::SRQS.open(queue)?,
            _groups: device::multicast::GROUPS.open(queue)?,
        })
    }
}

impl kernel::Module for Ferroce {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let receivers = device::registry::Receivers {
            own: demux::receive_own,
            steered: demux::receive_steered,
        };
        let (registry, guard) = device::registry::Registry::new(module, receivers)?;
        let tables = Tables::open(&registry.releases)?;
        let files = debugfs::Files::new()?;
        let watch = net::NetdevNotifier::register(registry.clone())?;
        let client = rdma::client::register(c"ferroce")?;
        let link = rdma::link::register()?;
        Ok(Self {
            link: Some(link),
            client: Some(client),
            watch: Some(watch),
            files: Some(files),
            registry,
            tables: Some(tables),
            guard: Some(guard),
        })
    }
}

impl Drop for Ferroce {
    fn drop(&mut self) {
        // No device is made any more.
        drop(self.link.take());
        lifecycle::unregister_all(&self.registry);
        drop(self.client.take());
        // No device is left that could be on a netdev.
        drop(self.watch.take());
        drop(self.files.take());
        // Everything that was put off is done: what now lives, lives for ever.
        self.registry.flush();
        pr_info!("unloaded, live objects: {}\n", live::Summary);
        drop(self.tables.take());
        // If the tables were not empty, a work gives their objects back.
        self.registry.flush_releases();
        drop(self.guard.take());
    }
}
