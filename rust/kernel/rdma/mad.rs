// SPDX-License-Identifier: GPL-2.0

//! Management datagrams that the device answers itself: those by which `ib_core` asks for what sysfs shows in
//! `ports/1/counters`.

use crate::port::Port;
use kernel::prelude::*;
use rdma_bindings as bindings;

/// Attributes of performance management (IBTA 16.1.2).
const CLASS_PORT_INFO: u16 = 0x0001;
const PORT_COUNTERS: u16 = 0x0012;
const PORT_COUNTERS_EXTENDED: u16 = 0x001d;
/// Where the attribute begins in the data of a datagram of performance management (IBTA 16.1.1).
const ATTRIBUTE: usize = 40;
/// `IB_PMA_CLASS_CAP_EXT_WIDTH_NOIETF` of `include/rdma/ib_pma.h`: counters of 64 bits, but none for unicast and
/// multicast apart.
const CAP_EXT_WIDTH_NOIETF: u16 = 1 << 10;

/// The counters of a port (IBTA 16.1.3.5 and 16.1.4.11).
#[derive(Clone, Copy, Debug, Default)]
pub struct PortCounters {
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Packets received that contained an error.
    pub receive_errors: u64,
    /// Packets that could not be sent.
    pub send_discards: u64,
    /// How often the link went down.
    pub link_downed: u64,
}

impl PortCounters {
    /// `PortCounters`: narrow counters stop at the largest value.
    fn narrow(&self) -> bindings::ib_pma_portcounters {
        let u16_of = |value| u16::try_from(value).unwrap_or(u16::MAX).to_be();
        let u32_of = |value| u32::try_from(value).unwrap_or(u32::MAX).to_be();
        bindings::ib_pma_portcounters {
            link_downed_counter: u8::try_from(self.link_downed).unwrap_or(u8::MAX),
            port_rcv_errors: u16_of(self.receive_errors),
            port_xmit_discards: u16_of(self.send_discards),
            // Data is counted in units of four bytes.
            port_xmit_data: u32_of(self.sent_bytes / 4),
            port_rcv_data: u32_of(self.received_bytes / 4),
            port_xmit_packets: u32_of(self.sent_packets),
            port_rcv_packets: u32_of(self.received_packets),
            ..pin_init::zeroed()
        }
    }

    /// `PortCountersExtended`.
    fn wide(&self) -> bindings::ib_pma_portcounters_ext {
        bindings::ib_pma_portcounters_ext {
            port_xmit_data: (self.sent_bytes / 4).to_be(),
            port_rcv_data: (self.received_bytes / 4).to_be(),
            port_xmit_packets: self.sent_packets.to_be(),
            port_rcv_packets: self.received_packets.to_be(),
            ..pin_init::zeroed()
        }
    }
}

/// `process_mad`. Only `ib_core` gets an answer: what others send goes on to the agents, as without this.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn process<T: Port>(
    device: *mut bindings::ib_device,
    _flags: c_int,
    _port: u32,
    in_wc: *const bindings::ib_wc,
    _in_grh: *const bindings::ib_grh,
    in_mad: *const bindings::ib_mad,
    out_mad: *mut bindings::ib_mad,
    _out_mad_size: *mut usize,
    _out_mad_pkey_index: *mut u16,
) -> c_int {
    const SUCCESS: c_int = bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS as c_int;
    const REPLY: c_int = bindings::ib_mad_result_IB_MAD_RESULT_REPLY as c_int;
    // SAFETY: `ib_core` passes a datagram.
    let header = unsafe { &(*in_mad).mad_hdr };
    if !in_wc.is_null()
        || header.mgmt_class != bindings::IB_MGMT_CLASS_PERF_MGMT as u8
        || header.method != bindings::IB_MGMT_METHOD_GET as u8
    {
        return SUCCESS;
    }
    // SAFETY: `ib_core` passes a device of this driver.
    let counters = || unsafe { crate::device::core::<T>(device) }.port_counters();
    // SAFETY: The answer is a zeroed `struct ib_mad`, of which the data from `ATTRIBUTE` on has room for each of these
    // attributes, wherever it is aligned.
    unsafe {
        let attribute = (&raw mut (*out_mad).data).cast::<u8>().add(ATTRIBUTE);
        match u16::from_be(header.attr_id) {
            CLASS_PORT_INFO => attribute
                .cast::<bindings::ib_class_port_info>()
                .write_unaligned(bindings::ib_class_port_info {
                    base_version: 1,
                    class_version: 1,
                    capability_mask: CAP_EXT_WIDTH_NOIETF.to_be(),
                    ..pin_init::zeroed()
                }),
            PORT_COUNTERS => {
                attribute
                    .cast::<bindings::ib_pma_portcounters>()
                    .write_unaligned(counters().narrow());
            }
            PORT_COUNTERS_EXTENDED => {
                attribute
                    .cast::<bindings::ib_pma_portcounters_ext>()
                    .write_unaligned(counters().wide());
            }
            _ => return SUCCESS,
        }
    }
    SUCCESS | REPLY
}
