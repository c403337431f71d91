// SPDX-License-Identifier: GPL-2.0

//! The port: what the netdev says, in the words of the verbs.

use crate::device::Device;
use rdma::{
    mtu::Mtu,
    port::Attr, //
};

/// The one P_Key: full membership of the default partition (IBTA 10.9.1.2).
pub(crate) const DEFAULT_PKEY: u16 = 0xffff;

/// The largest message (IBTA 9.3.1).
const MAX_MESSAGE: u32 = 1 << 31;

/// The MTU that a netdev without MTU would have: nothing fits.
const NO_MTU: u32 = 0;

/// Looks at the netdev. Context: process, may sleep, RTNL not held.
pub(crate) fn query(device: &Device) -> Attr {
    let netdev = device.netdev();
    let netdev_mtu = netdev.as_ref().map_or(NO_MTU, |netdev| netdev.mtu());
    Attr {
        active: netdev
            .as_ref()
            .is_some_and(|netdev| netdev.is_operational()),
        link: netdev.as_ref().is_some_and(|netdev| netdev.is_up()),
        max_mtu: Mtu::Mtu4096,
        active_mtu: Mtu::of_netdev(netdev_mtu),
        netdev_mtu,
        speed: netdev.as_ref().and_then(|netdev| netdev.link_speed()),
        max_message: MAX_MESSAGE,
    }
}
