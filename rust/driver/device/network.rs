// SPDX-License-Identifier: GPL-2.0

//! A device's part of the network: its netdev, the namespace that this is in, and the multicast groups there.

use crate::device::{
    Device,
    Place,
    Site,
    SETTLE_GROUPS, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Relaxed,
            Release, //
        },
        Arc, //
    },
    workqueue::WorkItem, //
};
use net::{
    NetCookie,
    NetId, //
};
use rdma::gid::Gid;
use roce::qp::Mtu;

/// Memory of packets in this machine's queues, in bytes, beyond which QPs wait: with full-sized packets a
/// tenth, with the smallest ones less than all of a receiver's backlog (1000 packets).
pub(crate) const QUEUE_LIMIT: usize = 768 << 10;

/// Bytes that RoCEv2 may add around a payload, as `iboe_get_mtu()` has it, by which `rdma_cm` chooses path MTUs: IPv6,
/// UDP, BTH, XRCETH and AtomicETH headers and ICRC take 40 + 8 + 12 + 4 + 28 + 4 bytes.
const HEADROOM: u32 = 96;

/// The largest path MTU whose packets fit an MTU of `bytes` of IP; 256 if none does. Context: any.
pub(crate) fn path_mtu(bytes: u32) -> Mtu {
    Mtu::at_most(bytes.saturating_sub(HEADROOM)).unwrap_or(Mtu::M256)
}

impl WorkItem<SETTLE_GROUPS> for Device {
    type Pointer = Arc<Device>;

    fn run(device: Arc<Device>) {
        let mut groups = device.groups.lock();
        let netdev = device.netdev().filter(|_| device.site().is_some());
        let is_dead = device.is_dead();
        // A thread that holds RTNL may wait for the end of a retired device (`lifecycle::leave`), and QPs take the lock of the
        // groups as they end.
        let is_needed = || is_dead || !device.is_retired();
        groups.settle(netdev.as_ref(), is_dead, &is_needed);
    }
}

impl Device {
    /// Does `function` to what the device has of its namespace, if it is in one and not stopped. Context: any.
    fn with_place<T>(&self, function: impl FnOnce(&Place) -> T) -> Option<T> {
        let attachment = self.attachment.lock();
        let place = attachment.as_ref()?.place.as_ref()?;
        Some(function(place))
    }

    /// Where its netdev is; [`None`] between two namespaces, and once the device is stopped. Context: any.
    #[inline(never)]
    pub(crate) fn site(&self) -> Option<Site> {
        self.with_place(|place| place.site)
    }

    /// Whether `gid` is one of its addresses in the namespace `netns`. Context: any.
    pub(crate) fn has_address(&self, netns: NetId, gid: &Gid) -> bool {
        self.registry.addresses.has(self, netns, gid)
    }

    /// The netdev, until it goes. Context: any.
    pub(crate) fn netdev(&self) -> Option<net::NetDev> {
        let attachment = self.attachment.lock();
        attachment
            .as_ref()
            .map(|attachment| attachment.netdev.clone())
    }

    /// Whether it is on `netdev`. Context: any.
    pub(crate) fn is_on(&self, netdev: &net::NetDevice) -> bool {
        let attachment = self.attachment.lock();
        attachment
            .as_ref()
            .is_some_and(|attachment| attachment.netdev.is_same(netdev))
    }

    /// The sender for packets from the address `gid` in the namespace `netns`. [`None`] once the device is stopped, and
    /// in another namespace than the device's own if it has no such address there. Context: any.
    pub(crate) fn sender_in(&self, netns: NetCookie, gid: &Gid) -> Option<net::Sender> {
        let id = netns.id();
        let own = |place: &Place| (place.site.net_id == id).then(|| place.sender.clone());
        self.with_place(own)
            .flatten()
            .or_else(|| self.registry.addresses.sender(self, id, gid))
            .filter(|sender| sender.net().cookie() == netns)
    }

    /// Where whole frames leave; [`None`] as for [`Self::site`]. Context: any.
    pub(crate) fn tx_netdev(&self) -> Option<net::TxNetdev> {
        let attachment = self.attachment.lock();
        let attachment = attachment.as_ref()?;
        let sender = attachment.place.as_ref()?.sender.clone();
        Some(net::TxNetdev::new(attachment.netdev.clone(), sender))
    }

    /// Whether so much waits in this machine's queues that more frames would only be dropped there.
    /// Context: any.
    pub(crate) fn is_congested(&self) -> bool {
        self.with_place(|place| place.sender.queued_bytes(true) > QUEUE_LIMIT)
            .unwrap_or(false)
    }

    /// Marks the device dead and lets go of the network: of its multicast groups soon, as RTNL may be held. Returns
    /// whether it was alive, and where it was. Context: process.
    pub(crate) fn detach(self: &Arc<Self>) -> Option<Option<Site>> {
        self.dead.store(true, Release);
        let attachment = self.attachment.lock().take()?;
        self.settle_groups();
        Some(attachment.place.map(|place| place.site))
    }

    /// Its netdev leaves a namespace for another one. Returns where it was. Context: process, RTNL may be held.
    pub(crate) fn depart(self: &Arc<Self>) -> Option<Site> {
        let mut attachment = self.attachment.lock();
        let place = attachment.as_mut().get_mut().as_mut()?.place.take()?;
        drop(attachment);
        self.settle_groups();
        Some(place.site)
    }

    /// Its netdev has come to the namespace that `sender` sends from. Errors: `ENODEV` if the device is stopped.
    /// Context: process, RTNL may be held.
    pub(crate) fn arrive(self: &Arc<Self>, netdev: &net::NetDevice, sender: net::Sender) -> Result {
        let place = Place::new(netdev, sender);
        match self.attachment.lock().as_mut().get_mut() {
            Some(attachment) => attachment.place = Some(place),
            None => return Err(ENODEV),
        }
        self.settle_groups();
        Ok(())
    }

    /// Has the network know its multicast groups where it is now, soon: RTNL is taken for it. Context: any.
    pub(crate) fn settle_groups(self: &Arc<Self>) {
        let _ = self
            .registry
            .process
            .enqueue::<_, SETTLE_GROUPS>(self.clone());
    }

    /// The largest path MTU. Context: any.
    pub(crate) fn mtu(&self) -> Mtu {
        path_mtu(self.netdev_mtu.load(Relaxed))
    }

    /// The MTU of `netdev` may have changed. If it did, IP may be back on the netdev, without the memberships. Context:
    /// process; RTNL is held.
    pub(crate) fn mtu_changed(self: &Arc<Self>, netdev: &net::NetDevice) {
        let mtu = netdev.mtu();
        if self.netdev_mtu.xchg(mtu, Relaxed) != mtu {
            self.settle_groups();
        }
    }
}
