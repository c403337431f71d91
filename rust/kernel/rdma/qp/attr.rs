// SPDX-License-Identifier: GPL-2.0

//! Attributes of queue pairs.

use super::{
    Cap,
    State,
    Type, //
};
use crate::ah::Address;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// A queue pair whose attributes can be changed and read.
pub trait Modify: Sized + Send + Sync + 'static {
    /// Changes state and attributes (IBTA 11.2.5.2).
    ///
    /// Errors: `EINVAL` for a transition or an attribute that the state machine does not know, for a value
    /// out of range, and while the send queue drains; `ENOMEM`; those of looking up the route to an address. Nothing
    /// is changed then. `EINVAL` also if the QP fails meanwhile: it is in error then, and attributes may have changed.
    /// Context: process, may sleep.
    fn modify(self: &Arc<Self>, attr: &Attr, mask: AttrMask) -> Result;

    /// Returns all attributes: what was set, and for what was not the value that it is used with.
    /// Context: process, may sleep.
    fn query(self: &Arc<Self>) -> Attr;
}

/// A set of attributes (`enum ib_qp_attr_mask`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AttrMask(u32);

macro_rules! attrs {
    ($($name:ident = $bit:ident;)*) => {
        #[expect(missing_docs)]
        impl AttrMask {
            $(pub const $name: Self = Self(bindings::$bit);)*
        }
    };
}

attrs! {
    STATE = ib_qp_attr_mask_IB_QP_STATE;
    CUR_STATE = ib_qp_attr_mask_IB_QP_CUR_STATE;
    EN_SQD_ASYNC_NOTIFY = ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY;
    ACCESS_FLAGS = ib_qp_attr_mask_IB_QP_ACCESS_FLAGS;
    PKEY_INDEX = ib_qp_attr_mask_IB_QP_PKEY_INDEX;
    PORT = ib_qp_attr_mask_IB_QP_PORT;
    QKEY = ib_qp_attr_mask_IB_QP_QKEY;
    AV = ib_qp_attr_mask_IB_QP_AV;
    PATH_MTU = ib_qp_attr_mask_IB_QP_PATH_MTU;
    TIMEOUT = ib_qp_attr_mask_IB_QP_TIMEOUT;
    RETRY_CNT = ib_qp_attr_mask_IB_QP_RETRY_CNT;
    RNR_RETRY = ib_qp_attr_mask_IB_QP_RNR_RETRY;
    RQ_PSN = ib_qp_attr_mask_IB_QP_RQ_PSN;
    MAX_QP_RD_ATOMIC = ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC;
    ALT_PATH = ib_qp_attr_mask_IB_QP_ALT_PATH;
    MIN_RNR_TIMER = ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER;
    SQ_PSN = ib_qp_attr_mask_IB_QP_SQ_PSN;
    MAX_DEST_RD_ATOMIC = ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC;
    PATH_MIG_STATE = ib_qp_attr_mask_IB_QP_PATH_MIG_STATE;
    CAP = ib_qp_attr_mask_IB_QP_CAP;
    DEST_QPN = ib_qp_attr_mask_IB_QP_DEST_QPN;
}

impl AttrMask {
    /// The set with the bits of `bits`.
    pub(super) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Whether all of `other` is in the set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The attributes of this set that are not in `other`.
    #[inline]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether a QP, whose type has the number `ty` (`enum ib_qp_type`), may go from one state to another when these
    /// attributes are given (IBTA 10.3.1, 11.2.5.2).
    pub fn allow(self, ty: u32, from: State, to: State) -> bool {
        Type::from_raw(ty).is_some_and(|ty| {
            // SAFETY: The function looks into tables. The numbers are of the enumerations that those are for.
            unsafe { bindings::ib_modify_qp_is_ok(from as u32, to as u32, ty as u32, self.0) }
        })
    }
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
    pub(super) unsafe fn from_raw(
        raw: *const bindings::ib_qp_attr,
        mask: AttrMask,
    ) -> Result<Self> {
        let has = |attr| mask.contains(attr);
        let mut attr = Self::default();
        macro_rules! read {
            ($($bit:ident => $to:ident = $from:ident,)*) => {
                $(if has(AttrMask::$bit) {
                    // SAFETY: The mask names the field, so it is initialised.
                    attr.$to = unsafe { (*raw).$from };
                })*
            };
        }
        read!(
            PATH_MTU => path_mtu = path_mtu,
            PATH_MIG_STATE => path_mig_state = path_mig_state,
            QKEY => qkey = qkey,
            RQ_PSN => rq_psn = rq_psn,
            SQ_PSN => sq_psn = sq_psn,
            DEST_QPN => dest_qp_num = dest_qp_num,
            PKEY_INDEX => pkey_index = pkey_index,
            MAX_QP_RD_ATOMIC => max_rd_atomic = max_rd_atomic,
            MAX_DEST_RD_ATOMIC => max_dest_rd_atomic = max_dest_rd_atomic,
            MIN_RNR_TIMER => min_rnr_timer = min_rnr_timer,
            PORT => port = port_num,
            ALT_PATH => alt_pkey_index = alt_pkey_index,
            ALT_PATH => alt_port = alt_port_num,
            ALT_PATH => alt_timeout = alt_timeout,
            TIMEOUT => timeout = timeout,
            RETRY_CNT => retry_cnt = retry_cnt,
            RNR_RETRY => rnr_retry = rnr_retry,
        );
        // A number has 24 bits. `uverbs` passes on whatever a process writes.
        attr.dest_qp_num &= 0x00ff_ffff;
        // SAFETY: As above, for each field that the mask names.
        unsafe {
            if has(AttrMask::STATE) {
                attr.state = State::from_raw((*raw).qp_state)?;
            }
            if has(AttrMask::CUR_STATE) {
                attr.cur_state = State::from_raw((*raw).cur_qp_state)?;
            }
            if has(AttrMask::ACCESS_FLAGS) {
                attr.access = (*raw).qp_access_flags as u32;
            }
            if has(AttrMask::EN_SQD_ASYNC_NOTIFY) {
                attr.en_sqd_async_notify = (*raw).en_sqd_async_notify != 0;
            }
            if has(AttrMask::CAP) {
                attr.cap = Cap::from_raw(&(*raw).cap);
            }
            if has(AttrMask::AV) {
                attr.address = Some(Address::from_raw(&(*raw).ah_attr)?);
            }
            if has(AttrMask::ALT_PATH) {
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
