// SPDX-License-Identifier: GPL-2.0

//! The UDP sockets of network namespaces: all devices and addresses in a namespace share them.

use crate::storage::{
    append,
    take, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use net::NetId;

/// The UDP port of RoCEv2 (IBTA annex A17.3).
pub(crate) const ROCE_PORT: u16 = 4791;

/// That port of one namespace, as its sockets see it.
pub(crate) struct Port {
    pub(crate) netns: net::Net,
}

/// The sockets of one namespace.
pub(super) struct NamespaceSockets {
    listener: net::Listener<Port>,
    net: net::Net,
    users: u32,
}

/// Those of all namespaces.
#[derive(Default)]
pub(super) struct Sockets(KVec<NamespaceSockets>);

impl Sockets {
    /// Opens the sockets of the namespace, or counts one more user. Context: process, may sleep; RTNL may be held.
    pub(super) fn enter(&mut self, net: &net::Net) -> Result<net::Sender> {
        for sockets in self.0.iter_mut() {
            if sockets.net == *net {
                sockets.users = sockets.users.checked_add(1).ok_or(EBUSY)?;
                return Ok(sockets.listener.sender());
            }
        }
        let port = Port { netns: net.clone() };
        let listener = net::Listener::open(net, ROCE_PORT, Arc::new(port, GFP_KERNEL)?)?;
        let sender = listener.sender();
        append(
            &mut self.0,
            NamespaceSockets {
                listener,
                net: net.clone(),
                users: 1,
            },
        )?;
        Ok(sender)
    }

    /// Counts one user less. Returns whether it was the last one: then the caller has the sockets closed.
    pub(super) fn leave(&mut self, netns: NetId) -> bool {
        let mut sockets = self.0.iter_mut();
        let Some(sockets) = sockets.find(|sockets| sockets.net.id() == netns) else {
            return false;
        };
        sockets.users = sockets.users.saturating_sub(1);
        sockets.users == 0
    }

    /// Takes sockets off that nobody uses. Others can have the port. The caller drops them, and waits for their receivers.
    pub(super) fn take_unused(&mut self) -> Option<NamespaceSockets> {
        let unused = |sockets: &NamespaceSockets| sockets.users == 0;
        let index = self.0.iter().position(unused)?;
        let mut sockets = take(&mut self.0, index)?;
        sockets.listener.close();
        Some(sockets)
    }
}
