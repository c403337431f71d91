// SPDX-License-Identifier: GPL-2.0

//! From the UDP port to the QP: which QP a packet is for, and whether that takes it.

use crate::{
    device::{
        counters::Counter,
        multicast,
        port::DEFAULT_PKEY,
        registry,
        sockets::Port,
        steering::TOGETHER,
        Device, //
    },
    packet::arrival::{
        check,
        count,
        Burst,
        Came,
        Run, //
    },
    qp::{
        table,
        Qp, //
    }, //
};
use kernel::sync::{
    rcu,
    Arc, //
};
use net::{
    Address,
    RxBurst,
    RxList,
    RxSkb, //
};
use rdma::gid::Gid;
use roce::{
    opcode::Transport,
    packet::Packet,
    pkey,
    qp::Type, //
};
use sync::{
    BhGuard,
    PreemptionGuard, //
};

impl net::Receive for Port {
    type Owner<'a> = &'a Arc<Device>;

    fn receive(&self, packet: RxSkb) {
        receive(&self.netns, packet);
    }

    fn dropped(&self, destination: &Address) {
        let rcu = &rcu::read_lock();
        if let Some(device) = self.owner(destination, rcu) {
            // Its length was not checked.
            count(device, 1, 0);
            device.count_drop(Counter::Malformed, 0);
        }
    }

    fn owner<'a>(&self, destination: &Address, rcu: &'a rcu::Guard) -> Option<&'a Arc<Device>> {
        registry::device_of(&self.netns, &destination.to_gid(), rcu)
    }

    fn receive_burst(&self, owner: &Arc<Device>, burst: RxBurst) {
        owner.steering.take_in(owner, burst, |packets| {
            receive_all(owner, packets, Came::Together, None);
        });
    }
}

/// Takes in a datagram that came to the RoCE port of the namespace `netns`.
///
/// Nothing in it is trusted; a bad one costs a counter. Context: softirq.
fn receive(netns: &net::Net, skb: RxSkb) {
    let destination = skb.destination();
    let to_group = destination.is_multicast();
    let destination = destination.to_gid();
    let rcu = &rcu::read_lock();
    let device = if to_group {
        registry::device_at(netns, skb.ifindex(), rcu)
    } else {
        registry::device_of(netns, &destination, rcu)
    };
    let Some(device) = device else {
        return;
    };
    // The QPs of the device that sent it have it already.
    if to_group && device.has_address(netns.id(), &skb.source().to_gid()) {
        return;
    }
    let skb = if to_group {
        skb
    } else {
        match device.steering.follow(device, skb) {
            Some(skb) => skb,
            None => return,
        }
    };
    count(device, 1, skb.datagram_len() as u64);
    let packet = &mut Packet::default();
    if !check(device, packet, &skb) {
        return;
    }
    if to_group {
        deliver_to_group(device, &destination, packet, skb, rcu);
        return;
    }
    match find(device, packet, &skb, rcu) {
        Some(qp) => deliver(qp, packet, skb),
        None => count_unknown(device, packet),
    }
}

/// Counts a packet that no QP takes. A CNP is not counted: it may be for a UC or UD QP, which has no window.
fn count_unknown(device: &Device, packet: &Packet) {
    if packet.opcode.transport() != Transport::Cnp {
        device.count_drop(Counter::UnknownQp, packet.dest_qpn);
    }
}

/// QPs that may have something to send: after requests (`true`), or after responses.
struct Senders([Option<(Arc<Qp>, bool)>; TOGETHER as usize]);

impl Senders {
    /// Context: as [`Qp::send_after`].
    fn add(&mut self, qp: &Arc<Qp>, requests: bool) {
        for place in &mut self.0 {
            match place {
                Some((other, of)) if Arc::ptr_eq(other, qp) && *of == requests => return,
                Some(_) => (),
                None => {
                    *place = Some((qp.clone(), requests));
                    return;
                }
            }
        }
        // Not reached: there are as many places as packets.
        qp.send_after(requests);
    }

    /// Context: process or softirq, no lock held.
    fn send(&mut self) {
        for place in &mut self.0 {
            let Some((qp, requests)) = place.take() else {
                return;
            };
            let Some(_pass) = qp.enter() else {
                continue;
            };
            qp.send_after(requests);
        }
    }
}

/// Takes in datagrams that came to addresses of `device`, and were steered to this CPU, then calls `received`, and sends.
///
/// A lane's worker enables bottom halves after each batch that it sends, before another thread may send for the QP. So what
/// it sends to this machine has arrived, as a rule, before what others send. Nobody would send for the QPs if another
/// thread kept the CPU in between. Context: process or softirq.
pub(crate) fn receive_steered(
    device: &Arc<Device>,
    packets: RxList,
    bh: BhGuard,
    received: &mut dyn FnMut(),
) {
    let mut senders = Senders([const { None }; TOGETHER as usize]);
    receive_all(device, packets, Came::Steered, Some(&mut senders));
    received();
    let _preemption = PreemptionGuard::new();
    drop(bh);
    senders.send();
}

/// Takes in packets that a QP of `device` sends, in their order: they saw no network, and have no ICRC.
///
/// The sender owns one side of its QP, further up on the stack. An answer of its peer comes back by this function, to that
/// side only, as a QP takes packets of its peer only, and no QP has another peer before this ends (RCU, `modify_qp`). The
/// owner sends the next packets of that side, when this has returned. So at most two calls are on one stack.
/// Context: bottom halves off, no lock held.
pub(crate) fn receive_own(device: &Arc<Device>, mut packets: RxList) {
    while !packets.is_empty() {
        receive_all(device, packets.take(TOGETHER), Came::Own, None);
    }
}

fn receive_all(
    device: &Arc<Device>,
    packets: RxList,
    came: Came,
    mut senders: Option<&mut Senders>,
) {
    let rcu = &rcu::read_lock();
    let mut burst = Burst::new(device, packets, came);
    let packet = &mut Packet::default();
    while let Some(skb) = burst.next(packet) {
        if burst.is_own() && skb.destination().is_multicast() {
            let group = skb.destination().to_gid();
            deliver_to_group(device, &group, packet, skb, rcu);
            continue;
        }
        let Some(qp) = find(device, packet, &skb, rcu) else {
            count_unknown(device, packet);
            continue;
        };
        let Some(_pass) = qp.enter() else {
            continue;
        };
        if !admit(qp, packet, &skb) {
            continue;
        }
        let run = Run {
            packet,
            skb,
            burst: &mut burst,
        };
        let requests = run.packet.opcode.is_request();
        let has_to_send = qp.take_in_run(run, senders.is_none());
        if let Some(senders) = senders.as_mut().filter(|_| has_to_send) {
            senders.add(qp, requests);
        }
    }
}

/// Hands a packet to each QP of `device` that is attached to the group `gid`. A refusal by one of them, as for its
/// Q_Key, does not concern the others (IBTA 10.5.2).
fn deliver_to_group(
    device: &Arc<Device>,
    gid: &Gid,
    packet: &Packet,
    mut skb: RxSkb,
    rcu: &rcu::Guard,
) {
    if packet.dest_qpn != multicast::QP_NUMBER || packet.opcode.transport() != Transport::Ud {
        device.count_drop(Counter::UnknownQp, packet.dest_qpn);
        return;
    }
    let Some(group) = multicast::find(device.number, gid, rcu) else {
        device.count_drop(Counter::UnknownGroup, packet.dest_qpn);
        return;
    };
    // The last of them gets the packet itself.
    let mut last: Option<&Arc<Qp>> = None;
    for number in group.members() {
        let member = table::find(number, rcu).filter(|qp| qp.is_of(device) && qp.is_datagram());
        let Some(qp) = member.and_then(|member| last.replace(member)) else {
            continue;
        };
        match skb.try_clone() {
            Some(copy) => deliver(qp, packet, copy),
            None => device.count_drop(Counter::NoReceive, qp.number),
        }
    }
    if let Some(qp) = last {
        deliver(qp, packet, skb);
    }
}

/// Hands a packet to a QP that speaks its transport: a datagram QP, or one whose peer sends by the network.
fn deliver(qp: &Arc<Qp>, packet: &Packet, skb: RxSkb) {
    let Some(_pass) = qp.enter() else {
        return;
    };
    if !admit(qp, packet, &skb) {
        return;
    }
    let run = Run {
        packet,
        skb,
        burst: &mut Burst::new(qp.device(), RxList::default(), Came::Together),
    };
    qp.take_in_run(run, true);
}

/// Whether a QP takes a packet. The caller has a pass.
fn admit(qp: &Arc<Qp>, packet: &Packet, skb: &RxSkb) -> bool {
    if !qp.takes_packets() {
        return false;
    }
    if !pkey::matches(DEFAULT_PKEY, packet.pkey) {
        qp.device().count_drop(Counter::BadPkey, qp.number);
        return false;
    }
    let migrated = (packet.opcode.transport() != Transport::Cnp).then_some(packet.migrated);
    // A connected QP takes packets from its peer only, over the paths that it has now (IBTA 9.6.1.2.3, 17.2.8, annex
    // A17.4.5). Within the device the sender is known. Last, as it may make the QP migrate.
    let is_peer = |sender: u32| sender == qp.remote_number();
    let is_admitted = || skb.sender().is_none_or(is_peer) && qp.admits(skb, migrated);
    if !qp.is_datagram() && !is_admitted() {
        // A CNP is not counted, as in `count_unknown`.
        if migrated.is_some() {
            qp.device().count_drop(Counter::UnknownQp, qp.number);
        }
        return false;
    }
    true
}

/// The QP that a packet is for which came to `device`, if it speaks the packet's transport.
fn find<'a>(
    device: &Arc<Device>,
    packet: &Packet,
    skb: &RxSkb,
    rcu: &'a rcu::Guard,
) -> Option<&'a Arc<Qp>> {
    let qp = table::find(packet.dest_qpn, rcu)
        .filter(|qp| qp.is_of(device))
        .or_else(|| find_by_address(device, packet.dest_qpn, skb, rcu))?;
    let speaks = match packet.opcode.transport() {
        Transport::Rc => qp.ty == Type::Rc,
        Transport::Xrc if packet.opcode.is_request() => qp.ty == Type::XrcTarget,
        Transport::Xrc => qp.ty == Type::XrcInitiator,
        Transport::Uc => qp.ty == Type::Uc,
        Transport::Ud => qp.is_datagram(),
        Transport::Cnp => matches!(qp.ty, Type::Rc | Type::XrcInitiator),
    };
    speaks.then_some(qp)
}

/// As [`find`], of a general services QP, or on another device: a netdev above that of a device may have a device, too,
/// and then both have its addresses.
#[inline(never)]
fn find_by_address<'a>(
    device: &Arc<Device>,
    number: u32,
    skb: &RxSkb,
    rcu: &'a rcu::Guard,
) -> Option<&'a Arc<Qp>> {
    if number == table::GSI_NUMBER {
        let serves = device.registry.addresses.serves(skb, rcu);
        return table::general_services(serves.unwrap_or(device), rcu);
    }
    let gid = skb.destination().to_gid();
    table::find(number, rcu).filter(|qp| qp.device().has_address(skb.netns(), &gid))
}
