// SPDX-License-Identifier: GPL-2.0

//! Multicast groups (IBTA 10.5, 11.3): which QPs are attached, and to what.
//!
//! An MGID of RoCEv2 is an IP address (IBTA annex A17.4.1): that of an IPv6 group, or of an IPv4 group in
//! IPv6-mapped form, as rdma_cm makes it. The form `ff0e::ffff:a.b.c.d`, which rdma_cm has for RoCEv1, stands
//! for both: it is an IPv6 group as such, and the IPv4 group for a device with an IPv4 address.
//!
//! # Locks
//!
//! `Device::groups` is a mutex around all that is changed here. RTNL is taken under it, so it is never taken under
//! RTNL. Packets see [`Group::members`] only, under a lock of its own, which is held for a copy.

use crate::{
    device::attributes::{
        MAX_MULTICAST_ATTACHMENTS,
        MAX_MULTICAST_GROUPS,
        MAX_MULTICAST_QPS, //
    },
    hash,
    storage::{
        append,
        take, //
    },
    table::Table, //
};
use core::ops::RangeInclusive;
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    }, //
};
use net::{
    Address,
    Membership,
    NetDev, //
};
use rdma::gid::Gid;
use sync::{
    new_spin_lock_bh,
    SpinLockBh, //
};

/// The number that a packet for a multicast group has for that of a QP (IBTA 10.5.1).
pub(crate) const QP_NUMBER: u32 = 0x00ff_ffff;

/// The prefix of an IPv4 group in an MGID of the form `ff0e::ffff:a.b.c.d`.
const GLOBAL_MAPPED: [u8; 12] = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// The IPv4 group that an IPv6 group stands for, too.
pub(crate) fn mapped(mgid: &Gid) -> Option<Address> {
    match mgid {
        [prefix @ .., a, b, c, d] if *prefix == GLOBAL_MAPPED => {
            let group = Address::V4([*a, *b, *c, *d]);
            group.is_multicast().then_some(group)
        }
        _ => None,
    }
}

/// Where packets from `source` to the GID `gid` go.
pub(crate) fn destination(gid: &Gid, source: Address) -> Address {
    match mapped(gid) {
        Some(group) if source.is_v4() => group,
        _ => Address::from_gid(*gid),
    }
}

/// The groups of all devices, hashed.
pub(crate) static GROUPS: Table<Group> = Table::new();

/// The multicast group of the device with the number `device` that has the address `gid`. Context: any.
pub(crate) fn find<'a>(device: u64, gid: &Gid, rcu: &'a rcu::Guard) -> Option<&'a Arc<Group>> {
    let is_it = |group: &Group| group.is(device, gid);
    GROUPS.find_hashed(Group::keys(device, gid), rcu, is_it)
}

/// A multicast address of a device that QPs are attached to.
#[pin_data]
pub(crate) struct Group {
    /// The device's number.
    device: u64,
    address: Gid,
    #[pin]
    members: SpinLockBh<KVec<Member>>,
}

/// A QP in a group.
struct Member {
    number: u32,
    /// The MGIDs by which it is in: an IPv4 group has two.
    uses: u32,
}

impl Group {
    fn new(device: u64, address: Gid) -> Result<Arc<Self>> {
        let members = KVec::with_capacity(MAX_MULTICAST_QPS, GFP_KERNEL_ACCOUNT)?;
        Arc::pin_init(
            pin_init!(Self {
                device,
                address,
                members <- new_spin_lock_bh!(members),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Where a device's group may be in the table of all groups.
    fn keys(device: u64, address: &Gid) -> RangeInclusive<u32> {
        let [low, high] = hash::words_of(address);
        hash::keys([device, low, high])
    }

    /// Whether this is the group of that device with that address. Context: any.
    fn is(&self, device: u64, address: &Gid) -> bool {
        self.address == *address && self.device == device
    }

    /// The numbers of the QPs that get the group's packets, each once. Context: softirq.
    pub(crate) fn members(&self) -> impl Iterator<Item = u32> {
        let mut numbers = [0; MAX_MULTICAST_QPS];
        let members = self.members.lock();
        for (number, member) in numbers.iter_mut().zip(members.iter()) {
            *number = member.number;
        }
        let count = members.len();
        drop(members);
        numbers.into_iter().take(count)
    }

    /// Errors: `ENOMEM` if the group is full.
    fn add(&self, number: u32) -> Result {
        let mut members = self.members.lock();
        if let Some(member) = members.iter_mut().find(|it| it.number == number) {
            member.uses = member.uses.saturating_add(1);
            return Ok(());
        }
        if members.len() >= MAX_MULTICAST_QPS {
            return Err(ENOMEM);
        }
        let member = Member { number, uses: 1 };
        members.push_within_capacity(member).map_err(|_| ENOMEM)
    }

    /// Returns whether nobody is left.
    fn remove(&self, number: u32) -> bool {
        let mut members = self.members.lock();
        let found = members.iter().position(|it| it.number == number);
        if let Some(index) = found {
            let uses = members.get_mut(index).map_or(0, |member| {
                member.uses = member.uses.saturating_sub(1);
                member.uses
            });
            if uses == 0 {
                let _ = take(&mut members, index);
            }
        }
        members.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.members.lock().is_empty()
    }

    /// Lets packets find the group. Errors: `ENOSPC` if there are too many like it.
    fn publish(self: &Arc<Self>) -> Result {
        let keys = Self::keys(self.device, &self.address);
        GROUPS.insert_hashed(keys, self)
    }

    fn withdraw(self: &Arc<Self>) {
        let keys = Self::keys(self.device, &self.address);
        GROUPS.remove_hashed(keys, self);
    }
}

/// A group, and what the network was told of it.
struct Joined {
    group: Arc<Group>,
    /// [`None`] while the device has no network, or one that does not do this.
    membership: Option<Membership>,
}

impl Joined {
    /// Ends the membership, if there is one. Returns `false` if another thread holds RTNL and `is_needed` says no.
    fn end(&mut self, is_needed: &dyn Fn() -> bool) -> bool {
        let ended = self
            .membership
            .take()
            .map_or(Ok(()), |it| it.end(is_needed));
        self.membership = ended.err();
        self.membership.is_none()
    }
}

/// The multicast groups of a device.
pub(crate) struct Groups {
    /// The device's number.
    device: u64,
    joined: KVec<Joined>,
    attachments: u32,
    closed: bool,
}

impl Groups {
    /// No groups, of the device with the number `device`.
    pub(crate) fn new(device: u64) -> Self {
        Self {
            device,
            joined: KVec::new(),
            attachments: 0,
            closed: false,
        }
    }

    /// Makes `netdev`, where it is now, a member of all groups, and no other netdev. QPs remain attached, if need be to no
    /// effect. Leaves the groups that were only to be left later ([`Self::leave`]). If `closed`, there are no new members.
    /// Ends early if another thread holds RTNL and `is_needed` says no. Context: process, not under RTNL.
    pub(crate) fn settle(
        &mut self,
        netdev: Option<&NetDev>,
        closed: bool,
        is_needed: &dyn Fn() -> bool,
    ) {
        self.closed = closed;
        let mut index = 0usize;
        while let Some(joined) = self.joined.get_mut(index) {
            if !joined.group.is_empty() {
                index = index.wrapping_add(1);
            } else if joined.end(is_needed) {
                drop(take(&mut self.joined, index));
            } else {
                return;
            }
        }
        for joined in self.joined.iter_mut() {
            let membership = joined.membership.as_ref();
            if membership
                .zip(netdev)
                .is_some_and(|(it, netdev)| it.is_of(netdev))
            {
                continue;
            }
            if !joined.end(is_needed) {
                return;
            }
            let Some(netdev) = netdev else {
                continue;
            };
            let address = Address::from_gid(joined.group.address);
            match Membership::join(netdev, address, is_needed) {
                Ok(membership) => joined.membership = Some(membership),
                Err(_) if !is_needed() => return,
                Err(error) if net::may_log() => pr_err!(
                    "{} is not in a multicast group of its device any more (error {})\n",
                    netdev.name(),
                    error.to_errno()
                ),
                Err(_) => {}
            }
        }
    }

    /// Whether it takes new members: not once the device is going away.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Counts one more attachment. Errors: `ENOMEM` if there are too many.
    pub(crate) fn attach(&mut self) -> Result {
        if self.attachments >= MAX_MULTICAST_ATTACHMENTS {
            return Err(ENOMEM);
        }
        self.attachments = self.attachments.saturating_add(1);
        Ok(())
    }

    /// Undoes one [`Self::attach`].
    pub(crate) fn detach(&mut self) {
        self.attachments = self.attachments.saturating_sub(1);
    }

    /// Lets the QP with that number have the packets for `address`, from now on also from the device's `netdev`.
    /// Errors: `ENOMEM` if there are too many groups or members, `ENODEV` without a netdev, or if another thread holds RTNL
    /// and `is_needed` says no, or the network's own.
    pub(crate) fn enter(
        &mut self,
        netdev: Option<&NetDev>,
        address: Address,
        qp: u32,
        is_needed: &dyn Fn() -> bool,
    ) -> Result {
        let gid = address.to_gid();
        if let Some(joined) = self.joined.iter().find(|it| it.group.address == gid) {
            let is_first = joined.group.is_empty();
            joined.group.add(qp)?;
            // It was only to be left later.
            if is_first {
                return joined.group.publish().inspect_err(|_| {
                    joined.group.remove(qp);
                });
            }
            return Ok(());
        }
        if self.joined.len() >= MAX_MULTICAST_GROUPS {
            return Err(ENOMEM);
        }
        let netdev = netdev.ok_or(ENODEV)?;
        let group = Group::new(self.device, gid)?;
        group.add(qp)?;
        let joined = Joined {
            group: group.clone(),
            membership: None,
        };
        append(&mut self.joined, joined)?;
        let joined = self.joined.last_mut().ok_or(ENOMEM)?;
        let result = Membership::join(netdev, address, is_needed).and_then(|membership| {
            joined.membership = Some(membership);
            group.publish()
        });
        if result.is_err() {
            group.remove(qp);
            // One that cannot be left now is empty, for `settle`.
            if joined.end(is_needed) {
                drop(self.joined.pop());
            }
        }
        result
    }

    /// Undoes one [`Self::enter`]. If another thread holds RTNL and `is_needed` says no, the netdev stays in the group until
    /// [`Self::settle`].
    pub(crate) fn leave(&mut self, address: Address, qp: u32, is_needed: &dyn Fn() -> bool) {
        let gid = address.to_gid();
        let found = self
            .joined
            .iter()
            .position(|joined| joined.group.address == gid);
        let Some(index) = found else {
            return;
        };
        let Some(joined) = self.joined.get_mut(index) else {
            return;
        };
        if joined.group.remove(qp) {
            joined.group.withdraw();
            if joined.end(is_needed) {
                drop(take(&mut self.joined, index));
            }
        }
    }
}
