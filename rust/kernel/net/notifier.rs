// SPDX-License-Identifier: GPL-2.0

//! News of network devices.
//!
//! C header: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use crate::netdev::NetDevice;
use kernel::{
    bindings as kernel_bindings, container_of,
    error::to_result,
    ffi::{
        c_ulong,
        c_void, //
    },
    prelude::*,
    sync::Arc,
    types::Opaque,
};
use rdma_bindings as bindings;

/// What happened to a network device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetdevEvent {
    /// It is there.
    Register,
    /// It goes: whoever has a reference to it gives it up soon. Or, if it is still registered, it leaves its namespace for
    /// another one, in which [`Self::Register`] follows.
    Unregister,
    /// It was set up.
    Up,
    /// It will be set down: packets still leave. If [`NetDevice::is_dismantled`], it goes for good.
    GoingDown,
    /// It was set down.
    Down,
    /// Something of its state changed, the carrier for one.
    Change,
}

impl NetdevEvent {
    /// [`None`] if it is another event.
    fn from_raw(event: c_ulong) -> Option<Self> {
        // Numbers beyond 32 bits are none of the kernel's.
        Some(match u32::try_from(event).ok()? {
            bindings::netdev_cmd_NETDEV_REGISTER => Self::Register,
            bindings::netdev_cmd_NETDEV_UNREGISTER => Self::Unregister,
            bindings::netdev_cmd_NETDEV_UP => Self::Up,
            bindings::netdev_cmd_NETDEV_GOING_DOWN => Self::GoingDown,
            bindings::netdev_cmd_NETDEV_DOWN => Self::Down,
            bindings::netdev_cmd_NETDEV_CHANGE => Self::Change,
            _ => return None,
        })
    }
}

/// What happened to an address of a network device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressEvent {
    /// The device has it.
    Added,
    /// The device has it no more.
    Removed,
}

impl AddressEvent {
    /// [`None`] if it is another event.
    fn from_raw(event: c_ulong) -> Option<Self> {
        match NetdevEvent::from_raw(event)? {
            NetdevEvent::Up => Some(Self::Added),
            NetdevEvent::Down => Some(Self::Removed),
            _ => None,
        }
    }
}

/// Takes the news of all network devices of all namespaces.
pub trait NetdevHandler: Send + Sync + 'static {
    /// Called for each event of a network device. Process context, RTNL is held: it must not take it, nor wait for
    /// anybody who does.
    fn event(&self, dev: &NetDevice, event: NetdevEvent);

    /// Called for each event of an address. Any context but hard interrupts.
    fn address_event(&self, dev: &NetDevice, event: AddressEvent);
}

/// What the chains have pointers to.
#[pin_data]
struct Blocks<H> {
    #[pin]
    netdevs: Opaque<kernel_bindings::notifier_block>,
    #[pin]
    v4: Opaque<kernel_bindings::notifier_block>,
    #[pin]
    v6: Opaque<kernel_bindings::notifier_block>,
    handler: Arc<H>,
}

/// A subscription to the news.
///
/// # Invariants
///
/// The blocks are registered.
pub struct NetdevNotifier<H: NetdevHandler>(Pin<KBox<Blocks<H>>>);

// SAFETY: The blocks are only used to unregister them, which may be done on any thread; the handler is `Send`
// and `Sync`.
unsafe impl<H: NetdevHandler> Send for NetdevNotifier<H> {}
// SAFETY: As above; there is nothing to be done with a shared reference.
unsafe impl<H: NetdevHandler> Sync for NetdevNotifier<H> {}

/// A function that a chain calls: with its block, the number of the event, and what that is of.
type Call =
    unsafe extern "C" fn(*mut kernel_bindings::notifier_block, c_ulong, *mut c_void) -> c_int;

/// Initialises a block for a chain to call `call`.
fn block(call: Call) -> impl PinInit<Opaque<kernel_bindings::notifier_block>> {
    Opaque::ffi_init(move |block: *mut kernel_bindings::notifier_block| {
        // SAFETY: `block` is valid for writes.
        unsafe {
            block.write(kernel_bindings::notifier_block {
                notifier_call: Some(call),
                ..pin_init::zeroed()
            });
        }
    })
}

impl<H: NetdevHandler> NetdevNotifier<H> {
    /// Subscribes. Process, not under RTNL.
    ///
    /// The handler gets [`NetdevEvent::Register`], and [`NetdevEvent::Up`] if it is up, of each network
    /// device that is there already; and when the subscription is dropped (process, not under RTNL)
    /// [`NetdevEvent::Down`] and [`NetdevEvent::Unregister`] of each that is still there. Of addresses it gets what
    /// happens in between.
    pub fn register(handler: Arc<H>) -> Result<Self> {
        let blocks = KBox::pin_init(
            pin_init!(Blocks {
                netdevs <- block(Self::notify),
                v4 <- block(Self::notify_v4),
                v6 <- block(Self::notify_v6),
                handler,
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The blocks are initialised, do not move, and are unregistered before they are freed. Only a block that
        // is registered already is refused, so the last two calls cannot fail.
        unsafe {
            to_result(bindings::register_netdevice_notifier(blocks.netdevs.get()))?;
            bindings::register_inetaddr_notifier(blocks.v4.get());
            bindings::register_inet6addr_notifier(blocks.v6.get());
        }
        // INVARIANT: Just registered.
        Ok(Self(blocks))
    }

    /// Passes an event of a network device on.
    ///
    /// # Safety
    ///
    /// To be called by the core only, with the registered block, and the information of a device event.
    unsafe extern "C" fn notify(
        block: *mut kernel_bindings::notifier_block,
        event: c_ulong,
        info: *mut c_void,
    ) -> c_int {
        let block = Opaque::cast_from(block.cast_const()).cast_mut();
        // SAFETY: The block is the field of a `Blocks`, which lives as long as the block is registered.
        let this = unsafe { &*container_of!(block, Blocks<H>, netdevs) };
        if let Some(event) = NetdevEvent::from_raw(event) {
            // SAFETY: The core passes such information with each event of this chain. RTNL is held, so the device
            // stays, and it is registered, or was until now.
            let dev = unsafe {
                let info = info.cast::<bindings::netdev_notifier_info>();
                NetDevice::from_raw(bindings::netdev_notifier_info_to_dev(info))
            };
            this.handler.event(dev, event);
        }
        // CAST: 0.
        bindings::NOTIFY_DONE as c_int
    }

    /// Passes an event of an IPv4 address on.
    ///
    /// # Safety
    ///
    /// To be called by the core only, with the registered block, and an address.
    unsafe extern "C" fn notify_v4(
        block: *mut kernel_bindings::notifier_block,
        event: c_ulong,
        info: *mut c_void,
    ) -> c_int {
        let block = Opaque::cast_from(block.cast_const()).cast_mut();
        // SAFETY: As in `notify`; the address has a reference to its device.
        unsafe {
            let this = &*container_of!(block, Blocks<H>, v4);
            this.address_event(bindings::inetaddr_to_dev(info), event)
        }
    }

    /// Passes an event of an IPv6 address on.
    ///
    /// # Safety
    ///
    /// To be called by the core only, with the registered block, and an address.
    unsafe extern "C" fn notify_v6(
        block: *mut kernel_bindings::notifier_block,
        event: c_ulong,
        info: *mut c_void,
    ) -> c_int {
        let block = Opaque::cast_from(block.cast_const()).cast_mut();
        // SAFETY: As in `notify`; the address has a reference to its device.
        unsafe {
            let this = &*container_of!(block, Blocks<H>, v6);
            this.address_event(bindings::inet6addr_to_dev(info), event)
        }
    }
}

impl<H: NetdevHandler> Blocks<H> {
    /// Passes an event of an address of `dev` on.
    ///
    /// # Safety
    ///
    /// `dev` is a network device that stays as long as this takes.
    unsafe fn address_event(&self, dev: *mut kernel_bindings::net_device, event: c_ulong) -> c_int {
        if let Some(event) = AddressEvent::from_raw(event) {
            // SAFETY: The caller promises it.
            let dev = unsafe { NetDevice::from_raw(dev) };
            self.handler.address_event(dev, event);
        }
        // CAST: 0.
        bindings::NOTIFY_DONE as c_int
    }
}

impl<H: NetdevHandler> Drop for NetdevNotifier<H> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the blocks are registered.
        unsafe {
            bindings::unregister_inet6addr_notifier(self.0.v6.get());
            bindings::unregister_inetaddr_notifier(self.0.v4.get());
            bindings::unregister_netdevice_notifier(self.0.netdevs.get());
        }
    }
}
