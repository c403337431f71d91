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

/// A change of a network device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetdevEvent {
    /// It is there.
    Register,
    /// The network device goes: drop each reference to it soon. If it is still registered, it only leaves its namespace for
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
    /// Its MTU changed. IP may have been taken off it, or put on it again, as each family needs some MTU.
    ChangeMtu,
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
            bindings::netdev_cmd_NETDEV_CHANGEMTU => Self::ChangeMtu,
            _ => return None,
        })
    }
}

/// Takes the news of all network devices of all namespaces.
pub trait NetdevHandler: Send + Sync + 'static {
    /// Called for each event of a network device. Process context, RTNL is held: it must not take it, nor wait for
    /// anybody who does.
    fn event(&self, dev: &NetDevice, event: NetdevEvent);

    /// Called when a network device gets an address, or loses one (`removed`). Any context but hard interrupts.
    fn address_event(&self, dev: &NetDevice, removed: bool);
}

/// A function that a notifier chain calls: with its block, the number of the event, and the object of the event.
type Call =
    unsafe extern "C" fn(*mut kernel_bindings::notifier_block, c_ulong, *mut c_void) -> c_int;

/// An entry of a notifier chain.
#[pin_data]
struct Block<H> {
    #[pin]
    block: Opaque<kernel_bindings::notifier_block>,
    handler: Arc<H>,
}

impl<H: NetdevHandler> Block<H> {
    /// Makes an entry for a chain to call `call`.
    fn new(call: Call, handler: &Arc<H>) -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            pin_init!(Self {
                block <- Opaque::ffi_init(|block: *mut kernel_bindings::notifier_block| {
                    // SAFETY: `block` is valid for writes.
                    unsafe {
                        block.write(kernel_bindings::notifier_block {
                            notifier_call: Some(call),
                            ..pin_init::zeroed()
                        });
                    }
                }),
                handler: handler.clone(),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the handler of the entry with this block.
    ///
    /// # Safety
    ///
    /// `block` is the field of a `Block<H>` that lives as long as `'a`.
    unsafe fn handler<'a>(block: *mut kernel_bindings::notifier_block) -> &'a H {
        let block = Opaque::cast_from(block.cast_const()).cast_mut();
        // SAFETY: The caller promises it.
        unsafe { &(*container_of!(block, Self, block)).handler }
    }
}

/// A subscription to the news.
///
/// # Invariants
///
/// Each block is registered with its chain.
pub struct NetdevNotifier<H: NetdevHandler> {
    netdevs: Pin<KBox<Block<H>>>,
    v4: Pin<KBox<Block<H>>>,
    v6: Pin<KBox<Block<H>>>,
}

// SAFETY: The blocks are only used to unregister them, which may be done on any thread; the handler is `Send`
// and `Sync`.
unsafe impl<H: NetdevHandler> Send for NetdevNotifier<H> {}
// SAFETY: As above; there is nothing to be done with a shared reference.
unsafe impl<H: NetdevHandler> Sync for NetdevNotifier<H> {}

impl<H: NetdevHandler> NetdevNotifier<H> {
    /// Subscribes. Process, not under RTNL.
    ///
    /// The handler gets [`NetdevEvent::Register`], and [`NetdevEvent::Up`] if it is up, of each network
    /// device that is there already; and when the subscription is dropped (process, not under RTNL)
    /// [`NetdevEvent::Down`] and [`NetdevEvent::Unregister`] of each that is still there. Of addresses it gets what
    /// happens in between.
    pub fn register(handler: Arc<H>) -> Result<Self> {
        let netdevs = Block::new(Self::notify, &handler)?;
        let v4 = Block::new(Self::notify_v4, &handler)?;
        let v6 = Block::new(Self::notify_v6, &handler)?;
        // SAFETY: The blocks are initialised, do not move, and are unregistered before they are freed. Only a block that
        // is registered already is refused, so the last two calls cannot fail.
        unsafe {
            to_result(bindings::register_netdevice_notifier(netdevs.block.get()))?;
            bindings::register_inetaddr_notifier(v4.block.get());
            bindings::register_inet6addr_notifier(v6.block.get());
        }
        // INVARIANT: Just registered.
        Ok(Self { netdevs, v4, v6 })
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
        if let Some(event) = NetdevEvent::from_raw(event) {
            // SAFETY: A registered block lives. The core passes such information with each event of this chain. RTNL is
            // held, so the device stays, and it is registered, or was until now.
            unsafe {
                let info = info.cast::<bindings::netdev_notifier_info>();
                let dev = NetDevice::from_raw(bindings::netdev_notifier_info_to_dev(info));
                Block::<H>::handler(block).event(dev, event);
            }
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
        // SAFETY: The core passes such an address with each event of this chain.
        unsafe { Self::notify_address(block, event, bindings::inetaddr_to_dev(info)) }
    }

    /// As [`Self::notify_v4`], for IPv6.
    ///
    /// # Safety
    ///
    /// As there.
    unsafe extern "C" fn notify_v6(
        block: *mut kernel_bindings::notifier_block,
        event: c_ulong,
        info: *mut c_void,
    ) -> c_int {
        // SAFETY: As in `notify_v4`.
        unsafe { Self::notify_address(block, event, bindings::inet6addr_to_dev(info)) }
    }

    /// Passes an event of an address of `dev` on.
    ///
    /// # Safety
    ///
    /// `block` is a registered block. `dev` is the device of an address, which has a reference to it.
    unsafe fn notify_address(
        block: *mut kernel_bindings::notifier_block,
        event: c_ulong,
        dev: *mut kernel_bindings::net_device,
    ) -> c_int {
        let event = NetdevEvent::from_raw(event);
        if let Some(event @ (NetdevEvent::Up | NetdevEvent::Down)) = event {
            // SAFETY: The caller promises it; a registered block lives.
            unsafe {
                let dev = NetDevice::from_raw(dev);
                Block::<H>::handler(block).address_event(dev, event == NetdevEvent::Down);
            }
        }
        // CAST: 0.
        bindings::NOTIFY_DONE as c_int
    }
}

impl<H: NetdevHandler> Drop for NetdevNotifier<H> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the blocks are registered.
        unsafe {
            bindings::unregister_inet6addr_notifier(self.v6.block.get());
            bindings::unregister_inetaddr_notifier(self.v4.block.get());
            bindings::unregister_netdevice_notifier(self.netdevs.block.get());
        }
    }
}
