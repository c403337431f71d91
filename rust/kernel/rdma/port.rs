// SPDX-License-Identifier: GPL-2.0

//! The port of a device.

use crate::{
    gid::{
        self,
        TableAddress, //
    },
    mad::PortCounters, //
};
use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// Entries of the GID table.
pub const GID_TABLE_LEN: u32 = 256;
/// Entries of the P_Key table.
pub const PKEY_TABLE_LEN: u16 = 1;
/// The number of the one port.
pub const NUMBER: u32 = 1;

/// `IB_PORT_CM_SUP` of `include/rdma/ib_mad.h`: the port speaks the CM protocol.
const CAP_CM: u32 = 1 << 16;

/// `IB_MGMT_MAD_SIZE` of `include/rdma/ib_mad.h`.
const MAX_MAD_SIZE: u32 = 256;

/// Attributes of a port.
#[derive(Clone, Copy, Debug)]
pub struct Attr {
    /// Whether packets can pass.
    pub active: bool,
    /// Whether the link is there, even if it is not in use.
    pub link: bool,
    /// The largest path MTU that the device knows, as in `enum ib_mtu`.
    pub max_mtu: u32,
    /// The largest path MTU that the netdev carries, as in `enum ib_mtu`.
    pub active_mtu: u32,
    /// The netdev's own MTU, in bytes.
    pub netdev_mtu: u32,
    /// Speed in Mb/s, if it is known.
    pub speed: Option<u32>,
    /// The largest message, in bytes.
    pub max_message: u32,
    /// Packets that were dropped because their P_Key is wrong.
    pub bad_pkeys: u64,
    /// Packets that were dropped because their Q_Key is wrong.
    pub bad_qkeys: u64,
}

/// The one port of a device, whose core this is.
pub trait Port: Sized + Send + Sync + 'static {
    /// Its attributes. Context: process, may sleep, RTNL not held.
    fn query_port(&self) -> Attr;

    /// The P_Key at `index` of its table; [`None`] beyond its end. Context: process.
    fn query_pkey(&self, index: u16) -> Option<u16>;

    /// Its netdev; [`None`] once that is being unregistered. Context: process, RTNL may be held.
    fn netdev(&self) -> Option<net::NetDev>;

    /// The value of the counter with that index in [`Driver::COUNTERS`](crate::Driver::COUNTERS), without what QPs have
    /// counted while they were bound to counters of their own, which `ib_core` adds. Context: process.
    fn counter(&self, index: usize) -> u64;

    /// The counters that sysfs shows in `ports/1/counters`. Context: process.
    fn port_counters(&self) -> PortCounters;
}

impl Attr {
    /// Mb/s, also if the netdev does not say.
    fn mbps(&self) -> u32 {
        self.speed.unwrap_or(1_000)
    }
}

/// `IB_SPEED_*` and `IB_WIDTH_*` of `include/rdma/ib_verbs.h` that come closest.
fn width_and_speed(mbps: u32) -> (u8, u16) {
    const WIDTH_1X: u8 = bindings::ib_port_width_IB_WIDTH_1X as u8;
    const WIDTH_4X: u8 = bindings::ib_port_width_IB_WIDTH_4X as u8;
    let (width, speed) = match mbps {
        ..=2_500 => (WIDTH_1X, bindings::ib_port_speed_IB_SPEED_SDR),
        2_501..=10_000 => (WIDTH_1X, bindings::ib_port_speed_IB_SPEED_FDR10),
        10_001..=20_000 => (WIDTH_4X, bindings::ib_port_speed_IB_SPEED_DDR),
        20_001..=25_000 => (WIDTH_1X, bindings::ib_port_speed_IB_SPEED_EDR),
        25_001..=40_000 => (WIDTH_4X, bindings::ib_port_speed_IB_SPEED_FDR10),
        40_001..=50_000 => (WIDTH_1X, bindings::ib_port_speed_IB_SPEED_HDR),
        50_001..=100_000 => (WIDTH_4X, bindings::ib_port_speed_IB_SPEED_EDR),
        100_001..=200_000 => (WIDTH_4X, bindings::ib_port_speed_IB_SPEED_HDR),
        _ => (WIDTH_4X, bindings::ib_port_speed_IB_SPEED_NDR),
    };
    (width, speed as u16)
}

fn state(is_active: bool) -> bindings::ib_port_state {
    if is_active {
        bindings::ib_port_state_IB_PORT_ACTIVE
    } else {
        bindings::ib_port_state_IB_PORT_DOWN
    }
}

/// `query_port`.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn query<T: Port>(
    device: *mut bindings::ib_device,
    _port: u32,
    raw: *mut bindings::ib_port_attr,
) -> c_int {
    // SAFETY: `ib_core` passes a device of this driver, and zeroed attributes to fill in.
    let (core, raw) = unsafe { (crate::device::core::<T>(device), &mut *raw) };
    let attr = core.query_port();
    raw.state = state(attr.active);
    raw.phys_state = if attr.active {
        bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_LINK_UP
    } else if attr.link {
        bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_POLLING
    } else {
        bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_DISABLED
    } as u8;
    raw.max_mtu = attr.max_mtu;
    raw.active_mtu = attr.active_mtu;
    raw.phys_mtu = attr.netdev_mtu;
    raw.gid_tbl_len = GID_TABLE_LEN as c_int;
    raw.port_cap_flags = CAP_CM;
    raw.max_msg_sz = attr.max_message;
    // They stay at their maximum (IBTA 14.2.5.6).
    raw.bad_pkey_cntr = u32::try_from(attr.bad_pkeys).unwrap_or(u32::MAX);
    raw.qkey_viol_cntr = u32::try_from(attr.bad_qkeys).unwrap_or(u32::MAX);
    raw.pkey_tbl_len = PKEY_TABLE_LEN;
    raw.max_vl_num = 1;
    (raw.active_width, raw.active_speed) = width_and_speed(attr.mbps());
    raw.set_ip_gids(1);
    0
}

/// `query_port_speed`: in units of 100 Mb/s, 0 if the port is down.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn speed<T: Port>(
    device: *mut bindings::ib_device,
    _port: u32,
    speed: *mut u64,
) -> c_int {
    // SAFETY: `ib_core` passes a device of this driver, and a place to fill in.
    let (core, speed) = unsafe { (crate::device::core::<T>(device), &mut *speed) };
    let attr = core.query_port();
    *speed = if attr.active {
        attr.mbps().div_ceil(100).into()
    } else {
        0
    };
    0
}

/// `get_port_immutable`.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn immutable<T: Port>(
    device: *mut bindings::ib_device,
    port: u32,
    raw: *mut bindings::ib_port_immutable,
) -> c_int {
    // SAFETY: `ib_core` passes a zeroed struct to fill in, and a device of this driver.
    let (raw, core) = unsafe { (&mut *raw, crate::device::core::<T>(device)) };
    raw.pkey_tbl_len = c_int::from(PKEY_TABLE_LEN);
    raw.gid_tbl_len = GID_TABLE_LEN as c_int;
    raw.core_cap_flags = bindings::RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
    let netdev = core.netdev();
    let is_active = netdev
        .as_ref()
        .is_some_and(|netdev| netdev.is_operational());
    if netdev.is_some_and(|netdev| netdev.has_ethernet_frames()) {
        raw.core_cap_flags |= bindings::RDMA_CORE_PORT_RAW_PACKET;
    }
    raw.max_mad_size = MAX_MAD_SIZE;
    // `ib_dispatch_port_state_event()` compares with the state of last time, which `ib_core` does not set at first. So an
    // event of the netdev would tell consumers of the state that they have found.
    // SAFETY: `ib_core` has just made the data of its ports, and nobody else knows the device yet.
    unsafe {
        (*(*device).port_data.add(port as usize))
            .cache
            .last_port_state = state(is_active)
    };
    0
}

/// `get_link_layer`.
///
/// # Safety
///
/// None.
pub(crate) unsafe extern "C" fn link_layer(
    _device: *mut bindings::ib_device,
    _port: u32,
) -> bindings::rdma_link_layer {
    bindings::rdma_link_layer_IB_LINK_LAYER_ETHERNET
}

/// `get_netdev`. The caller owns the reference that it gets.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn netdev<T: Port>(
    device: *mut bindings::ib_device,
    _port: u32,
) -> *mut kernel::bindings::net_device {
    // SAFETY: `ib_core` passes a device of this driver.
    let core = unsafe { crate::device::core::<T>(device) };
    match core.netdev() {
        Some(netdev) => {
            let ptr = netdev.as_ptr();
            // SAFETY: `netdev` holds a reference, so another one can be taken.
            unsafe { bindings::dev_hold(ptr) };
            ptr
        }
        None => core::ptr::null_mut(),
    }
}

/// `query_pkey`.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn query_pkey<T: Port>(
    device: *mut bindings::ib_device,
    _port: u32,
    index: u16,
    pkey: *mut u16,
) -> c_int {
    // SAFETY: `ib_core` passes a device of this driver.
    let core = unsafe { crate::device::core::<T>(device) };
    match core.query_pkey(index) {
        Some(value) => {
            // SAFETY: `ib_core` passes a place to fill in.
            unsafe { *pkey = value };
            0
        }
        None => EINVAL.to_errno(),
    }
}

/// `add_gid`.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn add_gid<A: TableAddress>(
    attr: *const bindings::ib_gid_attr,
    context: *mut *mut c_void,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes a valid entry of a device of this driver; its device is constant.
        let device =
            unsafe { crate::device::core::<A::Device>((&raw const (*attr).device).read()) };
        // SAFETY: As above, for the time of this call.
        let entry = unsafe { gid::Entry::new(attr) }.ok_or(EINVAL)?;
        let address = A::add(device, &entry)?;
        // SAFETY: `ib_core` passes a pointer that is the driver's until `del_gid`, valid for writes.
        unsafe { *context = Arc::into_raw(address).cast_mut().cast::<c_void>() };
        Ok(0)
    })
}

/// `del_gid`.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn del_gid<A: TableAddress>(
    attr: *const bindings::ib_gid_attr,
    context: *mut *mut c_void,
) -> c_int {
    // SAFETY: `ib_core` passes a valid entry of a device of this driver; its device is constant.
    let device = unsafe { crate::device::core::<A::Device>((&raw const (*attr).device).read()) };
    // SAFETY: `ib_core` passes the pointer that `add_gid` wrote when it succeeded, once: the reference is ours.
    let address = unsafe { Arc::from_raw((*context).cast::<A>()) };
    address.remove(device);
    0
}
