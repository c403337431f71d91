// SPDX-License-Identifier: GPL-2.0

//! Multicast groups of queue pairs.

use super::Obj;
use crate::gid::{
    self,
    Gid, //
};
use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// A queue pair that can be in multicast groups.
pub trait Multicast: Sized + Send + Sync + 'static {
    /// Attaches it to a group: from now on it gets a copy of each packet for the group.
    ///
    /// Attached again, it still gets one copy; as many [`Multicast::detach_multicast`]s undo it. (A process that does so
    /// with the same MLID does not come here the second time.)
    ///
    /// Errors: `EINVAL` if the QP is not one for datagrams, or `group` is none; `ENOMEM` beyond the device's
    /// limits; `ENODEV` if the device is going away, or its netdev does not do multicast of the kind.
    /// Context: process, may sleep, RTNL not held.
    fn attach_multicast(self: &Arc<Self>, group: &Gid) -> Result;

    /// Undoes one [`Multicast::attach_multicast`]. Errors: `EINVAL` if there is none to be undone. Does not fail where
    /// there is one: `ib_core` would keep the QP for ever. Context: process, may sleep, RTNL not held.
    fn detach_multicast(self: &Arc<Self>, group: &Gid) -> Result;
}

/// `attach_mcast`. Process context. RoCE has no use for the LID.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn attach<Q: Multicast>(
    qp: *mut bindings::ib_qp,
    group: *mut bindings::ib_gid,
    _lid: u16,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes an object that it created, and a GID.
        let (private, group) = unsafe { (Obj::<Q>::get(qp), gid::from_raw(&*group)) };
        private.core.attach_multicast(&group)?;
        Ok(0)
    })
}

/// `detach_mcast`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn detach<Q: Multicast>(
    qp: *mut bindings::ib_qp,
    group: *mut bindings::ib_gid,
    _lid: u16,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes an object that it created, and a GID.
        let (private, group) = unsafe { (Obj::<Q>::get(qp), gid::from_raw(&*group)) };
        private.core.detach_multicast(&group)?;
        Ok(0)
    })
}
