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

/// Takes the news.
pub trait NetdevHandler: Send + Sync + 'static {
    /// Called for each of these events, of all network devices of all namespaces. Process context, RTNL is held: it
    /// must not take it, nor wait for anybody who does.
    fn event(&self, dev: &NetDevice, event: NetdevEvent);
}

/// What the core has a pointer to.
#[pin_data]
struct Block<H> {
    #[pin]
    block: Opaque<kernel_bindings::notifier_block>,
    handler: Arc<H>,
}

/// A subscription to the news.
///
/// # Invariants
///
/// The block is registered.
pub struct NetdevNotifier<H: NetdevHandler>(Pin<KBox<Block<H>>>);

// SAFETY: The block is only used to unregister it, which may be done on any thread; the handler is `Send`
// and `Sync`.
unsafe impl<H: NetdevHandler> Send for NetdevNotifier<H> {}
// SAFETY: As above; there is nothing to be done with a shared reference.
unsafe impl<H: NetdevHandler> Sync for NetdevNotifier<H> {}

impl<H: NetdevHandler> NetdevNotifier<H> {
    /// Subscribes. Process, not under RTNL.
    ///
    /// The handler gets [`NetdevEvent::Register`], and [`NetdevEvent::Up`] if it is up, of each network
    /// device that is there already; and when the subscription is dropped (process, not under RTNL)
    /// [`NetdevEvent::Down`] and [`NetdevEvent::Unregister`] of each that is still there.
    pub fn register(handler: Arc<H>) -> Result<Self> {
        let block = KBox::pin_init(
            pin_init!(Block {
                block <- Opaque::ffi_init(|block: *mut kernel_bindings::notifier_block| {
                    // SAFETY: `block` is valid for writes.
                    unsafe {
                        block.write(kernel_bindings::notifier_block {
                            notifier_call: Some(Self::notify),
                            ..pin_init::zeroed()
                        });
                    }
                }),
                handler,
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The block is initialised, does not move, and is unregistered before it is freed.
        to_result(unsafe { bindings::register_netdevice_notifier(block.block.get()) })?;
        // INVARIANT: Just registered.
        Ok(Self(block))
    }

    /// Passes an event on.
    ///
    /// # Safety
    ///
    /// To be called by the core only, with a registered block, and the information of a device event.
    unsafe extern "C" fn notify(
        block: *mut kernel_bindings::notifier_block,
        event: c_ulong,
        info: *mut c_void,
    ) -> c_int {
        let block = Opaque::cast_from(block.cast_const()).cast_mut();
        // SAFETY: The block is the field of a `Block`, which lives as long as the block is registered.
        let this = unsafe { &*container_of!(block, Block<H>, block) };
        let Some(event) = NetdevEvent::from_raw(event) else {
            // CAST: 0.
            return bindings::NOTIFY_DONE as c_int;
        };
        // SAFETY: The core passes such information with each event of this chain.
        let dev = unsafe {
            bindings::netdev_notifier_info_to_dev(info.cast::<bindings::netdev_notifier_info>())
        };
        // SAFETY: RTNL is held, so the device stays, and it is registered, or was until now.
        let dev = unsafe { NetDevice::from_raw(dev) };
        this.handler.event(dev, event);
        // CAST: 0.
        bindings::NOTIFY_DONE as c_int
    }
}

impl<H: NetdevHandler> Drop for NetdevNotifier<H> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the block is registered.
        unsafe { bindings::unregister_netdevice_notifier(self.0.block.get()) };
    }
}
