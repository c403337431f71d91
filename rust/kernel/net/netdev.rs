// SPDX-License-Identifier: GPL-2.0

//! Network devices.
//!
//! C header: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use crate::{
    address::in6_addr,
    namespace::{
        Net,
        NetCookie,
        NetId, //
    },
    rtnl::Rtnl, //
};
use core::{
    cell::UnsafeCell,
    ops::Deref,
    ptr::{
        self,
        NonNull, //
    },
};
use kernel::{
    bindings as kernel_bindings,
    fmt,
    prelude::*,
    str::BStr,
    sync::rcu,
    types::Opaque, //
};
use rdma_bindings as bindings;

/// `ARPHRD_ETHER`: Ethernet.
// CAST: A small number, as are those below.
pub const ARPHRD_ETHER: u16 = bindings::ARPHRD_ETHER as u16;
/// `ARPHRD_LOOPBACK`: the loopback device.
pub const ARPHRD_LOOPBACK: u16 = bindings::ARPHRD_LOOPBACK as u16;
/// `ARPHRD_NONE`: a device without link layer, as `tun` is.
pub const ARPHRD_NONE: u16 = bindings::ARPHRD_NONE as u16;

/// A network device, borrowed from somebody who keeps it in memory.
///
/// All that is read of it may change at once, unless RTNL is held.
///
/// # Invariants
///
/// It was registered once, and its memory and that of its namespace stay at least as long as the reference.
#[repr(transparent)]
pub struct NetDevice(Opaque<kernel_bindings::net_device>);

// SAFETY: The parts of a network device that we use may be used from any thread.
unsafe impl Send for NetDevice {}
// SAFETY: As above.
unsafe impl Sync for NetDevice {}

impl NetDevice {
    /// Makes a reference of a C pointer.
    ///
    /// # Safety
    ///
    /// `dev` is a network device that was registered, and for `'a` somebody has a reference to it, which
    /// also keeps it from being taken apart, or RTNL or RCU do so.
    #[inline]
    pub unsafe fn from_raw<'a>(dev: *mut kernel_bindings::net_device) -> &'a Self {
        // SAFETY: `Self` is transparent, and an `Opaque` may alias; the rest the caller promises.
        unsafe { &*dev.cast::<Self>() }
    }

    /// Returns the C network device, valid as long as `self`.
    #[inline]
    pub fn as_ptr(&self) -> *mut kernel_bindings::net_device {
        self.0.get()
    }

    /// Takes a reference of one's own. Any context.
    pub fn to_owned(&self) -> NetDev {
        let tracker = UnsafeCell::new(pin_init::zeroed::<bindings::netdevice_tracker>());
        // SAFETY: By the type invariant somebody has a reference, so another one may be taken. The tracker
        // is a plain value, which may move.
        unsafe {
            bindings::netdev_hold(self.as_ptr(), tracker.get(), kernel_bindings::GFP_ATOMIC);
        }
        NetDev {
            // SAFETY: A reference is not null.
            dev: unsafe { NonNull::new_unchecked(self.as_ptr()) },
            tracker,
        }
    }

    /// Returns the name. Any context. It is a copy, which a renaming at this moment may have garbled.
    pub fn name(&self) -> DevName {
        // INVARIANT: It has NULs.
        let mut name = DevName([0; NAME_LEN]);
        // SAFETY: The name is an array of `NAME_LEN` bytes inside the device, all of which can be copied at
        // any time; they may be torn, but each is a byte.
        unsafe {
            ptr::copy_nonoverlapping(
                bindings::netdev_raw_name(self.as_ptr()).cast::<u8>(),
                name.0.as_mut_ptr(),
                NAME_LEN,
            );
        }
        if let Some(last) = name.0.last_mut() {
            // INVARIANT: This is a NUL.
            *last = 0;
        }
        name
    }

    /// Returns the largest IP packet. Any context.
    pub fn mtu(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::netdev_mtu(self.as_ptr()) }
    }

    /// Returns the kind of link, as [`ARPHRD_ETHER`]. Any context.
    pub fn arp_type(&self) -> u16 {
        // SAFETY: By the type invariant.
        unsafe { bindings::netdev_type(self.as_ptr()) }
    }

    /// Returns whether it is a VRF, or something else that stands for other devices at the network layer. Any context.
    #[inline]
    pub(crate) fn is_l3_master(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::netif_is_l3_master(self.as_ptr()) }
    }

    /// Returns whether it is an Ethernet device. Any context.
    pub fn is_ethernet(&self) -> bool {
        self.arp_type() == ARPHRD_ETHER
    }

    /// Returns whether its frames begin with an Ethernet header. Any context.
    pub fn has_ethernet_frames(&self) -> bool {
        matches!(self.arp_type(), ARPHRD_ETHER | ARPHRD_LOOPBACK)
    }

    /// Returns whether this is a VLAN of another network device. Any context.
    pub fn is_vlan(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::is_vlan_dev(self.as_ptr()) }
    }

    /// Returns whether it was set up. Any context.
    pub fn is_up(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::netdev_is_up(self.as_ptr()) }
    }

    /// Returns the number of the VRF that it is in, or is itself, which has a routing table of its own; 0 if none. Any
    /// context.
    pub fn vrf_ifindex(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::l3mdev_master_ifindex(self.as_ptr()) }
    }

    /// Returns whether the link is there. Any context.
    #[inline]
    pub(crate) fn has_carrier(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::netif_carrier_ok(self.as_ptr()) }
    }

    /// Returns whether packets can be sent: it is up, and has a link. Any context.
    pub fn is_operational(&self) -> bool {
        self.is_up() && self.has_carrier()
    }

    /// Returns whether it is registered, not on its way out. Any context; reliable only under RTNL.
    pub fn is_registered(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::netdev_is_registered(self.as_ptr()) }
    }

    /// Returns whether it is being unregistered, or soon will be: nothing stops that any more. Process, under RTNL.
    pub fn is_dismantled(&self) -> bool {
        // SAFETY: By the type invariant. RTNL guards the field.
        unsafe { bindings::netdev_is_dismantled(self.as_ptr()) }
    }

    /// Returns whether it is registered and in `net`, neither on its way out nor on its way to another
    /// namespace: after this, both are told of by [`NetdevEvent::Unregister`](crate::NetdevEvent::Unregister).
    /// Process, not under RTNL.
    pub fn is_settled_in(&self, net: &Net) -> bool {
        let _rtnl = Rtnl::lock();
        self.is_registered() && self.is_in(net)
    }

    /// Returns the speed of its link in Mb/s, [`None`] where it has none or does not know, or if another thread holds RTNL
    /// and `is_needed` says no. Process, may sleep, not under RTNL.
    pub fn link_speed(&self, is_needed: &dyn Fn() -> bool) -> Option<u32> {
        let mut settings: kernel_bindings::ethtool_link_ksettings = pin_init::zeroed();
        let rtnl = Rtnl::lock_while(is_needed)?;
        let known = self.is_registered()
            // SAFETY: RTNL is held and the device is registered, as the call wants it; `settings` is ours.
            && unsafe {
                kernel_bindings::__ethtool_get_link_ksettings(self.as_ptr(), &raw mut settings) == 0
            };
        drop(rtnl);
        // CAST: The kernel keeps `SPEED_UNKNOWN`, -1, in the unsigned field.
        const UNKNOWN: u32 = kernel_bindings::SPEED_UNKNOWN as u32;
        match settings.base.speed {
            0 | UNKNOWN => None,
            speed => known.then_some(speed),
        }
    }

    /// Returns its number in its namespace. Any context.
    pub fn ifindex(&self) -> u32 {
        // SAFETY: By the type invariant.
        let index = unsafe { bindings::netdev_ifindex(self.as_ptr()) };
        // CAST: It is positive.
        index as u32
    }

    /// Returns the Ethernet address, zeroes where the link has none of six bytes. Any context. It is a copy,
    /// which a change at this moment may have garbled.
    #[inline]
    pub(crate) fn mac(&self) -> [u8; 6] {
        let mut mac = [0; 6];
        // SAFETY: By the type invariant.
        if usize::from(unsafe { bindings::netdev_addr_len(self.as_ptr()) } as u16) != mac.len() {
            return mac;
        }
        let _guard = rcu::read_lock();
        // SAFETY: The address has six bytes, as was just seen; the memory stays as long as the guard at
        // least.
        unsafe {
            ptr::copy_nonoverlapping(
                bindings::netdev_dev_addr(self.as_ptr()),
                mac.as_mut_ptr(),
                mac.len(),
            );
        }
        mac
    }

    /// Returns a node GUID: the EUI-64 of the Ethernet address. If there is no address, or another node has that GUID
    /// (`is_taken`), it is random. Any context.
    pub fn guid(&self, is_taken: impl Fn(&[u8; 8]) -> bool) -> [u8; 8] {
        let mut mac = self.mac();
        loop {
            let [a, b, c, d, e, f] = mac;
            let guid = [a ^ 2, b, c, 0xff, 0xfe, d, e, f];
            if mac != [0; 6] && !is_taken(&guid) {
                return guid;
            }
            let [c, d, e, f] = sync::random_u32().to_be_bytes();
            mac = [2, 0, c, d, e, f];
        }
    }

    /// Returns whether it is in `net`. Any context.
    #[inline]
    pub fn is_in(&self, net: &Net) -> bool {
        self.net_id() == net.id()
    }

    /// Returns the identity of the namespace that it is in. Any context; it may be another one the next time.
    #[inline]
    pub fn net_id(&self) -> NetId {
        // SAFETY: By the type invariant.
        NetId::of(unsafe { bindings::dev_net(self.as_ptr()) })
    }

    /// Returns what identifies the namespace that it is in, for ever. Any context.
    #[inline]
    pub fn net_cookie(&self, _guard: &rcu::Guard) -> NetCookie {
        // SAFETY: By the type invariant. Should the device leave the namespace now, RCU delays the end of that.
        unsafe { NetCookie::of(bindings::dev_net(self.as_ptr())) }
    }

    /// Returns whether both are the same device. Any context.
    #[inline]
    pub fn is_same(&self, other: &Self) -> bool {
        self.as_ptr() == other.as_ptr()
    }
}

/// A network device, with a reference of one's own.
///
/// While there is one, the device's unregistering is not complete: drop it soon after
/// [`NetdevEvent::Unregister`](crate::NetdevEvent::Unregister). Clone and drop: any context.
///
/// # Invariants
///
/// `dev` fulfils the invariants of [`NetDevice`], by the reference that `tracker` stands for: as long as
/// references are left, neither does a device lose its memory nor can its namespace end.
pub struct NetDev {
    dev: NonNull<kernel_bindings::net_device>,
    tracker: UnsafeCell<bindings::netdevice_tracker>,
}

// SAFETY: The parts of a network device that we use may be used from any thread.
unsafe impl Send for NetDev {}
// SAFETY: As above; `tracker` is used when the value is dropped only.
unsafe impl Sync for NetDev {}

impl NetDev {
    /// Takes a reference of one's own to a C network device. Any context.
    ///
    /// # Safety
    ///
    /// As for [`NetDevice::from_raw`], for the time of the call.
    pub unsafe fn from_raw(dev: *mut kernel_bindings::net_device) -> Self {
        // SAFETY: The caller promises it.
        unsafe { NetDevice::from_raw(dev) }.to_owned()
    }
}

impl Deref for NetDev {
    type Target = NetDevice;

    #[inline]
    fn deref(&self) -> &NetDevice {
        // SAFETY: By the type invariant.
        unsafe { NetDevice::from_raw(self.dev.as_ptr()) }
    }
}

impl Clone for NetDev {
    fn clone(&self) -> Self {
        self.to_owned()
    }
}

impl Drop for NetDev {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference is ours.
        unsafe { bindings::netdev_put(self.dev.as_ptr(), self.tracker.get()) };
    }
}

/// The space that a name takes, with its NUL.
// CAST: 16.
const NAME_LEN: usize = bindings::IFNAMSIZ as usize;

/// The name of a network device at some time.
///
/// # Invariants
///
/// There is a NUL in it.
#[derive(Clone, Copy)]
pub struct DevName([u8; NAME_LEN]);

impl fmt::Display for DevName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        fmt::Display::fmt(BStr::from_bytes(name), f)
    }
}

impl Net {
    /// Returns the number of the network device that the VLAN with the number `ifindex` is on; [`None`] if
    /// that is no VLAN, or is on one of another namespace. Any context but hard interrupts.
    pub fn below_vlan(&self, ifindex: u32) -> Option<u32> {
        let guard = rcu::read_lock();
        let netdev = self
            .netdev(ifindex, &guard)
            .filter(|netdev| netdev.is_vlan())?;
        // SAFETY: It is a VLAN, which has a reference to the device that it is on. The guard keeps the VLAN.
        let below = unsafe { NetDevice::from_raw(bindings::vlan_dev_real_dev(netdev.as_ptr())) };
        below.is_in(self).then(|| below.ifindex())
    }

    /// Returns the number of the VRF that the network device with the number `ifindex` is in, as
    /// [`NetDevice::vrf_ifindex`]; [`None`] if there is no such device. Any context but hard interrupts.
    pub fn vrf_of(&self, ifindex: u32) -> Option<u32> {
        let guard = rcu::read_lock();
        self.netdev(ifindex, &guard).map(NetDevice::vrf_ifindex)
    }

    /// Returns the number of the network device that is called `name`; [`None`] if there is none. Any context but hard
    /// interrupts.
    pub fn ifindex_of(&self, name: &DevName) -> Option<u32> {
        let _guard = rcu::read_lock();
        // SAFETY: `self` is a namespace that has not ended, and the RCU read lock is held. By the type invariant the name ends.
        let dev = unsafe { bindings::dev_get_by_name_rcu(self.as_ptr(), name.0.as_ptr().cast()) };
        // SAFETY: The guard keeps the device that was found.
        (!dev.is_null()).then(|| unsafe { NetDevice::from_raw(dev) }.ifindex())
    }

    fn netdev<'a>(&self, ifindex: u32, _guard: &'a rcu::Guard) -> Option<&'a NetDevice> {
        let ifindex = c_int::try_from(ifindex).ok()?;
        // SAFETY: `self` is a namespace that has not ended, and the RCU read lock is held.
        let dev = unsafe { bindings::dev_get_by_index_rcu(self.as_ptr(), ifindex) };
        // SAFETY: The guard keeps the device that was found.
        (!dev.is_null()).then(|| unsafe { NetDevice::from_raw(dev) })
    }

    /// Returns whether `address` is one of the namespace's own, as seen from the network device `oif`: in its VRF, if
    /// it is in one, and in none if `oif` is 0. Any context but hard interrupts.
    pub(crate) fn owns_v6(&self, address: [u8; 16], oif: u32) -> bool {
        let address = in6_addr(address);
        let guard = rcu::read_lock();
        let netdev = self
            .netdev(oif, &guard)
            .map_or(ptr::null(), |netdev| netdev.as_ptr().cast_const());
        // SAFETY: `self` is a namespace that has not ended; `address` is valid for reads. The guard keeps the device, and
        // null is none.
        unsafe { bindings::ipv6_chk_addr(self.as_ptr(), &address, netdev, 0) != 0 }
    }
}
