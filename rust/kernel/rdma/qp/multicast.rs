// SPDX-License-Identifier: GPL-2.0

//! Multicast groups of queue pairs.

use super::Obj;
use crate::{
    driver::Driver,
    gid, //
};
use kernel::{
    error::from_result,
    prelude::*, //
};
use rdma_bindings as bindings;

/// `attach_mcast`. Process context. RoCE has no use for the LID.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn attach<D: Driver>(
    qp: *mut bindings::ib_qp,
    group: *mut bindings::ib_gid,
    _lid: u16,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes an object that it created, and a GID.
        let (private, group) = unsafe { (Obj::<D::Qp>::get(qp), gid::from_raw(&*group)) };
        D::attach_multicast(&private.core, &group)?;
        Ok(0)
    })
}

/// `detach_mcast`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn detach<D: Driver>(
    qp: *mut bindings::ib_qp,
    group: *mut bindings::ib_gid,
    _lid: u16,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes an object that it created, and a GID.
        let (private, group) = unsafe { (Obj::<D::Qp>::get(qp), gid::from_raw(&*group)) };
        D::detach_multicast(&private.core, &group)?;
        Ok(0)
    })
}
