// SPDX-License-Identifier: GPL-2.0

//! Advice of a process on the use of its memory (`ibv_advise_mr(3)`).

use crate::{
    error::not_supported,
    pd, //
};
use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// Advice of a process on the use of memory (`ib_uverbs_advise_mr_advice`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It will be read.
    Read,
    /// It will be written to.
    Write,
    /// It will be accessed, as far as it is there.
    IfPresent,
}

/// A range of a region that an advice is about.
#[derive(Clone, Copy, Debug)]
pub struct Advised {
    /// The region's local key.
    pub key: u32,
    /// The first address, of the region's.
    pub start: u64,
    /// Bytes.
    pub len: u64,
}

/// The ranges that an advice is about.
#[derive(Clone)]
pub struct AdvisedRanges<'a>(core::slice::Iter<'a, bindings::ib_sge>);

impl Iterator for AdvisedRanges<'_> {
    type Item = Advised;

    fn next(&mut self) -> Option<Advised> {
        self.0.next().map(|sge| Advised {
            key: sge.lkey,
            start: sge.addr,
            len: u64::from(sge.length),
        })
    }
}

/// A protection domain in which processes say what they will do with their memory.
pub trait Advise: Sized + Send + Sync + 'static {
    /// Prepares for what will be done with regions that are paged on demand, before it returns if `flush`. Nothing is done
    /// if one of the ranges is refused.
    ///
    /// Errors: as [`ibv_advise_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_advise_mr.3.html) has them.
    /// Context: process; with `flush` it may sleep for as long as the server of the process's page faults likes.
    fn advise(self: &Arc<Self>, advice: Advice, flush: bool, ranges: AdvisedRanges<'_>) -> Result;
}

/// `advise_mr`. Process context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn advise<P: Advise>(
    pd: *mut bindings::ib_pd,
    advice: bindings::ib_uverbs_advise_mr_advice,
    flags: u32,
    list: *mut bindings::ib_sge,
    count: u32,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    from_result(|| {
        let advice = match advice {
            bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH => {
                Advice::Read
            }
            bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE => {
                Advice::Write
            }
            bindings::ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => {
                Advice::IfPresent
            }
            _ => return Err(not_supported()),
        };
        let flush = bindings::ib_uverbs_advise_mr_flag_IB_UVERBS_ADVISE_MR_FLAG_FLUSH;
        if flags & !flush != 0 {
            return Err(EINVAL);
        }
        if list.is_null() || count == 0 {
            return Ok(0);
        }
        // SAFETY: `ib_core` passes a protection domain, and a copy of the list of the one who advises,
        // which is not empty and stays as it is during the call.
        let (pd, list) = unsafe {
            let list = core::slice::from_raw_parts(list.cast_const(), count as usize);
            (pd::Obj::<P>::get(pd), list)
        };
        let ranges = AdvisedRanges(list.iter());
        pd.advise(advice, flags & flush != 0, ranges)?;
        Ok(0)
    })
}
