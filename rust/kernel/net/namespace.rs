// SPDX-License-Identifier: GPL-2.0

//! Network namespaces.
//!
//! C headers: [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h),
//! [`include/net/netns/generic.h`](srctree/include/net/netns/generic.h)

use crate::netdev::NetDevice;
use core::{
    cell::UnsafeCell,
    ffi::c_uint,
    ptr::{
        self,
        NonNull, //
    },
};
use kernel::{
    bindings as kernel_bindings,
    error::to_result,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Release, //
        },
        rcu,
        Arc, //
    },
};
use rdma_bindings as bindings;
use sync::{
    Gate,
    Pass, //
};

/// Our registration with the core, and the number that it gives us.
struct Operations {
    ops: UnsafeCell<bindings::pernet_operations>,
    /// Written by the core while it registers `ops`.
    id: UnsafeCell<c_uint>,
    /// Whether `ops` is registered, or about to be.
    taken: Atomic<bool>,
}

// SAFETY: The core uses `ops` and `id` under a lock of its own, while they are registered; we use them only
// to register, which `taken` gives to one at a time, and `id` while they are registered, when nobody
// writes it.
unsafe impl Sync for Operations {}

static OPERATIONS: Operations = Operations {
    ops: UnsafeCell::new(pin_init::zeroed()),
    id: UnsafeCell::new(0),
    taken: Atomic::new(false),
};

/// Keeps an eye on all network namespaces, so that a [`Net`] can hold off the end of one.
///
/// There is one at a time. Dropping it (process, not under RTNL) waits until no [`Net`] is left.
///
/// # Invariants
///
/// `OPERATIONS` is registered as long as this exists: each namespace that has not ended has, in its
/// storage `OPERATIONS.id`, a [`Gate`].
pub struct Namespaces(());

impl Namespaces {
    /// Starts to keep an eye on the namespaces; `EBUSY` if that is done already. Process, not under RTNL.
    pub fn register() -> Result<Self> {
        if OPERATIONS.taken.xchg(true, Full) {
            return Err(EBUSY);
        }
        let ops = bindings::pernet_operations {
            init: Some(init_namespace),
            exit: Some(exit_namespace),
            id: OPERATIONS.id.get(),
            size: size_of::<Gate>(),
            ..pin_init::zeroed()
        };
        // SAFETY: `taken` was `false`, so `ops` is not registered, and nobody else uses it.
        unsafe { ptr::write(OPERATIONS.ops.get(), ops) };
        // SAFETY: `ops` is static, and its functions fit the storage that it asks for.
        to_result(unsafe { bindings::register_pernet_subsys(OPERATIONS.ops.get()) })
            .inspect_err(|_| OPERATIONS.taken.store(false, Release))?;
        // INVARIANT: Just registered; unregistered in `drop` only.
        Ok(Self(()))
    }

    /// Returns the namespace that `dev` is in, `ENODEV` if that is about to end. Process.
    pub fn of(&self, dev: &NetDevice) -> Result<Net> {
        let held = HeldNet::of(dev)?;
        let pass = self.enter(&held).ok_or(ENODEV)?;
        // INVARIANT: The gate is that of the namespace.
        let inner = Inner {
            net: held.0,
            _pass: pass,
        };
        Ok(Net(Arc::new(inner, GFP_KERNEL)?))
    }

    /// Enters the gate of `net`.
    fn enter(&self, net: &HeldNet) -> Option<Pass<'static>> {
        // SAFETY: By the type invariant `OPERATIONS` is registered, so `id` is constant now.
        let id = unsafe { *OPERATIONS.id.get() };
        // SAFETY: `net` is a namespace, and `id` is of a registered storage.
        let gate = unsafe { bindings::net_generic(net.as_ptr(), id) }.cast::<Gate>();
        // SAFETY: By the type invariant that is a gate; it stays as long as somebody is inside: the end of
        // the namespace waits for them, in `exit_namespace`.
        unsafe { gate.as_ref() }?.enter()
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // SAFETY: By the type invariant `OPERATIONS` is registered.
        unsafe { bindings::unregister_pernet_subsys(OPERATIONS.ops.get()) };
        OPERATIONS.taken.store(false, Release);
    }
}

/// Prepares the storage of a new namespace, or of one that is there at the registration.
///
/// # Safety
///
/// To be called by the core only, which has allocated the storage.
unsafe extern "C" fn init_namespace(net: *mut kernel_bindings::net) -> c_int {
    // SAFETY: The core wrote `id` before it called us.
    let id = unsafe { *OPERATIONS.id.get() };
    // SAFETY: The core passes a namespace, whose storage `id` is there.
    let gate = unsafe { bindings::net_generic(net, id) }.cast::<Gate>();
    // SAFETY: The storage has the size of a `Gate` and the alignment of an allocation, which is enough for
    // it; nobody uses it yet, and it stays where it is.
    unsafe { bindings::init_in_place(gate, Gate::new()) };
    0
}

/// Waits until nobody uses a namespace that ends.
///
/// # Safety
///
/// To be called by the core only, once for each namespace that `init_namespace` prepared.
unsafe extern "C" fn exit_namespace(net: *mut kernel_bindings::net) {
    // SAFETY: As in `init_namespace`.
    let id = unsafe { *OPERATIONS.id.get() };
    // SAFETY: As in `init_namespace`.
    let gate = unsafe { bindings::net_generic(net, id) }.cast::<Gate>();
    // SAFETY: `init_namespace` made the gate.
    if let Some(gate) = unsafe { gate.as_ref() } {
        gate.close_and_wait();
    }
    // SAFETY: Nobody is inside the gate, and nobody can reach it: `Namespaces::enter` has a reference to
    // the namespace, or the namespace is not ending and `Namespaces` is being dropped. The last one to
    // leave is out of the gate too: it completes as its last step.
    unsafe { ptr::drop_in_place(gate) };
}

/// A reference to a namespace, which neither ends nor loses its network devices meanwhile. Short-lived. Drop: any context.
///
/// # Invariants
///
/// `0` is a namespace, and one reference to it is this value's.
pub struct HeldNet(NonNull<kernel_bindings::net>);

impl HeldNet {
    /// Holds the namespace that `dev` is in; `ENODEV` if that is about to end. Any context.
    pub fn of(dev: &NetDevice) -> Result<Self> {
        let _guard = rcu::read_lock();
        // SAFETY: `dev` is a network device, whose namespace stays in memory at least as long as the guard.
        let net = unsafe { bindings::maybe_get_net(bindings::dev_net(dev.as_ptr())) };
        // INVARIANT: `maybe_get_net` took a reference, if it did not return null.
        Ok(Self(NonNull::new(net).ok_or(ENODEV)?))
    }

    /// Returns the C namespace, which is valid as long as `self`.
    pub fn as_ptr(&self) -> *mut kernel_bindings::net {
        self.0.as_ptr()
    }
}

impl Drop for HeldNet {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference is ours.
        unsafe { bindings::put_net(self.as_ptr()) };
    }
}

/// A namespace that cannot end.
///
/// A user can delete it: then its network devices go, and its end waits until this is dropped. So the
/// owner of this gives it up when the network device that it was for is unregistered.
///
/// Clone, compare: any context. Drop: any context.
#[derive(Clone)]
pub struct Net(Arc<Inner>);

/// # Invariants
///
/// `net` is a namespace whose gate was entered with `_pass`, so it stays in memory and keeps working.
struct Inner {
    net: NonNull<kernel_bindings::net>,
    _pass: Pass<'static>,
}

// SAFETY: A namespace may be used from any thread.
unsafe impl Send for Inner {}
// SAFETY: As above.
unsafe impl Sync for Inner {}

impl Net {
    /// Returns the C namespace, which is valid as long as `self`.
    #[inline]
    pub fn as_ptr(&self) -> *mut kernel_bindings::net {
        self.0.net.as_ptr()
    }

    /// Returns its identity. Any context.
    #[inline]
    pub fn id(&self) -> NetId {
        NetId::of(self.as_ptr())
    }

    /// Returns what identifies it for ever. Any context.
    #[inline]
    pub fn cookie(&self) -> NetCookie {
        // SAFETY: The namespace is valid as long as `self`.
        unsafe { NetCookie::of(self.as_ptr()) }
    }
}

/// Identifies a network namespace without a reference to it: a later one may get the same identity.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NetId(usize);

impl NetId {
    #[inline]
    pub(crate) fn of(net: *const kernel_bindings::net) -> Self {
        Self(net.addr())
    }

    /// Returns it as a number, for hashes.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0 as u64
    }
}

/// Identifies a network namespace without a reference to it, among all that there ever are (`SO_NETNS_COOKIE`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NetCookie {
    id: NetId,
    cookie: u64,
}

impl NetCookie {
    /// # Safety
    ///
    /// `net` is a valid namespace.
    #[inline]
    pub(crate) unsafe fn of(net: *const kernel_bindings::net) -> Self {
        Self {
            id: NetId::of(net),
            // SAFETY: The caller promises a namespace.
            cookie: unsafe { bindings::net_cookie(net) },
        }
    }

    /// Returns the identity that the namespace has as long as it is there.
    #[inline]
    pub fn id(self) -> NetId {
        self.id
    }
}

impl PartialEq for Net {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0.net == other.0.net
    }
}

impl Eq for Net {}
