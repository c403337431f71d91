// SPDX-License-Identifier: GPL-2.0

//! The devices of the module, and the things that they share: work queues, page pools, and the addresses and netdevs by
//! which packets find a device.
//!
//! # Locks
//!
//! The list of devices has a mutex, which is taken under RTNL too. So nothing that takes RTNL, or
//! waits for somebody who does, is called with it held; `ib_core` is never called with it held. Sockets are opened with it
//! held, in a thread of the kernel that takes neither.

use crate::{
    device::{
        addresses::Addresses,
        load::Loads,
        sockets::Sockets,
        steering::Steered,
        Device,
        Site, //
    },
    hash,
    live,
    storage::{
        append,
        take, //
    }, //
};
use core::ops::RangeInclusive;
use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{
        rcu,
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};
use net::{
    NetId,
    PagePools,
    RxList, //
};
use rdma::{
    error,
    global::{
        Global,
        Guard, //
    },
};
use sync::{
    BhGuard,
    RcuTable,
    WorkQueue, //
};

static REGISTRY: Global<Registry> = Global::new();

/// How long the closing of sockets waits for memory, in milliseconds.
const NO_MEMORY_PAUSE_MS: i64 = 10;

/// The functions that receive packets which do not come straight from the netdev of a device.
/// Context: bottom halves off.
#[derive(Clone, Copy)]
pub(crate) struct Receivers {
    /// From QPs of the device.
    pub(crate) own: fn(&Arc<Device>, RxList),
    /// From its netdev, by way of another CPU. The last argument is called once they are taken in, with bottom halves
    /// off.
    pub(crate) steered: fn(&Arc<Device>, RxList, BhGuard, &mut dyn FnMut()),
}

#[derive(Default)]
struct Devices {
    devices: KVec<Arc<Device>>,
    sockets: Sockets,
}

/// Bytes that each page pool keeps, at the most: two windows of packets.
const POOL_BYTES: usize = 2 << 20;

/// How often the module, when it goes, waits for works that queue others, and at the most for those that queue themselves
/// again: these have an end, as there are no queue pairs, but no promise says when.
const LEAST_FLUSHES: u32 = 4;
const MOST_FLUSHES: u32 = 100;

/// State that the devices of the module share. Dropped in process context: it ends workqueues and page pools.
#[pin_data]
pub(crate) struct Registry {
    pub(crate) module: &'static ThisModule,
    pub(super) receivers: Receivers,
    /// The addresses of all devices.
    #[pin]
    pub(crate) addresses: Addresses,
    /// The devices by their namespaces and netdevs, hashed.
    #[pin]
    on_netdevs: RcuTable<Device>,
    #[pin]
    devices: Mutex<Devices>,
    #[pin]
    closing: Work<Registry>,
    namespaces: net::Namespaces,
    /// For BH work.
    pub(crate) bh: Arc<WorkQueue>,
    /// For process work.
    pub(crate) process: Arc<WorkQueue>,
    /// On which the tables give back what was removed from them. Nothing else, so that work on any other queue may
    /// wait for it.
    pub(crate) releases: Arc<WorkQueue>,
    /// For page faults: they may take any time, and nothing waits for them but the end of the module.
    pub(crate) paging: Arc<WorkQueue>,
    /// For work that keeps a CPU busy.
    pub(crate) bulk: Arc<WorkQueue>,
    pub(crate) steered: Steered,
    pub(super) loads: Loads,
    /// Memory for packets.
    pub(crate) pages: PagePools,
}

impl_has_work! {
    impl HasWork<Self> for Registry { self.closing }
}

impl WorkItem for Registry {
    type Pointer = Arc<Registry>;

    /// Closes the sockets of namespaces that no device or address has come back to.
    fn run(registry: Arc<Registry>) {
        registry.close_unused();
    }
}

impl Registry {
    /// Makes the registry of `module` and lets everybody find it, until the guard is dropped.
    /// Context: process, may sleep.
    pub(crate) fn new(
        module: &'static ThisModule,
        receivers: Receivers,
    ) -> Result<(Arc<Self>, Guard<Self>)> {
        let bh = Arc::new(WorkQueue::new_bh(c"ferroce_bh")?, GFP_KERNEL)?;
        let process = Arc::new(WorkQueue::new_unbound(c"ferroce")?, GFP_KERNEL)?;
        let releases = Arc::new(WorkQueue::new_unbound(c"ferroce_release")?, GFP_KERNEL)?;
        let paging = Arc::new(WorkQueue::new_unbound(c"ferroce_paging")?, GFP_KERNEL)?;
        let namespaces = net::Namespaces::register()?;
        let bulk = Arc::new(WorkQueue::new_bulk(c"ferroce_bulk")?, GFP_KERNEL)?;
        let pages = PagePools::new(POOL_BYTES)?;
        let loads = Loads::new()?;
        let registry = Arc::pin_init(
            pin_init!(Self {
                module,
                receivers,
                addresses <- Addresses::new(releases.clone()),
                on_netdevs <- RcuTable::new(releases.clone()),
                devices <- new_mutex!(Devices::default()),
                closing <- new_work!("ferroce::Registry::closing"),
                namespaces,
                bh,
                process,
                releases,
                paging,
                bulk,
                steered: Steered::default(),
                loads,
                pages,
            }),
            GFP_KERNEL,
        )?;
        let guard = REGISTRY.set(registry.clone())?;
        Ok((registry, guard))
    }

    /// Makes the core of a device on `netdev` and puts it on the list.
    ///
    /// Errors: `EEXIST` if there is a device on `netdev`, `EADDRINUSE` if somebody else has the UDP
    /// port, `E2BIG` if netfilter takes no more hooks, `ENODEV` if `netdev` goes, or changes its namespace, `ENOSPC` if
    /// there are too many devices like it, `ENOMEM`. Context: process, may sleep, not under RTNL.
    pub(crate) fn attach(self: &Arc<Self>, netdev: &net::NetDev) -> Result<Arc<Device>> {
        let netns = self.namespaces.of(netdev)?;
        let device = self.enlist(netdev, &netns)?;
        // No event tells of changes of the netdev before the device was on the list.
        if !netdev.is_settled_in(&netns) {
            self.withdraw(&device);
            return Err(ENODEV);
        }
        Ok(device)
    }

    /// Makes the core of a device on `netdev`, in the namespace `netns`, and puts it on the list.
    /// Errors: those of [`Self::attach`]. Context: process, may sleep.
    fn enlist(self: &Arc<Self>, netdev: &net::NetDev, netns: &net::Net) -> Result<Arc<Device>> {
        let mut list = self.devices.lock();
        if list.devices.iter().any(|device| device.is_on(netdev)) {
            return Err(EEXIST);
        }
        let made = list.sockets.enter(netns).and_then(|sender| {
            let made = self.enlist_with(netdev, sender, &mut list.devices);
            if made.is_err() {
                list.sockets.leave(netns.id());
            }
            made
        });
        drop(list);
        if made.is_err() {
            self.close_unused();
        }
        made
    }

    /// [`Self::enlist`], with the sockets of the namespace and the list.
    fn enlist_with(
        self: &Arc<Self>,
        netdev: &net::NetDev,
        sender: net::Sender,
        devices: &mut KVec<Arc<Device>>,
    ) -> Result<Arc<Device>> {
        // Storage consumers take two devices with one GUID for one. A bond and its netdevs have one MAC address.
        let guid = netdev.guid(|guid| devices.iter().any(|device| device.guid == *guid));
        let device = Device::new(self, netdev, guid, sender)?;
        append(devices, device.clone())?;
        self.publish(&device).inspect_err(|_| {
            devices.pop();
        })?;
        Ok(device)
    }

    /// Lets multicast packets find a device. Errors: `ENOSPC` if there are too many like it, `ENODEV` if it has gone
    /// meanwhile. Context: process, may sleep.
    fn publish(&self, device: &Arc<Device>) -> Result {
        let site = device.site().ok_or(ENODEV)?;
        hash::insert(&self.on_netdevs, site_keys(&site), device)?;
        // If it has left meanwhile, its removal may have found no entry.
        if device.site() != Some(site) {
            self.unpublish(device, &site);
            return Err(ENODEV);
        }
        Ok(())
    }

    /// Multicast packets do not find `device` at `site` any more. Context: process.
    fn unpublish(&self, device: &Arc<Device>, site: &Site) {
        hash::remove(&self.on_netdevs, site_keys(site), device);
    }

    /// The netdev of `device` has come to another namespace.
    ///
    /// Errors: those of [`Self::enter`]; `ENOSPC` if there are too many devices like it. Then the device stays without a
    /// network. Context: process, may sleep; RTNL may be held.
    pub(crate) fn arrive(
        self: &Arc<Self>,
        device: &Arc<Device>,
        netdev: &net::NetDevice,
    ) -> Result {
        if device.site().is_some() {
            return Ok(());
        }
        let sender = self.enter(netdev)?;
        let netns = sender.net().id();
        let arrived = device
            .arrive(netdev, sender)
            .inspect_err(|_| self.leave(netns));
        arrived.and_then(|()| self.publish(device))
    }

    /// `device` is not at `site` any more. Context: process, RTNL may be held.
    pub(crate) fn vacate(self: &Arc<Self>, device: &Arc<Device>, site: Option<Site>) {
        if let Some(site) = site {
            self.unpublish(device, &site);
            self.leave(site.net_id);
        }
    }

    /// As [`Self::vacate`], and if nobody else uses the sockets there, they are closed when this returns, unless memory is
    /// short. Context: process, may sleep, not under RTNL.
    pub(crate) fn vacate_now(self: &Arc<Self>, device: &Arc<Device>, site: Option<Site>) {
        if let Some(site) = site {
            self.unpublish(device, &site);
            self.devices.lock().sockets.leave(site.net_id);
            self.close_unused();
        }
    }

    /// Takes in packets of the namespace of `netdev` from now on. Returns the sender for packets from there. The caller
    /// calls [`Self::leave`] once.
    ///
    /// Errors: `EADDRINUSE` if somebody else has the UDP port, `E2BIG` if netfilter takes no more hooks, `ENODEV` if the
    /// namespace is about to end. Context: process, may sleep; RTNL may be held.
    pub(crate) fn enter(self: &Arc<Self>, netdev: &net::NetDevice) -> Result<net::Sender> {
        let netns = self.namespaces.of(netdev)?;
        let sender = self.devices.lock().sockets.enter(&netns);
        if sender.is_err() {
            self.queue_close();
        }
        sender
    }

    /// Undoes one [`Self::enter`]. Sockets that nobody uses any more stay for a moment: an address that is back soon
    /// takes them again. Context: process, may sleep; RTNL may be held.
    pub(crate) fn leave(self: &Arc<Self>, netns: NetId) {
        if self.devices.lock().sockets.leave(netns) {
            self.queue_close();
        }
    }

    /// Has work close all sockets that nobody uses: it waits for grace periods, too long for callers under RTNL or on
    /// `ib_core`'s workqueue of GIDs. Context: any.
    fn queue_close(self: &Arc<Self>) {
        let _ = self.process.enqueue(self.clone());
    }

    /// Closes all sockets that nobody uses now. Context: process, may sleep, not under RTNL.
    fn close_unused(self: &Arc<Self>) {
        let unused = self.devices.lock().sockets.take_unused();
        match unused {
            // This waits for grace periods, without the mutex.
            Ok(unused) => net::Listener::drop_all(unused),
            Err(_) => {
                fsleep(Delta::from_millis(NO_MEMORY_PAUSE_MS));
                self.queue_close();
            }
        }
    }

    /// Undoes [`Self::attach`], for a device that was not registered, so that it has no objects. Context: process.
    pub(crate) fn withdraw(self: &Arc<Self>, device: &Arc<Device>) {
        if let Some(site) = device.detach() {
            self.vacate_now(device, site);
        }
        self.forget(device);
    }

    /// The device on `netdev`. Context: process, RTNL may be held.
    pub(crate) fn device_on(&self, netdev: &net::NetDevice) -> Option<Arc<Device>> {
        self.find(|device| device.is_on(netdev))
    }

    /// The first device on the list that `is_it`. Context: process, RTNL may be held.
    pub(crate) fn find(&self, is_it: impl Fn(&Device) -> bool) -> Option<Arc<Device>> {
        let list = self.devices.lock();
        list.devices.iter().find(|device| is_it(device)).cloned()
    }

    /// Takes `device` off the list. Context: process.
    pub(crate) fn forget(&self, device: &Arc<Device>) {
        let removed = {
            let mut list = self.devices.lock();
            let index = list
                .devices
                .iter()
                .position(|other| Arc::ptr_eq(other, device));
            index.and_then(|index| take(&mut list.devices, index))
        };
        drop(removed);
    }

    /// Waits for all that was put off, when there are no devices on the list any more. Context: process, may sleep.
    pub(crate) fn flush(&self) {
        // Work frees objects after a grace period, and may put off more work: a device that is unregistered by
        // work tells an SRQ of its end, by work, which tells the SRQ's consumer, by work. Packets of a device that
        // waited are taken in some at a time, and then the rest is put off again.
        for turn in 0..MOST_FLUSHES {
            if turn >= LEAST_FLUSHES && !live::is_any() {
                break;
            }
            self.paging.flush();
            self.flush_releases();
            self.process.flush();
        }
    }

    /// Waits for packets in flight, then for what they, or the tables, were the last to refer to. Context: process, may
    /// sleep, not on a workqueue that it flushes.
    pub(crate) fn flush_releases(&self) {
        self.bulk.flush();
        self.bh.flush();
        sync::rcu_barrier();
        self.releases.flush();
    }
}

/// Why [`Registry::enter`] failed, or why packets cannot find a device or an address.
pub(crate) fn why_not_attached(error: Error) -> &'static str {
    if error == error::address_in_use() {
        "UDP port 4791 is taken in its namespace, by rdma_rxe or a program (ss -ulnp)"
    } else if error == ENODEV {
        "it is going away or to another namespace, or its namespace is"
    } else if error == ENOSPC {
        "there are too many like it"
    } else if error == E2BIG {
        "netfilter has 1024 hooks there already, which is its limit (nft list hooks)"
    } else {
        "its UDP sockets could not be made"
    }
}

/// The registry, while the module is loaded. Context: any.
pub(crate) fn get() -> Result<Arc<Registry>> {
    REGISTRY.get_arc().ok_or_else(error::network_down)
}

/// The device in the namespace `netns` that has the address `gid`. Context: any.
pub(crate) fn device_of<'a>(
    netns: &net::Net,
    gid: &[u8; 16],
    rcu: &'a rcu::Guard,
) -> Option<&'a Arc<Device>> {
    REGISTRY.get(rcu)?.addresses.find(netns.id(), gid, rcu)
}

/// Where the device on the netdev at `site` may be.
fn site_keys(site: &Site) -> RangeInclusive<u32> {
    hash::keys([site.net_id.to_bits(), u64::from(site.ifindex)])
}

/// The device on the netdev at `site`. Context: any.
pub(crate) fn device_on_site<'a>(site: &Site, rcu: &'a rcu::Guard) -> Option<&'a Arc<Device>> {
    let table = &REGISTRY.get(rcu)?.on_netdevs;
    table
        .read_range(site_keys(site), rcu)
        .find(|device| device.site().as_ref() == Some(site))
}

/// The device that a packet came by which the namespace `netns` got from netdev number `ifindex`: the one on
/// that netdev, or below that VLAN. Context: softirq.
pub(crate) fn device_at<'a>(
    netns: &net::Net,
    ifindex: u32,
    rcu: &'a rcu::Guard,
) -> Option<&'a Arc<Device>> {
    let on = |ifindex| {
        let site = Site {
            net_id: netns.id(),
            ifindex,
        };
        device_on_site(&site, rcu)
    };
    on(ifindex).or_else(|| on(netns.below_vlan(ifindex)?))
}
