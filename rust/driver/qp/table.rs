// SPDX-License-Identifier: GPL-2.0

//! The QPs of all devices, by their numbers.

use super::Qp;
use crate::{
    device::Device,
    hash,
    table::Table,
    users::Users, //
};
use core::ops::RangeInclusive;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        rcu,
        Arc, //
    },
};

/// The number by which the general services QP of a device is addressed.
pub(crate) const GSI_NUMBER: u32 = 1;
/// QP numbers: 24 bits, without those of the special QPs and the one that stands for a multicast group.
const NUMBERS: RangeInclusive<u32> = 2..=0x00ff_fffe;
const NUMBER_MASK: u32 = 0x00ff_ffff;
/// Numbers that are tried for a new QP.
const TRIES: u32 = 1 << 16;

/// The QPs with a number of their own. It is unique over all devices of the module.
pub(crate) static QPS: Table<Qp> = Table::new();
/// The general services QPs, each by its device, hashed.
pub(crate) static GENERAL_SERVICES: Table<Qp> = Table::new();
/// The number that the next QP gets, if it is free.
static NEXT: Atomic<u32> = Atomic::new(0);

/// Has numbers begin anywhere, so that those of an earlier life of the module are not used again soon. Context: any.
pub(crate) fn begin_anywhere() {
    NEXT.store(sync::random_u32(), Relaxed);
}

/// The QP with that number. Context: any.
#[inline]
pub(crate) fn find(number: u32, rcu: &rcu::Guard) -> Option<&Arc<Qp>> {
    QPS.read(number, rcu)
}

/// Where the general services QP of `device` may be.
fn services_keys(device: &Device) -> RangeInclusive<u32> {
    hash::keys([core::ptr::from_ref(device).addr() as u64])
}

/// The general services QP of `device`. Context: any.
pub(crate) fn general_services<'a>(device: &Device, rcu: &'a rcu::Guard) -> Option<&'a Arc<Qp>> {
    GENERAL_SERVICES.find_hashed(services_keys(device), rcu, |qp| qp.is_of(device))
}

/// A number that has not been in use for as long as possible: numbers are given out in turn. Context: process.
pub(super) fn reserve_number() -> Result<u32> {
    for _ in 0..TRIES {
        let number = NEXT.fetch_add(1, Relaxed) & NUMBER_MASK;
        if NUMBERS.contains(&number) && find(number, &rcu::read_lock()).is_none() {
            return Ok(number);
        }
    }
    Err(EAGAIN)
}

/// Lets packets find a QP. Errors: `EBUSY` if its number is in use. Context: process, may sleep.
pub(super) fn publish(qp: &Arc<Qp>) -> Result {
    if qp.is_general_services() {
        return GENERAL_SERVICES.insert_hashed(services_keys(qp.device()), qp);
    }
    QPS.whole()?.insert(qp.number, qp.clone())
}

/// Nobody finds a QP any more. Its number rests until all others have had their turn. Context: process.
pub(super) fn withdraw(qp: &Arc<Qp>) {
    if qp.is_general_services() {
        GENERAL_SERVICES.remove_hashed(services_keys(qp.device()), qp);
    } else {
        QPS.remove_if(qp.number, qp);
    }
}

/// Drops the paths of all QPs of `device` whose source address is gone. Context: process, may sleep.
pub(crate) fn lose_paths(device: &Device) {
    for_each(device.users(), |qp| qp.lose_paths());
    let services = general_services(device, &rcu::read_lock()).cloned();
    if let Some(qp) = services {
        qp.lose_paths();
    }
}

/// Calls `f` for each QP that is on the list `users`. Context: process, may sleep.
pub(super) fn for_each(users: &Users, f: impl Fn(&Arc<Qp>)) {
    users.for_each(|number| {
        let qp = find(number, &rcu::read_lock()).cloned();
        // The number may be another QP's meanwhile.
        let is_one = |qp: &Arc<Qp>| qp.lists().any(|list| core::ptr::eq(list, users));
        if let Some(qp) = qp.filter(is_one) {
            f(&qp);
        }
    });
}
