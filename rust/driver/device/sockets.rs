// SPDX-License-Identifier: GPL-2.0

//! The UDP sockets of network namespaces: all devices and addresses in a namespace share them.

use crate::storage::{
    append,
    take, //
};
use kernel::{
    alloc::flags::__GFP_NOWARN,
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
    /// Opens the sockets of the namespace, or counts one more user. After an error there may be sockets that nobody
    /// uses: the caller has them closed. Context: process, may sleep; RTNL may be held.
    pub(super) fn enter(&mut self, net: &net::Net) -> Result<net::Sender> {
        if !self.0.iter().any(|sockets| sockets.net == *net) {
            let port = Arc::new(Port { netns: net.clone() }, GFP_KERNEL)?;
            let sockets = NamespaceSockets {
                listener: net::Listener::bind(net, ROCE_PORT, port)?,
                net: net.clone(),
                users: 0,
            };
            append(&mut self.0, sockets)?;
        }
        let mut all = self.0.iter_mut();
        let sockets = all.find(|sockets| sockets.net == *net).ok_or(ENODEV)?;
        sockets.listener.listen()?;
        sockets.users = sockets.users.checked_add(1).ok_or(EBUSY)?;
        Ok(sockets.listener.sender())
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

    /// Takes all sockets off that nobody uses. Others can have the port. The caller drops them, and waits for their receivers.
    /// Errors: `ENOMEM`; none is taken then.
    pub(super) fn take_unused(&mut self) -> Result<KVec<net::Listener<Port>>> {
        let unused = self.0.iter().filter(|sockets| sockets.users == 0);
        let count = unused.fold(0usize, |count, _| count.saturating_add(1));
        let mut unused = KVec::with_capacity(count, GFP_KERNEL | __GFP_NOWARN)?;
        for index in (0..self.0.len()).rev() {
            if self.0.get(index).is_some_and(|sockets| sockets.users > 0) {
                continue;
            }
            if let Some(mut sockets) = take(&mut self.0, index) {
                sockets.listener.close();
                let _ = unused.push_within_capacity(sockets.listener);
            }
        }
        Ok(unused)
    }
}
