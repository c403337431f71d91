// SPDX-License-Identifier: GPL-2.0

//! The memory that a work request names: its scatter/gather list, private to the kernel.

use crate::{
    mr::{
        self,
        Access,
        Fault,
        MrAccess, //
    },
    pd::Pd,
    user_wqe::Sge, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use net::RxSkb;
use rdma::memory::KernelBuffer;

/// One piece of a work request's memory.
#[derive(Clone, Copy)]
pub(crate) enum Buffer {
    /// A range of a memory region, checked at each use.
    Keyed(Sge),
    /// Memory that a kernel consumer vouches for, by the reserved local key.
    Kernel(KernelBuffer),
}

impl Default for Buffer {
    fn default() -> Self {
        Self::Keyed(Sge::default())
    }
}

impl Buffer {
    /// A kernel consumer's scatter/gather element.
    pub(crate) fn from_kernel(sge: &rdma::wr::Sge) -> Self {
        match sge.buffer() {
            Some(buffer) => Self::Kernel(buffer),
            None => Self::Keyed(Sge {
                addr: sge.addr(),
                length: sge.length,
                lkey: sge.lkey,
            }),
        }
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Keyed(sge) => u64::from(sge.length),
            Self::Kernel(buffer) => buffer.len() as u64,
        }
    }
}

/// Bytes of all of `buffers`, or [`None`] if they are more than a message may have (2^31, IBTA
/// 9.3.1).
pub(crate) fn total_len(buffers: &[Buffer]) -> Option<u32> {
    let mut sum: u64 = 0;
    for buffer in buffers {
        sum = sum.wrapping_add(buffer.len());
        if sum > 1 << 31 {
            return None;
        }
    }
    u32::try_from(sum).ok()
}

/// Memory that is ready to be copied from or into.
enum Open {
    Keyed(MrAccess),
    Kernel(KernelBuffer),
}

/// A cursor over a scatter/gather list.
///
/// The key of each element is checked when the cursor enters it, over the element's whole range,
/// and the region stays alive while the cursor stands in it. So a cursor is short-lived: a lock is
/// held, or a packet is in work.
pub(crate) struct Cursor<'a> {
    pd: &'a Arc<Pd>,
    buffers: &'a [Buffer],
    need: Access,
    /// Where the open element starts within the list, in bytes.
    base: u64,
    index: usize,
    open: Option<Open>,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `buffers`, for accesses that need `need`.
    pub(crate) fn new(pd: &'a Arc<Pd>, buffers: &'a [Buffer], need: Access) -> Self {
        Self {
            pd,
            buffers,
            need,
            base: 0,
            index: 0,
            open: None,
        }
    }

    /// Fills `out` from the list, starting `offset` bytes into it.
    pub(crate) fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        let mut rest = out;
        let mut offset = offset;
        while !rest.is_empty() {
            let (within, available) = self.seek(offset)?;
            let n = rest
                .len()
                .min(usize::try_from(available).unwrap_or(usize::MAX));
            let Some((now, later)) = rest.split_at_mut_checked(n) else {
                return Err(Fault::Protection);
            };
            match &self.open {
                Some(Open::Keyed(access)) => access.read(within, now)?,
                Some(Open::Kernel(buffer)) => buffer
                    .read(within as usize, now)
                    .or(Err(Fault::Protection))?,
                None => return Err(Fault::Protection),
            }
            offset = offset.wrapping_add(n as u64);
            rest = later;
        }
        Ok(())
    }

    /// Writes `data` into the list, starting `offset` bytes into it.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let mut rest = data;
        let mut offset = offset;
        while !rest.is_empty() {
            let (within, available) = self.seek(offset)?;
            let n = rest
                .len()
                .min(usize::try_from(available).unwrap_or(usize::MAX));
            let Some((now, later)) = rest.split_at_checked(n) else {
                return Err(Fault::Protection);
            };
            match &self.open {
                Some(Open::Keyed(access)) => access.write(within, now)?,
                Some(Open::Kernel(buffer)) => buffer
                    .write(within as usize, now)
                    .or(Err(Fault::Protection))?,
                None => return Err(Fault::Protection),
            }
            offset = offset.wrapping_add(n as u64);
            rest = later;
        }
        Ok(())
    }

    /// Writes `len` bytes of a datagram, from `from` bytes into its UDP payload, into the list,
    /// starting `offset` bytes into it.
    pub(crate) fn write_datagram(
        &mut self,
        offset: u64,
        skb: &RxSkb,
        from: usize,
        len: usize,
    ) -> Result<(), Fault> {
        let mut offset = offset;
        let mut from = from;
        let mut rest = len;
        while rest > 0 {
            let (within, available) = self.seek(offset)?;
            let n = rest.min(usize::try_from(available).unwrap_or(usize::MAX));
            let mut at = within;
            for piece in skb.pieces(from, n) {
                match &self.open {
                    Some(Open::Keyed(access)) => access.write_piece(at, &piece)?,
                    Some(Open::Kernel(buffer)) => buffer
                        .write_piece(at as usize, &piece)
                        .or(Err(Fault::Protection))?,
                    None => return Err(Fault::Protection),
                }
                at = at.wrapping_add(piece.len() as u64);
            }
            offset = offset.wrapping_add(n as u64);
            from = from.wrapping_add(n);
            rest = rest.saturating_sub(n);
        }
        Ok(())
    }

    /// Opens the element that holds byte `offset` of the list. Returns the position within it and
    /// how many bytes it has from there, at least 1.
    fn seek(&mut self, offset: u64) -> Result<(u64, u64), Fault> {
        if offset < self.base {
            self.base = 0;
            self.index = 0;
            self.open = None;
        }
        loop {
            let buffer = self.buffers.get(self.index).ok_or(Fault::Protection)?;
            let len = buffer.len();
            let within = offset.wrapping_sub(self.base);
            if within < len {
                if self.open.is_none() {
                    self.open = Some(match buffer {
                        Buffer::Keyed(sge) => {
                            Open::Keyed(mr::access(self.pd, sge.lkey, sge.addr, len, self.need)?)
                        }
                        Buffer::Kernel(buffer) => Open::Kernel(*buffer),
                    });
                }
                return Ok((within, len.wrapping_sub(within)));
            }
            self.open = None;
            self.base = self.base.wrapping_add(len);
            self.index = self.index.wrapping_add(1);
        }
    }
}
