// SPDX-License-Identifier: GPL-2.0

//! Tables in which packets and requests find the objects of all devices, by number or hashed.

use crate::hash;
use core::ops::RangeInclusive;
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
};
use rdma::{
    error,
    global::{
        Global,
        Guard, //
    },
};
use sync::{
    RcuTable,
    WorkQueue, //
};

/// A table that is there while the module is loaded.
pub(crate) struct Table<T: Send + Sync + 'static>(Global<RcuTable<T>>);

impl<T: Send + Sync + 'static> Table<T> {
    /// No table yet.
    pub(crate) const fn new() -> Self {
        Self(Global::new())
    }

    /// Makes the table, until the guard is dropped. It gives back its references on `queue`.
    /// Context: process, may sleep.
    #[inline(never)]
    pub(crate) fn open(&'static self, queue: &Arc<WorkQueue>) -> Result<Guard<RcuTable<T>>> {
        let table = Arc::pin_init(RcuTable::new(queue.clone()), GFP_KERNEL)?;
        self.0.set(table)
    }

    /// The object at `key`, counted. Context: any.
    #[inline]
    pub(crate) fn get(&'static self, key: u32) -> Option<Arc<T>> {
        self.read(key, &rcu::read_lock()).cloned()
    }

    /// The object at `key`. Context: any.
    #[inline]
    pub(crate) fn read<'a>(&'static self, key: u32, rcu: &'a rcu::Guard) -> Option<&'a Arc<T>> {
        self.0.get(rcu)?.read(key, rcu)
    }

    /// The first object at one of `keys` that `is_it`, as [`hash::keys`] has them. Context: any.
    #[inline]
    pub(crate) fn find_hashed<'a>(
        &'static self,
        keys: RangeInclusive<u32>,
        rcu: &'a rcu::Guard,
        is_it: impl Fn(&T) -> bool,
    ) -> Option<&'a Arc<T>> {
        self.0
            .get(rcu)?
            .read_range(keys, rcu)
            .find(|value| is_it(value))
    }

    /// As [`hash::insert`]. Errors: those, and `ENETDOWN` if there is no table.
    pub(crate) fn insert_hashed(
        &'static self,
        keys: RangeInclusive<u32>,
        value: &Arc<T>,
    ) -> Result {
        hash::insert(&*self.whole()?, keys, value)
    }

    /// As [`hash::remove`].
    pub(crate) fn remove_hashed(&'static self, keys: RangeInclusive<u32>, value: &Arc<T>) {
        if let Ok(table) = self.whole() {
            hash::remove(&*table, keys, value);
        }
    }

    /// Takes away what is at `key` if it is `value`. Context: any.
    pub(crate) fn remove_if(&'static self, key: u32, value: &Arc<T>) {
        if let Some(table) = self.0.get(&rcu::read_lock()) {
            table.remove_if(key, value);
        }
    }

    /// The table itself, for what may sleep. Errors: `ENETDOWN` if there is none. Context: any.
    pub(crate) fn whole(&'static self) -> Result<Arc<RcuTable<T>>> {
        self.0.get_arc().ok_or_else(error::network_down)
    }
}
