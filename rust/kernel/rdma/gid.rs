// SPDX-License-Identifier: GPL-2.0

//! Entries of a port's GID table.

use crate::port;
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
};
use rdma_bindings as bindings;

/// Bytes of a GID.
pub const LEN: usize = 16;

/// A global identifier: for RoCE an IPv6 address, or an IPv4 address in IPv6-mapped form.
pub type Gid = [u8; LEN];

/// Reads a C GID.
#[inline]
pub(crate) fn from_raw(raw: &bindings::ib_gid) -> Gid {
    // SAFETY: `union ib_gid` is 16 plain bytes, whichever of its fields was written.
    unsafe { *core::ptr::from_ref(raw).cast::<Gid>() }
}

/// Writes a C GID.
#[inline]
pub(crate) fn to_raw(raw: &mut bindings::ib_gid, gid: &Gid) {
    // SAFETY: As for `from_raw`; `raw` is an exclusive reference.
    unsafe { *core::ptr::from_mut(raw).cast::<Gid>() = *gid };
}

/// Where the address of an entry is.
#[derive(Clone, Copy)]
pub struct Place {
    /// The namespace of the netdev that has the address.
    pub netns: net::NetCookie,
    /// The index of that netdev.
    pub ifindex: u32,
    /// Its name.
    pub name: net::DevName,
}

/// A referenced entry of a GID table (`struct ib_gid_attr`).
///
/// The entry is pinned, not valid: when its address leaves the netdev, the entry loses its netdev.
/// A reference must be given up before the last [`Handle`](crate::device::Handle) of the device, and
/// [`flush_gids`](crate::device::Handle::flush_gids) called in between: `ib_core` frees the table together with the
/// device.
///
/// # Invariants
///
/// The pointer is valid, and a reference to the entry belongs to this value.
pub struct Attr(NonNull<bindings::ib_gid_attr>);

// SAFETY: The reference count of an entry is atomic; its other fields are constant, but for the
// netdev, which is under RCU.
unsafe impl Send for Attr {}
// SAFETY: As above.
unsafe impl Sync for Attr {}

impl Attr {
    /// Takes a reference; [`None`] if `ptr` is null.
    ///
    /// # Safety
    ///
    /// If not null, `ptr` must be an entry of a GID table to which the caller holds a reference.
    pub(crate) unsafe fn hold(ptr: *const bindings::ib_gid_attr) -> Option<Self> {
        let ptr = NonNull::new(ptr.cast_mut())?;
        // SAFETY: The caller holds a reference.
        unsafe { bindings::rdma_hold_gid_attr(ptr.as_ptr()) };
        // INVARIANT: The reference was just taken.
        Some(Self(ptr))
    }

    /// The entry at `index` of the table of `device`, if there is one.
    ///
    /// # Safety
    ///
    /// `device` must be registered.
    pub(crate) unsafe fn get(device: *mut bindings::ib_device, index: c_int) -> Option<Self> {
        // SAFETY: The caller promises a registered device.
        let attr = unsafe { bindings::rdma_get_gid_attr(device, port::NUMBER, index) };
        // INVARIANT: The reference is the caller's.
        let attr = kernel::error::from_err_ptr(attr.cast_mut()).ok()?;
        NonNull::new(attr).map(Self)
    }

    /// The GID.
    #[inline]
    pub fn gid(&self) -> Gid {
        // SAFETY: By the type invariant the entry lives.
        unsafe { gid_of(self.0) }
    }

    /// The netdev that has the address; [`None`] once it is gone. Context: any.
    pub(crate) fn to_netdev(&self) -> Option<net::NetDev> {
        let guard = rcu::read_lock();
        self.netdev(&guard).map(net::NetDevice::to_owned)
    }

    /// The entry's place in the table.
    #[inline]
    pub fn index(&self) -> u16 {
        // SAFETY: By the type invariant the entry lives; this field is constant. No reference to the whole entry is
        // made, as in `gid_of`.
        unsafe { (&raw const (*self.0.as_ptr()).index).read() }
    }

    /// Where the address is; [`None`] once it is gone. Context: any.
    pub(crate) fn place(&self) -> Option<Place> {
        let guard = rcu::read_lock();
        let netdev = self.netdev(&guard)?;
        Some(Place {
            netns: netdev.net_cookie(&guard),
            ifindex: netdev.ifindex(),
            name: netdev.name(),
        })
    }

    /// The netdev that has the address, which may be an upper device of the RDMA device's own.
    fn netdev<'a>(&self, _guard: &'a rcu::Guard) -> Option<&'a net::NetDevice> {
        // SAFETY: The entry lives, and the RCU read lock is held.
        let ndev = unsafe { bindings::rdma_read_gid_attr_ndev_rcu(self.0.as_ptr()) };
        let ndev = kernel::error::from_err_ptr(ndev).ok()?;
        // SAFETY: Under RCU the netdev that the entry names is still referenced by the entry.
        (!ndev.is_null()).then(|| unsafe { net::NetDevice::from_raw(ndev) })
    }
}

impl Clone for Attr {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant `self` holds a reference.
        unsafe { bindings::rdma_hold_gid_attr(self.0.as_ptr()) };
        // INVARIANT: The reference was just taken.
        Self(self.0)
    }
}

impl Drop for Attr {
    fn drop(&mut self) {
        // SAFETY: The reference belongs to `self`. `rdma_put_gid_attr` may be called in any
        // context: it defers the release to a workqueue.
        unsafe { bindings::rdma_put_gid_attr(self.0.as_ptr()) };
    }
}

/// Reads an entry's GID.
///
/// # Safety
///
/// `entry` is one that lives.
#[inline]
unsafe fn gid_of(entry: NonNull<bindings::ib_gid_attr>) -> Gid {
    // SAFETY: The caller promises an entry. The field is constant, 16 plain bytes, and read without a reference to the
    // whole entry, as `ib_core` writes `ndev` any time.
    unsafe { (&raw const (*entry.as_ptr()).gid).cast::<Gid>().read() }
}

/// The value of `ib_core` for no VLAN.
const NO_VLAN: u16 = 0xffff;

/// The core of an address in the GID table.
pub trait TableAddress: Sized + Send + Sync + 'static {
    /// The core of the device.
    type Device: 'static;

    /// An address enters the GID table of `device`. Context: process, may sleep; RTNL
    /// may be held.
    fn add(device: &Arc<Self::Device>, entry: &Entry<'_>) -> Result<Arc<Self>>;

    /// The address leaves it. Context: process, may sleep; RTNL may be held.
    fn remove(self: Arc<Self>, device: &Arc<Self::Device>);
}

/// An address that enters or leaves the GID table.
///
/// # Invariants
///
/// The pointer is an entry of a RoCE port that lives as long as `'a`, and keeps its network device for that time.
pub struct Entry<'a> {
    raw: NonNull<bindings::ib_gid_attr>,
    _call: PhantomData<&'a ()>,
}

impl Entry<'_> {
    /// Wraps the argument of `add_gid` and `del_gid`; [`None`] if it is null.
    ///
    /// # Safety
    ///
    /// If not null, `raw` is what `ib_core` passes to these functions, for the time of their call at the most.
    pub(crate) unsafe fn new(raw: *const bindings::ib_gid_attr) -> Option<Self> {
        // INVARIANT: As the caller promises. `ib_core` gives an entry its network device before the one call, and takes
        // it away after the other.
        NonNull::new(raw.cast_mut()).map(|raw| Self {
            raw,
            _call: PhantomData,
        })
    }

    /// The GID.
    pub fn gid(&self) -> Gid {
        // SAFETY: By the type invariant the entry lives.
        unsafe { gid_of(self.raw) }
    }

    /// Whether the RDMA device can be used in the namespace of the network device that has the address. Context: any,
    /// here and below.
    pub fn is_accessible(&self) -> bool {
        let Some(netdev) = self.netdev() else {
            return false;
        };
        // SAFETY: By the type invariant the entry lives, and its RDMA device with it; the namespace is compared only.
        unsafe {
            let device = (&raw const (*self.raw.as_ptr()).device).read();
            bindings::rdma_dev_access_netns(device, bindings::dev_net(netdev.as_ptr()))
        }
    }

    /// The VLAN that the address is in: that of the network device that has it, or of one below that.
    pub fn vlan(&self) -> Option<u16> {
        let mut vlan = NO_VLAN;
        // SAFETY: By the type invariant the entry lives, and nobody writes its network device meanwhile, which the function
        // reads twice; `vlan` is valid for writes, and null asks for no Ethernet address.
        let error = unsafe {
            bindings::rdma_read_gid_l2_fields(self.raw.as_ptr(), &mut vlan, core::ptr::null_mut())
        };
        (error == 0 && vlan < NO_VLAN).then_some(vlan)
    }

    /// The network device that has the address: the RDMA device's own, or one above it, which may be in another
    /// namespace.
    pub fn netdev(&self) -> Option<&net::NetDevice> {
        // SAFETY: By the type invariant the entry lives, and nobody writes the field meanwhile.
        let ndev = unsafe { (&raw const (*self.raw.as_ptr()).ndev).read() };
        // SAFETY: By the type invariant the entry has a reference to it, for as long as `self` is there.
        (!ndev.is_null()).then(|| unsafe { net::NetDevice::from_raw(ndev) })
    }
}
