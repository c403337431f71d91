// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Queue pairs: their states, their attributes, which transition asks for which attributes, and the
//! migration of their paths.

pub mod attr;
pub mod migration;
pub mod state;
pub mod transition;

pub use self::{
    attr::{
        AttrMask,
        Mtu, //
    },
    migration::{
        Migration,
        MigrationState, //
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
