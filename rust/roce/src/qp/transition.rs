// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Which attributes a change of a QP's state needs, and which it takes (IBTA 10.3.1, 11.2.5.2,
//! table 96), as data.
//!
//! A QP may go to [`State::Reset`] from every state, and to [`State::Err`] from every state but
//! Reset, with no attribute at all. Nothing leads to [`State::Sqe`]: only an error does.
//!
//! These are the rules of `ib_modify_qp_is_ok()` in the Linux RDMA core, which consumers know. The
//! specification differs in two cells, neither of which matters to a QP: it allows Reset to Err, and
//! it does not let an RC or XRC QP leave Sqe for Rts, where none can be. One attribute is taken beyond
//! those rules; a comment in the table says which.

use super::{
    AttrMask,
    State,
    Type, //
};

/// What one transition asks for. [`AttrMask::STATE`] is in neither set: it is always allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Attributes that must be given.
    pub required: AttrMask,
    /// Attributes that may be given.
    pub optional: AttrMask,
}

/// Why a QP may not be modified in this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransitionError {
    /// There is no way from this state to that for a QP of this type.
    NotAllowed,
    /// These required attributes are missing.
    Missing(AttrMask),
    /// These attributes may not be given here.
    Unexpected(AttrMask),
}

/// A row of the table.
struct Row {
    from: State,
    to: State,
    ty: Type,
    transition: Transition,
}

const fn row(from: State, to: State, ty: Type, required: AttrMask, optional: AttrMask) -> Row {
    let transition = Transition { required, optional };
    Row {
        from,
        to,
        ty,
        transition,
    }
}

/// Builds an [`AttrMask`] constant from names.
macro_rules! attrs {
    ($($name:ident)*) => {
        AttrMask::NONE$(.union(AttrMask::$name))*
    };
}

/// Builds the table from lines `From -> To, Type: required; optional`.
macro_rules! table {
    ($($from:ident -> $to:ident, $ty:ident: [$($required:ident)*] [$($optional:ident)*];)*) => {
        &[$(row(
            State::$from,
            State::$to,
            Type::$ty,
            attrs!($($required)*),
            attrs!($($optional)*),
        ),)*]
    };
}

#[rustfmt::skip]
static TABLE: &[Row] = table! {
    Reset -> Init, Rc:  [PKEY_INDEX PORT ACCESS_FLAGS] [];
    Reset -> Init, Uc:  [PKEY_INDEX PORT ACCESS_FLAGS] [];
    Reset -> Init, Ud:  [PKEY_INDEX PORT QKEY] [];
    Reset -> Init, Gsi: [PKEY_INDEX QKEY] [];
    Reset -> Init, RawPacket: [PORT] [];
    Reset -> Init, XrcInitiator: [PKEY_INDEX PORT ACCESS_FLAGS] [];
    Reset -> Init, XrcTarget:    [PKEY_INDEX PORT ACCESS_FLAGS] [];

    Init -> Init, Rc:  [] [PKEY_INDEX PORT ACCESS_FLAGS];
    Init -> Init, Uc:  [] [PKEY_INDEX PORT ACCESS_FLAGS];
    Init -> Init, Ud:  [] [PKEY_INDEX PORT QKEY];
    Init -> Init, Gsi: [] [PKEY_INDEX QKEY];
    Init -> Init, RawPacket: [] [];
    Init -> Init, XrcInitiator: [] [PKEY_INDEX PORT ACCESS_FLAGS];
    Init -> Init, XrcTarget:    [] [PKEY_INDEX PORT ACCESS_FLAGS];

    Init -> Rtr, Rc:  [AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER]
                      [ALT_PATH ACCESS_FLAGS PKEY_INDEX];
    Init -> Rtr, Uc:  [AV PATH_MTU DEST_QPN RQ_PSN] [ALT_PATH ACCESS_FLAGS PKEY_INDEX];
    Init -> Rtr, Ud:  [] [PKEY_INDEX QKEY];
    Init -> Rtr, Gsi: [] [PKEY_INDEX QKEY];
    Init -> Rtr, RawPacket: [] [];
    Init -> Rtr, XrcInitiator: [AV PATH_MTU DEST_QPN RQ_PSN] [ALT_PATH ACCESS_FLAGS PKEY_INDEX];
    Init -> Rtr, XrcTarget:    [AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER]
                               [ALT_PATH ACCESS_FLAGS PKEY_INDEX];

    Rtr -> Rts, Rc:  [TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC]
                     [CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE];
    Rtr -> Rts, Uc:  [SQ_PSN] [CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE];
    Rtr -> Rts, Ud:  [SQ_PSN] [CUR_STATE QKEY];
    Rtr -> Rts, Gsi: [SQ_PSN] [CUR_STATE QKEY];
    Rtr -> Rts, RawPacket: [] [];
    Rtr -> Rts, XrcInitiator: [TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC]
                              [CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE];
    Rtr -> Rts, XrcTarget:    [TIMEOUT SQ_PSN]
                              [CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE];

    Rts -> Rts, Rc:  [] [CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE];
    Rts -> Rts, Uc:  [] [CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE];
    Rts -> Rts, Ud:  [] [CUR_STATE QKEY];
    Rts -> Rts, Gsi: [] [CUR_STATE QKEY];
    Rts -> Rts, RawPacket: [] [];
    Rts -> Rts, XrcInitiator: [] [CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE];
    Rts -> Rts, XrcTarget:    [] [CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE];

    Rts -> Sqd, Rc:  [] [EN_SQD_ASYNC_NOTIFY];
    Rts -> Sqd, Uc:  [] [EN_SQD_ASYNC_NOTIFY];
    Rts -> Sqd, Ud:  [] [EN_SQD_ASYNC_NOTIFY];
    Rts -> Sqd, Gsi: [] [EN_SQD_ASYNC_NOTIFY];
    Rts -> Sqd, RawPacket: [] [];
    Rts -> Sqd, XrcInitiator: [] [EN_SQD_ASYNC_NOTIFY];
    Rts -> Sqd, XrcTarget:    [] [EN_SQD_ASYNC_NOTIFY];

    Sqd -> Rts, Rc:  [] [CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE];
    Sqd -> Rts, Uc:  [] [CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE];
    Sqd -> Rts, Ud:  [] [CUR_STATE QKEY];
    Sqd -> Rts, Gsi: [] [CUR_STATE QKEY];
    Sqd -> Rts, RawPacket: [] [];
    Sqd -> Rts, XrcInitiator: [] [CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE];
    Sqd -> Rts, XrcTarget:    [] [CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE];

    Sqd -> Sqd, Rc:  [] [PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC
                         ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE];
    // PORT comes with AV: `uverbs` adds it. The kernel's own table does not have it here.
    Sqd -> Sqd, Uc:  [] [PORT AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE];
    Sqd -> Sqd, Ud:  [] [PKEY_INDEX QKEY];
    Sqd -> Sqd, Gsi: [] [PKEY_INDEX QKEY];
    Sqd -> Sqd, RawPacket: [] [];
    Sqd -> Sqd, XrcInitiator: [] [PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC
                                  ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE];
    Sqd -> Sqd, XrcTarget:    [] [PORT AV TIMEOUT MAX_DEST_RD_ATOMIC
                                  ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE];

    Sqe -> Rts, Rc:  [] [];
    Sqe -> Rts, Uc:  [] [CUR_STATE ACCESS_FLAGS];
    Sqe -> Rts, Ud:  [] [CUR_STATE QKEY];
    Sqe -> Rts, Gsi: [] [CUR_STATE QKEY];
    Sqe -> Rts, RawPacket: [] [];
    Sqe -> Rts, XrcInitiator: [] [];
    Sqe -> Rts, XrcTarget:    [] [];
};

/// The transition to Reset or Err.
static UNCONDITIONAL: Transition = Transition {
    required: AttrMask::NONE,
    optional: AttrMask::NONE,
};

/// What the transition of a QP of type `ty` asks for, or `None` if there is no such transition.
#[inline]
pub fn transition(from: State, to: State, ty: Type) -> Option<&'static Transition> {
    match (from, to) {
        (State::Reset, State::Err) => return None,
        (_, State::Reset | State::Err) => return Some(&UNCONDITIONAL),
        _ => {}
    }
    TABLE
        .iter()
        .find(|row| row.from == from && row.to == to && row.ty == ty)
        .map(|row| &row.transition)
}

/// Whether a QP of type `ty` may go from `from` to `to` when the attributes `mask` are given.
pub fn check(from: State, to: State, ty: Type, mask: AttrMask) -> Result<(), TransitionError> {
    let transition = transition(from, to, ty).ok_or(TransitionError::NotAllowed)?;

    let missing = transition.required.without(mask);
    if !missing.is_empty() {
        return Err(TransitionError::Missing(missing));
    }

    let allowed = transition.required | transition.optional | AttrMask::STATE;
    let unexpected = mask.without(allowed);
    if !unexpected.is_empty() {
        return Err(TransitionError::Unexpected(unexpected));
    }

    Ok(())
}
