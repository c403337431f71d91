// SPDX-License-Identifier: GPL-2.0

//! The way to a peer: an address vector that has been resolved to a route.

use crate::device::{
    multicast,
    network,
    sockets::ROCE_PORT,
    Device, //
};
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    }, //
};
use net::{
    Address,
    NetId,
    Query,
    RxSkb,
    CE, //
};
use rdma::gid::Place;

/// The arguments of a path lookup. They do not hold off the end of the namespace.
#[derive(Clone, Copy)]
pub(crate) struct PathQuery {
    /// A lookup sets `oif`.
    query: Query,
    /// Where the source address is.
    place: Place,
}

impl PathQuery {
    /// The path over the route that is valid now. Errors and context as for [`Path::resolve`].
    pub(crate) fn lookup(&self, device: &Device) -> Result<Arc<Path>> {
        let mut query = self.query;
        let netns = self.place.netns;
        let sender = device
            .sender_in(netns, &query.source.to_gid())
            .ok_or(ENODEV)?;
        let addresses = device.registry.addresses.changes();
        let (ifindex, vrf_ifindex) = self.netdev(sender.net()).ok_or(ENODEV)?;
        // A group, or an address of a link, is one of the netdev that has the source address. A VRF has routes of its
        // own.
        query.oif = match query.destination.is_multicast() || query.destination.is_link_local() {
            true => ifindex,
            false => vrf_ifindex,
        };
        let route = net::Path::lookup(&sender, &query)?;
        let is_loopback =
            route.is_local() && device.has_address(netns.id(), &query.destination.to_gid());
        let path = Path {
            asked: *self,
            oif: query.oif,
            ifindex,
            route,
            is_loopback,
            addresses,
        };
        // Paths are looked up again in softirq too.
        Ok(Arc::new(path, GFP_ATOMIC)?)
    }

    /// The numbers, in `net`, of the netdev that has the source address, and of its VRF, or 0. It may have been deleted and
    /// made again, or may have got another number in another namespace: then it is the one with the same name.
    fn netdev(&self, net: &net::Net) -> Option<(u32, u32)> {
        let of = |ifindex| Some((ifindex, net.vrf_of(ifindex)?));
        of(self.place.ifindex).or_else(|| of(net.ifindex_of(&self.place.name)?))
    }
}

/// Source and destination of packets to `address`.
fn ends(address: &rdma::ah::Address) -> (Address, Address) {
    let source = Address::from_gid(address.sgid.gid());
    (source, multicast::destination(&address.dgid, source))
}

/// Whether packets to `address` are for a group. Context: any.
pub(crate) fn is_to_group(address: &rdma::ah::Address) -> bool {
    let (_, destination) = ends(address);
    destination.is_multicast()
}

/// A route to a peer, with everything that its packets have in common.
pub(crate) struct Path {
    asked: PathQuery,
    /// The netdev or VRF that packets leave by and come from; 0 for any that is in no VRF.
    oif: u32,
    /// The number of the netdev that has the source address.
    ifindex: u32,
    pub(crate) route: net::Path,
    /// It ends where it begins: packets are for QPs of the same device.
    is_loopback: bool,
    /// [`Addresses::changes`](crate::device::addresses::Addresses::changes) when that was found out: the device hears
    /// of an address later than the routing does.
    addresses: u32,
}

impl Path {
    /// Resolves `address` for packets from QP `local` to QP `remote` (0: a datagram QP, whose peers
    /// differ). `has_window` if the sender slows down where the network is full.
    ///
    /// Errors: what the routing said; `ENODEV` if the device is going away.
    /// Context: process or softirq.
    pub(crate) fn resolve(
        device: &Device,
        address: &rdma::ah::Address,
        local: u32,
        remote: u32,
        has_window: bool,
    ) -> Result<Arc<Self>> {
        let (source, destination) = ends(address);
        // Consumers may set one bit of the two: then queues on the way may mark packets before they are full, and the sender
        // slows down (ECT, RFC 3168, annex A17.9). No packet leaves with a mark.
        let class = address.traffic_class;
        let may_be_marked = has_window && class & CE != CE;
        let query = Query {
            source,
            destination,
            oif: 0,
            traffic_class: if may_be_marked { class } else { class & !CE },
            hop_limit: address.hop_limit,
            flow_label: address.flow_label,
            source_port: source_port(address.flow_label, local, remote),
            destination_port: ROCE_PORT,
            service_level: address.sl.into(),
        };
        // The address may have gone, and be back under another entry of the table.
        let place = address.place();
        PathQuery { query, place }.lookup(device)
    }

    /// The arguments of its lookup. Context: any.
    pub(crate) fn query(&self) -> PathQuery {
        self.asked
    }

    /// Whether the route still holds, for this device, that it was looked up for. Context: any.
    pub(crate) fn is_valid(&self, device: &Device) -> bool {
        self.route.is_valid() && self.addresses == device.registry.addresses.changes()
    }

    /// Whether a packet comes from the other end of this path. The same addresses may be another host's on another link, or
    /// in another VRF. If the path stays within the device, a packet that came by the network does not: any process of the
    /// namespace can send it, by a UDP socket.
    pub(crate) fn is_reverse(&self, skb: &RxSkb) -> bool {
        let query = &self.asked.query;
        self.netns() == skb.netns()
            && query.destination == skb.source()
            && query.source == skb.destination()
            && (skb.sender().is_some() || !self.is_loopback && skb.is_from(self.oif))
    }

    /// The namespace that has the source address. Context: any.
    pub(crate) fn netns(&self) -> NetId {
        self.asked.place.netns.id()
    }

    /// The number there of the netdev that had it when the path was looked up. Context: any.
    pub(crate) fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Whether `device` can still send from there. Context: any.
    pub(crate) fn has_source(&self, device: &Device) -> bool {
        device
            .sender_in(self.asked.place.netns, &self.asked.query.source.to_gid())
            .is_some()
    }

    /// Whether packets are for QPs of the same device: as in a host channel adapter, they never see the network, and need no
    /// ICRC. Context: any.
    #[inline]
    pub(crate) fn is_loopback(&self) -> bool {
        self.is_loopback
    }

    /// Whether packets are for a group that QPs of `device` are in: these get a copy from the sender, and none that the
    /// network brings back. Context: any.
    pub(crate) fn has_own_group(&self, device: &Arc<Device>) -> bool {
        let destination = self.asked.query.destination;
        destination.is_multicast()
            && multicast::find(device.number, &destination.to_gid(), &rcu::read_lock()).is_some()
    }

    /// The largest path MTU that fits the route now, as in `enum ib_mtu`. Context: process or softirq.
    pub(crate) fn mtu_enum(&self) -> u32 {
        network::path_mtu(self.route.mtu()) as u32
    }
}

/// One port for all packets of a connection, both ways, so that none overtakes another. The peers of a datagram QP
/// differ.
fn source_port(flow_label: u32, local: u32, remote: u32) -> u16 {
    let remote = if remote == 0 { local } else { remote };
    rdma::ah::udp_source_port(flow_label, local, remote)
}
