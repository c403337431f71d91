// SPDX-License-Identifier: GPL-2.0

//! Attributes of queue pairs.

use super::{
    Cap,
    State, //
};
use crate::ah::Address;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// A queue pair whose attributes can be changed and read.
pub trait Modify: Sized + Send + Sync + 'static {
    /// Changes state and attributes (IBTA 11.2.5.2). `mask` has the bits of `enum ib_qp_attr_mask`.
    ///
    /// Errors: `EINVAL` for a transition or an attribute that the state machine does not know, for a value
    /// out of range, and while the send queue drains; nothing is changed then. Also if the QP fails
    /// meanwhile. Context: process, may sleep.
    fn modify(self: &Arc<Self>, attr: &Attr, mask: u32) -> Result;

    /// Returns all attributes: what was set, and for what was not the value that it is used with.
    /// Context: process, may sleep.
    fn query(self: &Arc<Self>) -> Attr;
}

/// Attributes (`struct ib_qp_attr`). Of those passed to `modify_qp`, only the ones in the mask mean
/// something; the others are zero.
#[derive(Clone, Default)]
#[expect(missing_docs)]
pub struct Attr {
    pub state: State,
    pub cur_state: State,
    /// As in `enum ib_mtu`.
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    /// See [`crate::access::Access`].
    pub access: u32,
    pub cap: Cap,
    /// Holds a reference to the GID table: must be dropped when the QP is destroyed.
    pub address: Option<Address>,
    pub pkey_index: u16,
    /// The alternate path. Holds a reference, as `address` does.
    pub alt_address: Option<Address>,
    pub alt_pkey_index: u16,
    pub alt_port: u32,
    pub alt_timeout: u8,
    pub en_sqd_async_notify: bool,
    pub sq_draining: bool,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
}

impl Attr {
    /// Reads the attributes in `mask`; the C struct may be uninitialised otherwise.
    ///
    /// # Safety
    ///
    /// The fields of `raw` that `mask` names must be initialised, with a reference to the source
    /// GID of each address that it includes.
    pub(super) unsafe fn from_raw(raw: *const bindings::ib_qp_attr, mask: u32) -> Result<Self> {
        let has = |bit: u32| mask & bit != 0;
        let mut attr = Self::default();
        macro_rules! read {
            ($($bit:ident => $to:ident = $from:ident,)*) => {
                $(if has(bindings::$bit) {
                    // SAFETY: The mask names the field, so it is initialised.
                    attr.$to = unsafe { (*raw).$from };
                })*
            };
        }
        read!(
            ib_qp_attr_mask_IB_QP_PATH_MTU => path_mtu = path_mtu,
            ib_qp_attr_mask_IB_QP_PATH_MIG_STATE => path_mig_state = path_mig_state,
            ib_qp_attr_mask_IB_QP_QKEY => qkey = qkey,
            ib_qp_attr_mask_IB_QP_RQ_PSN => rq_psn = rq_psn,
            ib_qp_attr_mask_IB_QP_SQ_PSN => sq_psn = sq_psn,
            ib_qp_attr_mask_IB_QP_DEST_QPN => dest_qp_num = dest_qp_num,
            ib_qp_attr_mask_IB_QP_PKEY_INDEX => pkey_index = pkey_index,
            ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC => max_rd_atomic = max_rd_atomic,
            ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC => max_dest_rd_atomic = max_dest_rd_atomic,
            ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER => min_rnr_timer = min_rnr_timer,
            ib_qp_attr_mask_IB_QP_PORT => port = port_num,
            ib_qp_attr_mask_IB_QP_ALT_PATH => alt_pkey_index = alt_pkey_index,
            ib_qp_attr_mask_IB_QP_ALT_PATH => alt_port = alt_port_num,
            ib_qp_attr_mask_IB_QP_ALT_PATH => alt_timeout = alt_timeout,
            ib_qp_attr_mask_IB_QP_TIMEOUT => timeout = timeout,
            ib_qp_attr_mask_IB_QP_RETRY_CNT => retry_cnt = retry_cnt,
            ib_qp_attr_mask_IB_QP_RNR_RETRY => rnr_retry = rnr_retry,
        );
        // SAFETY: As above, for each field that the mask names.
        unsafe {
            if has(bindings::ib_qp_attr_mask_IB_QP_STATE) {
                attr.state = State::from_raw((*raw).qp_state)?;
            }
            if has(bindings::ib_qp_attr_mask_IB_QP_CUR_STATE) {
                attr.cur_state = State::from_raw((*raw).cur_qp_state)?;
            }
            if has(bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS) {
                attr.access = (*raw).qp_access_flags as u32;
            }
            if has(bindings::ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY) {
                attr.en_sqd_async_notify = (*raw).en_sqd_async_notify != 0;
            }
            if has(bindings::ib_qp_attr_mask_IB_QP_CAP) {
                attr.cap = Cap::from_raw(&(*raw).cap);
            }
            if has(bindings::ib_qp_attr_mask_IB_QP_AV) {
                attr.address = Some(Address::from_raw(&(*raw).ah_attr)?);
            }
            if has(bindings::ib_qp_attr_mask_IB_QP_ALT_PATH) {
                attr.alt_address = Some(Address::from_raw(&(*raw).alt_ah_attr)?);
            }
        }
        Ok(attr)
    }

    pub(super) fn to_raw(&self, raw: &mut bindings::ib_qp_attr) {
        raw.qp_state = self.state as u32;
        raw.cur_qp_state = self.cur_state as u32;
        raw.path_mtu = self.path_mtu;
        raw.path_mig_state = self.path_mig_state;
        raw.qkey = self.qkey;
        raw.rq_psn = self.rq_psn;
        raw.sq_psn = self.sq_psn;
        raw.dest_qp_num = self.dest_qp_num;
        raw.qp_access_flags = self.access as c_int;
        self.cap.to_raw(&mut raw.cap);
        if let Some(address) = &self.address {
            address.to_raw(&mut raw.ah_attr);
        }
        if let Some(address) = &self.alt_address {
            address.to_raw(&mut raw.alt_ah_attr);
        }
        raw.alt_pkey_index = self.alt_pkey_index;
        raw.alt_port_num = self.alt_port;
        raw.alt_timeout = self.alt_timeout;
        raw.pkey_index = self.pkey_index;
        raw.en_sqd_async_notify = self.en_sqd_async_notify.into();
        raw.sq_draining = self.sq_draining.into();
        raw.max_rd_atomic = self.max_rd_atomic;
        raw.max_dest_rd_atomic = self.max_dest_rd_atomic;
        raw.min_rnr_timer = self.min_rnr_timer;
        raw.port_num = self.port;
        raw.timeout = self.timeout;
        raw.retry_cnt = self.retry_cnt;
        raw.rnr_retry = self.rnr_retry;
    }
}
