// SPDX-License-Identifier: GPL-2.0

//! The port: what the netdev says, in the words of the verbs.

use crate::device::{
    counters::Counter,
    network,
    Device,
    PORT_STATE, //
};
use kernel::{
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    workqueue::WorkItem, //
};
use rdma::{
    mad::PortCounters,
    port::{
        Attr,
        Port, //
    }, //
};
use roce::{
    qp::Mtu,
    requester::MAX_MESSAGE_LEN, //
};

/// The one P_Key: full membership of the default partition (IBTA 10.9.1.2).
pub(crate) const DEFAULT_PKEY: u16 = 0xffff;

/// The MTU that a netdev without MTU would have: nothing fits.
const NO_MTU: u32 = 0;

impl WorkItem<PORT_STATE> for Device {
    type Pointer = Arc<Device>;

    fn run(device: Arc<Device>) {
        if let (Some(handle), Some(netdev)) = (device.handle(), device.netdev()) {
            handle.dispatch_port_state(&netdev);
            if netdev.is_ethernet() && !device.has_moved.load(Relaxed) {
                return;
            }
            // The thread that changes an address holds RTNL, and often changes more of them. The scan takes RTNL, too. A
            // retired device is not scanned: the holder of RTNL may wait for its end (`lifecycle::leave`).
            net::wait_for_rtnl();
            if !device.is_retired() {
                handle.rescan_gids(|| {
                    let own_are_stale = device.addresses_gone.xchg(false, Relaxed);
                    let above_are_stale = device.has_moved.xchg(false, Relaxed);
                    let device = &device;
                    move |other| {
                        if device.is_on(other) {
                            own_are_stale
                        } else {
                            above_are_stale
                        }
                    }
                });
            }
        }
    }
}

impl Device {
    /// The link of `netdev` may have come or gone. Tells the consumers. Context: process; RTNL is held.
    pub(crate) fn link_changed(self: &Arc<Self>, netdev: &net::NetDevice) {
        let is_active = netdev.is_operational();
        if self.was_active.xchg(is_active, Relaxed) && !is_active {
            self.counters.add(Counter::LinkDowned, 1);
        }
        // Not every change of the MTU has an event of its own.
        self.mtu_changed(netdev);
        // At once: the link may soon be as it was before. `ib_core` does so, too, but not for bonds.
        if let Some(handle) = self.handle() {
            handle.dispatch_port_state(netdev);
        }
        // The work may be telling an older state.
        self.port_changed();
    }

    /// Its netdev has lost addresses that `ib_core` does not follow: it does so soon. Context: any.
    pub(crate) fn addresses_lost(self: &Arc<Self>) {
        self.addresses_gone.store(true, Relaxed);
        self.port_changed();
    }

    /// The device has come to another namespace, in exclusive mode: the addresses of netdevs above its own count anew, soon,
    /// as those it may use are others now ([`rdma::gid::TableAddress::add`]). Context: any.
    pub(crate) fn has_moved(self: &Arc<Self>) {
        self.has_moved.store(true, Relaxed);
        self.port_changed();
    }

    /// Tells the consumers of a changed port, soon. Context: any.
    pub(crate) fn port_changed(self: &Arc<Self>) {
        let _ = self.registry.process.enqueue::<_, PORT_STATE>(self.clone());
    }
}

impl Port for Device {
    fn query_port(&self) -> Attr {
        let netdev = self.netdev();
        let netdev_mtu = netdev.as_ref().map_or(NO_MTU, |netdev| netdev.mtu());
        Attr {
            active: netdev
                .as_ref()
                .is_some_and(|netdev| netdev.is_operational()),
            link: netdev.as_ref().is_some_and(|netdev| netdev.is_up()),
            max_mtu: Mtu::M4096 as u32,
            active_mtu: network::path_mtu(netdev_mtu) as u32,
            netdev_mtu,
            // That takes RTNL, whose holder may wait for the end of a device that is retired (`lifecycle::leave`).
            speed: netdev.and_then(|netdev| netdev.link_speed(&|| !self.is_retired())),
            max_message: MAX_MESSAGE_LEN,
            bad_pkeys: self.counters.value(Counter::BadPkey as usize),
            bad_qkeys: self.counters.value(Counter::BadQkey as usize),
        }
    }

    fn query_pkey(&self, index: u16) -> Option<u16> {
        (index == 0).then_some(DEFAULT_PKEY)
    }

    fn netdev(&self) -> Option<net::NetDev> {
        // The method of the type itself, which comes before this one.
        Device::netdev(self)
    }

    fn counter(&self, index: usize) -> u64 {
        self.counters.value(index)
    }

    fn port_counters(&self) -> PortCounters {
        let value = |counter| self.counters.value(counter as usize);
        PortCounters {
            sent_bytes: value(Counter::SentBytes),
            received_bytes: value(Counter::ReceivedBytes),
            sent_packets: value(Counter::SentPackets),
            received_packets: value(Counter::ReceivedPackets),
            receive_errors: value(Counter::BadIcrc).wrapping_add(value(Counter::Malformed)),
            send_discards: value(Counter::SendDropped),
            link_downed: value(Counter::LinkDowned),
        }
    }
}
