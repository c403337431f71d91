// SPDX-License-Identifier: GPL-2.0

//! Multicast groups of network devices.
//!
//! C headers: [`include/linux/igmp.h`](srctree/include/linux/igmp.h),
//! [`include/net/addrconf.h`](srctree/include/net/addrconf.h)

use crate::{
    address::Address,
    error::eaddrnotavail,
    netdev::{
        NetDev,
        NetDevice, //
    },
    rtnl::Rtnl, //
};
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    prelude::*,
    sync::rcu, //
};
use rdma_bindings as bindings;

/// The membership of a network device in a multicast group, as IP knows it: routers and switches are told
/// by IGMP or MLD, the hardware address of the group passes the device's filter, and IP hands packets for the
/// group to the sockets of the namespace.
///
/// Memberships of the same group are counted. It also is a reference to the network device: drop it soon
/// after [`NetdevEvent::Unregister`](crate::NetdevEvent::Unregister), which ends the membership as such.
///
/// Dropping it (process, not under RTNL) leaves the group.
///
/// # Invariants
///
/// `group` is a multicast address, and `place` of its family.
pub struct Membership {
    netdev: NetDev,
    group: Address,
    /// [`None`] once it has ended.
    place: Option<Place>,
}

/// The keeper of memberships: a network device's part of IPv4 or of IPv6. It may be taken apart and made anew
/// while the device stays. The reference keeps the next one from standing at the same address.
///
/// # Invariants
///
/// The pointer is valid, and we own a reference to what it points to.
enum Place {
    V4(NonNull<bindings::in_device>),
    V6(NonNull<bindings::inet6_dev>),
}

impl Place {
    /// The part of the family of `group` that `netdev` has now, if it has one.
    fn of(netdev: &NetDevice, group: Address, _rtnl: &Rtnl) -> Option<Self> {
        match group {
            Address::V4(_) => {
                // SAFETY: `netdev` is a network device, and RTNL is held.
                let part = NonNull::new(unsafe { bindings::in_dev_get_rtnl(netdev.as_ptr()) })?;
                // SAFETY: RTNL is held, so the device still has its own reference.
                unsafe { bindings::in_dev_hold(part.as_ptr()) };
                // INVARIANT: Taken just now.
                Some(Self::V4(part))
            }
            Address::V6(_) => {
                // SAFETY: `netdev` is a network device, and RTNL is held.
                let part = NonNull::new(unsafe { bindings::in6_dev_get(netdev.as_ptr()) })?;
                // SAFETY: RTNL is held, so the device still has its own reference.
                unsafe { bindings::in6_dev_hold(part.as_ptr()) };
                // INVARIANT: Taken just now.
                Some(Self::V6(part))
            }
        }
    }

    /// Whether it is the one that `netdev` has now. Under RTNL it stays so.
    fn is_current(&self, netdev: &NetDevice) -> bool {
        let _rcu = rcu::read_lock();
        // SAFETY: `netdev` is a network device, and the RCU read lock is held.
        unsafe {
            match self {
                Self::V4(part) => bindings::in_dev_get_rcu(netdev.as_ptr()) == part.as_ptr(),
                Self::V6(part) => bindings::in6_dev_get(netdev.as_ptr()) == part.as_ptr(),
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: By the type invariant there is a reference to be given back.
        unsafe {
            match self {
                Self::V4(part) => bindings::in_dev_put(part.as_ptr()),
                Self::V6(part) => bindings::in6_dev_put(part.as_ptr()),
            }
        }
    }
}

// SAFETY: References may be given back by any task; the pointers are used under RTNL only.
unsafe impl Send for Place {}
// SAFETY: As above.
unsafe impl Sync for Place {}

impl Membership {
    /// Lets `netdev` join `group`. Process, not under RTNL.
    ///
    /// `EADDRNOTAVAIL` if `group` is none, `ENODEV` if the device is on its way out or has nothing of the
    /// family, or if another thread holds RTNL and `is_needed` says no.
    pub fn join(netdev: &NetDev, group: Address, is_needed: &dyn Fn() -> bool) -> Result<Self> {
        if !group.is_multicast() {
            return Err(eaddrnotavail());
        }
        let rtnl = Rtnl::lock_while(is_needed).ok_or(ENODEV)?;
        if !netdev.is_registered() {
            return Err(ENODEV);
        }
        let place = Place::of(netdev, group, &rtnl).ok_or(ENODEV)?;
        match group {
            Address::V4(address) => join_v4(netdev, u32::from_ne_bytes(address), &rtnl)?,
            Address::V6(address) => {
                let address = crate::address::in6_addr(address);
                // SAFETY: `netdev` is a network device, and `address` valid for reads.
                to_result(unsafe { bindings::ipv6_dev_mc_inc(netdev.as_ptr(), &address) })?;
            }
        }
        // INVARIANT: Checked above, and `Place::of` goes by the family.
        Ok(Self {
            netdev: netdev.clone(),
            group,
            place: Some(place),
        })
    }

    /// Returns whether `netdev` is in the group by this membership, which has not ended. Any context.
    pub fn is_of(&self, netdev: &NetDevice) -> bool {
        let place = self.place.as_ref();
        self.netdev.is_same(netdev) && place.is_some_and(|place| place.is_current(netdev))
    }

    /// Leaves the group. Returns the membership if another thread holds RTNL and `is_needed` says no. Process, not under
    /// RTNL.
    pub fn end(mut self, is_needed: &dyn Fn() -> bool) -> Result<(), Self> {
        match Rtnl::lock_while(is_needed) {
            Some(rtnl) => {
                self.leave(&rtnl);
                Ok(())
            }
            None => Err(self),
        }
    }

    fn leave(&mut self, _rtnl: &Rtnl) {
        // When the part of the device that had it went, the membership went.
        let Some(place) = self
            .place
            .take()
            .filter(|place| place.is_current(&self.netdev))
        else {
            return;
        };
        match (&place, self.group) {
            (Place::V4(part), Address::V4(address)) => {
                // SAFETY: RTNL is held. `part` is valid by its invariant, and our use of the group is counted
                // in it.
                unsafe { bindings::ip_mc_dec_group(part.as_ptr(), u32::from_ne_bytes(address)) };
            }
            (Place::V6(_), Address::V6(address)) => {
                let address = crate::address::in6_addr(address);
                // SAFETY: `netdev` is a network device, and `address` valid for reads. RTNL is held, so the
                // part of IPv6 is the one in which our use of the group is counted.
                let _ = unsafe { bindings::ipv6_dev_mc_dec(self.netdev.as_ptr(), &address) };
            }
            // Not by the invariant.
            _ => {}
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if self.place.is_some() {
            self.leave(&Rtnl::lock());
        }
    }
}

/// Joins an IPv4 group, in network byte order; `ENOMEM` if that does not succeed.
fn join_v4(netdev: &NetDevice, group: u32, _rtnl: &Rtnl) -> Result {
    // SAFETY: `netdev` is a network device, and RTNL is held.
    let part = unsafe { bindings::in_dev_get_rtnl(netdev.as_ptr()) };
    if part.is_null() {
        return Err(ENODEV);
    }
    // The call does not tell whether it found memory: the list does.
    // SAFETY: RTNL is held, under which `part` and its list stay as they are but for what is done here.
    unsafe {
        bindings::ip_mc_inc_group(part, group);
        let mut member = bindings::in_dev_mc_list_rtnl(part);
        while !member.is_null() {
            if bindings::ip_mc_group(member) == group {
                return Ok(());
            }
            member = bindings::ip_mc_next_rtnl(member);
        }
    }
    Err(ENOMEM)
}
