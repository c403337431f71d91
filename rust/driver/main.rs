// SPDX-License-Identifier: GPL-2.0

//! ferroce: a software RoCEv2 device.
//!
//! `Documentation/` says how it is built, and which contexts and locks there are.

#![forbid(unsafe_code)]

mod ah;
mod buffer;
mod context;
mod counters;
mod cq;
mod datagram;
mod debugfs;
mod demux;
mod device;
mod frame;
mod gid;
mod hash;
mod link;
mod live;
mod loopback;
mod mr;
mod multicast;
mod mw;
mod paging_turns;
mod path;
mod pd;
mod port;
mod posted_receives;
mod prefetch;
mod qp;
mod queue;
mod registry;
mod srq;
mod steering;
mod storage;
mod user_wqe;
mod users;
mod verbs;
mod wqe;

use kernel::{
    prelude::*,
    sync::Arc, //
};

module! {
    type: Ferroce,
    name: "ferroce",
    authors: ["The ferroce developers"],
    description: "Software RoCEv2 device",
    license: "GPL v2",
    alias: ["rdma-link-ferroce"],
}

/// The loaded module. What is dropped first stands first, see [`Ferroce::drop`].
struct Ferroce {
    link: Option<rdma::link::LinkType<verbs::Ferroce>>,
    watch: Option<net::NetdevNotifier<link::Watch>>,
    files: Option<Pin<KBox<debugfs::Files>>>,
    registry: Arc<registry::Registry>,
    guard: Option<rdma::global::Guard<registry::Registry>>,
}

impl kernel::Module for Ferroce {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let (registry, guard) = registry::Registry::new(module)?;
        let files = debugfs::Files::new()?;
        let watch = Arc::new(link::Watch::new(&registry), GFP_KERNEL)?;
        let watch = net::NetdevNotifier::register(watch)?;
        let link = rdma::link::register()?;
        Ok(Self {
            link: Some(link),
            watch: Some(watch),
            files: Some(files),
            registry,
            guard: Some(guard),
        })
    }
}

impl Drop for Ferroce {
    fn drop(&mut self) {
        // No device is made any more.
        drop(self.link.take());
        self.registry.unregister_all();
        // No device is left that could be on a netdev.
        drop(self.watch.take());
        drop(self.files.take());
        // Everything that was put off is done: what now lives, lives for ever.
        self.registry.flush();
        pr_info!("unloaded, live objects: {}\n", live::Summary);
        drop(self.guard.take());
    }
}
