// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Queue pairs: their types, their path MTU, and the migration of their paths.

pub mod migration;
pub mod mtu;

pub use self::{
    migration::{
        Migration,
        MigrationState, //
    },
    mtu::Mtu, //
};

/// The type of a queue pair. The numbers are those of `enum ib_qp_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Type {
    /// General services: QP 1, an unreliable datagram QP with rules of its own.
    Gsi = 1,
    /// Reliable connection.
    Rc = 2,
    /// Unreliable connection.
    Uc = 3,
    /// Unreliable datagram.
    Ud = 4,
    /// Raw packets: whole frames of the link, for which no transport stands behind the QP.
    RawPacket = 8,
    /// Extended reliable connection, the end that sends requests (annex A14).
    XrcInitiator = 9,
    /// Extended reliable connection, the end that executes them.
    XrcTarget = 10,
}

impl Type {
    /// Every type, in ascending order of number.
    pub const ALL: [Self; 7] = [
        Self::Gsi,
        Self::Rc,
        Self::Uc,
        Self::Ud,
        Self::RawPacket,
        Self::XrcInitiator,
        Self::XrcTarget,
    ];

    /// Whether a QP of this type has one peer.
    #[inline]
    pub const fn is_connected(self) -> bool {
        self.is_reliable() || matches!(self, Self::Uc)
    }

    /// Whether requests are answered, and sent again if they are not.
    #[inline]
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::XrcInitiator | Self::XrcTarget)
    }
}

impl TryFrom<u32> for Type {
    type Error = ();

    #[inline]
    fn try_from(number: u32) -> Result<Self, ()> {
        Self::ALL
            .into_iter()
            .find(|ty| *ty as u32 == number)
            .ok_or(())
    }
}
