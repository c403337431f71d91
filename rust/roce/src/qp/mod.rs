// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Queue pairs: their states, their attributes, and which transition asks for which attributes.

pub mod attr;
pub mod state;
pub mod transition;

pub use self::{
    attr::{
        AttrMask,
        Mtu, //
    },
    state::{
        State,
        Type, //
    },
    transition::{
        check,
        transition,
        Transition,
        TransitionError, //
    }, //
};
