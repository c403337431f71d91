// SPDX-License-Identifier: GPL-2.0

//! The multicast groups that a QP is attached to.
//!
//! [`Verbs::attached`](super::Verbs::attached) nests inside [`Device::groups`](crate::device::Device::groups).

use super::Qp;
use crate::{
    device::multicast::mapped,
    storage::{
        append,
        take, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use net::Address;
use rdma::{
    gid::Gid,
    qp::Multicast, //
};
use roce::qp::Type;

/// The multicast groups of a QP, as its consumer called them.
#[derive(Default)]
pub(crate) struct Attached {
    entries: KVec<Entry>,
}

/// An MGID that a QP is attached to.
struct Entry {
    mgid: Gid,
    /// How often. `ib_core` counts attachments by MLID, too, which means nothing here.
    count: u32,
    /// The addresses whose packets the QP gets by it.
    addresses: [Option<Address>; 2],
}

impl Multicast for Qp {
    /// Waits for RTNL, but not once the device is retired: RTNL's holder may wait for its end (`lifecycle::leave`).
    fn attach_multicast(self: &Arc<Self>, mgid: &Gid) -> Result {
        let group = Address::from_gid(*mgid);
        if self.ty != Type::Ud || !group.is_multicast() {
            return Err(EINVAL);
        }
        let device = self.device();
        let mut groups = device.groups.lock();
        let is_needed = || !device.is_retired();
        if groups.is_closed() || !is_needed() {
            return Err(ENODEV);
        }
        groups.attach()?;
        let mut attached = self.verbs.attached.lock();
        if let Some(entry) = attached.entries.iter_mut().find(|it| it.mgid == *mgid) {
            entry.count = entry.count.saturating_add(1);
        } else {
            let mut entry = Entry {
                mgid: *mgid,
                count: 1,
                addresses: [None; 2],
            };
            let wanted = [Some(group), mapped(mgid)];
            let netdev = device.netdev();
            let mut refused = None;
            for (address, place) in wanted.into_iter().flatten().zip(&mut entry.addresses) {
                match groups.enter(netdev.as_ref(), address, self.number, &is_needed) {
                    Ok(()) => *place = Some(address),
                    Err(error) => refused = Some(error),
                }
            }
            // Of two addresses one may be of a family that the netdev does not have.
            let entered = entry.addresses;
            let result = match refused {
                Some(error) if error != ENODEV || entered == [None; 2] => Err(error),
                _ => append(&mut attached.entries, entry),
            };
            if let Err(error) = result {
                for address in entered.into_iter().flatten() {
                    groups.leave(address, self.number, &is_needed);
                }
                groups.detach();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits for RTNL as [`Self::attach_multicast`] does.
    fn detach_multicast(self: &Arc<Self>, mgid: &Gid) -> Result {
        let is_needed = || !self.device().is_retired();
        let mut groups = self.device().groups.lock();
        let mut attached = self.verbs.attached.lock();
        let index = attached
            .entries
            .iter()
            .position(|entry| entry.mgid == *mgid)
            .ok_or(EINVAL)?;
        let entry = attached.entries.get_mut(index).ok_or(EINVAL)?;
        entry.count = entry.count.saturating_sub(1);
        groups.detach();
        if entry.count == 0 {
            let gone = take(&mut attached.entries, index);
            let addresses = gone.map_or([None; 2], |entry| entry.addresses);
            for address in addresses.into_iter().flatten() {
                groups.leave(address, self.number, &is_needed);
            }
        }
        Ok(())
    }
}
