// SPDX-License-Identifier: GPL-2.0

//! Address handles.

use crate::{
    live::{
        Kind,
        Live, //
    },
    memory::pd::Pd,
    table::Table, //
};
use core::{
    ops::RangeInclusive,
    sync::atomic::{
        AtomicU64,
        Ordering, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    ah::{
        Address,
        AddressHandle, //
    },
    udata::Udata, //
};
use zerocopy_derive::{
    Immutable,
    IntoBytes, //
};

/// Numbers of address handles: librxe takes 0 for "none".
const NUMBERS: RangeInclusive<u32> = 1..=0x00ff_ffff;

/// The next handle's serial number.
static NEXT_SERIAL: AtomicU64 = AtomicU64::new(0);

/// The address handles of the processes of all devices.
pub(crate) static HANDLES: Table<Ah> = Table::new();

/// RDMA network cards put the packet type of a RoCE datagram into the completion's service level: bit 3 for UDP, and
/// below it 1 for IPv6 or 2 for IPv4. UCX goes by it to find the sender's address in the first 40 bytes of the buffer.
pub(crate) const PACKET_UDP_IPV6: u8 = 0b1001;
/// The same for IPv4.
pub(crate) const PACKET_UDP_IPV4: u8 = 0b1010;

/// Where datagrams go.
///
/// Requests, packets in flight and the table of the numbers may hold on to it when its `ib_ah` is gone; so the last
/// reference to the entry of the GID table that the address refers to may go late. `registry` allows for it.
pub(crate) struct Ah {
    pd: Arc<Pd>,
    /// By what number a process calls it.
    number: Option<u32>,
    /// No other address handle ever has it.
    pub(crate) serial: u64,
    address: Address,
    _live: Live,
}

/// The answer of `create_ah` to librxe.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct CreateAhResponse {
    number: u32,
    reserved: u32,
}

impl AddressHandle for Ah {
    type Pd = Pd;

    /// One of a process gets a number, by which the process names it in its send requests.
    fn create(
        pd: &Arc<Pd>,
        mut address: Address,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<Arc<Self>> {
        if udata.is_some() && matches!(address.sl, PACKET_UDP_IPV6 | PACKET_UDP_IPV4) {
            // Probably a reply: `ibv_create_ah_from_wc()` copies it. A level that was chosen cannot be told from it.
            address.sl = 0;
        }
        let handles;
        let (slot, flags) = match udata {
            None => (None, GFP_ATOMIC),
            Some(udata) => {
                handles = HANDLES.whole()?;
                let slot = handles.reserve_cyclic(NUMBERS)?;
                udata.copy_out(&CreateAhResponse {
                    number: slot.key(),
                    reserved: 0,
                })?;
                (Some(slot), GFP_KERNEL_ACCOUNT)
            }
        };
        let ah = Self {
            pd: pd.clone(),
            number: slot.as_ref().map(|slot| slot.key()),
            serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed),
            address,
            _live: Live::new(Kind::Ah),
        };
        let ah = Arc::new(ah, flags)?;
        if let Some(slot) = slot {
            slot.fill(ah.clone())?;
        }
        Ok(ah)
    }

    fn address(&self) -> &Address {
        &self.address
    }

    fn destroy(self: &Arc<Self>) {
        if let Some(number) = self.number {
            HANDLES.remove_if(number, self);
        }
    }
}

/// The address handle that a process of `pd` calls `number`. Context: any, preemption off. For a moment it refers to
/// whatever handle has that number, perhaps one of a device that is going. Such a device waits for a grace period only.
pub(crate) fn find(pd: &Arc<Pd>, number: u32) -> Option<Arc<Ah>> {
    let ah = HANDLES.get(number)?;
    Arc::ptr_eq(&ah.pd, pd).then_some(ah)
}
