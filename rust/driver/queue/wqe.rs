// SPDX-License-Identifier: GPL-2.0

//! Private copies of work requests: what the shared rings said once, out of reach of the process.

use crate::{
    memory::{
        buffer::{
            total_len,
            Buffer,
            Sge, //
        },
        key::Mr, //
    },
    packet::ah::Ah,
    queue::{
        operation::{
            self,
            Local,
            SendWqe, //
        },
        ring::RequestRing,
        user_wqe::{
            RecvHeader,
            SendHeader, //
        },
    },
    storage::{
        filled,
        Bytes, //
    }, //
};
use core::ops::Range;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    qp::Cap,
    wc::Opcode,
    wr::flags, //
};
use roce::{
    qp::Type,
    requester::{
        SendOperation,
        SendWr, //
    },
    responder::Receive, //
};

/// The private copies of a send queue: one slot for each ring slot.
pub(crate) struct SendWqes {
    heads: KVVec<Option<SendWqe>>,
    buffers: KVVec<Buffer>,
    inline: Bytes,
    max_sge: usize,
    max_inline: usize,
}

impl SendWqes {
    /// Allocates `slots` empty slots. Context: process, may sleep.
    pub(crate) fn new(slots: u32, cap: &Cap) -> Result<Self> {
        let slots = slots as usize;
        let max_sge = cap.max_send_sge as usize;
        let max_inline = cap.max_inline_data as usize;
        Ok(Self {
            heads: filled(slots, || Ok(None))?,
            buffers: filled(slots.checked_mul(max_sge).ok_or(EINVAL)?, || {
                Ok(Buffer::default())
            })?,
            inline: Bytes::zeroes(slots.checked_mul(max_inline).ok_or(EINVAL)?)?,
            max_sge,
            max_inline,
        })
    }

    fn index(&self, sequence: u32) -> usize {
        (sequence as usize)
            .checked_rem(self.heads.len())
            .unwrap_or(0)
    }

    /// The WQE of work request `sequence`.
    pub(crate) fn head(&self, sequence: u32) -> Option<&SendWqe> {
        self.heads.get(self.index(sequence))?.as_ref()
    }

    /// The scatter/gather list of work request `sequence`.
    #[inline]
    pub(crate) fn buffers(&self, sequence: u32) -> &[Buffer] {
        let len = self.head(sequence).map_or(0, |head| head.buffers);
        let list = part(self.index(sequence), self.max_sge, len);
        self.buffers.get(list).unwrap_or(&[])
    }

    /// The inline data of work request `sequence`, if it has some.
    #[inline]
    pub(crate) fn inline(&self, sequence: u32) -> Option<&[u8]> {
        let head = self.head(sequence)?;
        if let Some(word) = &head.word {
            return Some(word);
        }
        self.inline
            .get(part(self.index(sequence), self.max_inline, head.inline?))
    }

    /// Empties the slot of work request `sequence`. Returns its cookie and opcode.
    pub(crate) fn release(&mut self, sequence: u32) -> Option<(u64, Opcode)> {
        let index = self.index(sequence);
        let head = self.heads.get_mut(index)?;
        let released = head.as_ref().map(|wqe| (wqe.wr_id, wqe.opcode));
        *head = None;
        released
    }

    /// Empties every slot.
    pub(crate) fn clear(&mut self) {
        for head in self.heads.iter_mut() {
            *head = None;
        }
    }

    /// Fetches a WQE that librxe wrote, from its private copy `bytes`.
    ///
    /// A WQE that makes no sense never is an error of the queue: the request is marked as refused and
    /// completes with an error in its turn.
    #[inline]
    pub(crate) fn take_user(
        &mut self,
        sequence: u32,
        ty: Type,
        bytes: &[u8],
        find_ah: impl FnOnce(u32) -> Option<Arc<Ah>>,
    ) -> Option<SendWr> {
        let (header, data) = SendHeader::parse(bytes)?;
        let mut wqe = SendWqe::new(header.wr_id);
        let mut wr = operation::request(header.flags);

        wqe.refused = operation::of_user(&header, ty, &mut wqe, &mut wr, find_ah)
            .and_then(|()| self.read_data(sequence, &header, data, &mut wqe, &mut wr))
            .is_none();
        let index = self.index(sequence);
        *self.heads.get_mut(index)? = Some(wqe);
        Some(wr)
    }

    fn read_data(
        &mut self,
        sequence: u32,
        header: &SendHeader,
        mut data: &[u8],
        wqe: &mut SendWqe,
        wr: &mut SendWr,
    ) -> Option<()> {
        let is_frame = match wqe.local {
            None => false,
            Some(Local::Frame) => true,
            Some(_) => return Some(()),
        };
        // Neither has a list, whatever the flags say.
        match wr.operation {
            SendOperation::AtomicWrite => {
                wqe.word = Some(*data.first_chunk()?);
                wr.length = 8;
                return Some(());
            }
            SendOperation::Flush => {
                wr.length = header.dma.length;
                return Some(());
            }
            _ => {}
        }
        let index = self.index(sequence);
        // The provider leaves `num_sge` at either value for inline data: the flag decides.
        let carries =
            is_frame || matches!(wr.operation, SendOperation::Send | SendOperation::Write);
        if header.flags & flags::INLINE != 0 {
            let len = header.dma.length as usize;
            if !carries || len > self.max_inline {
                return None;
            }
            self.inline
                .get_mut(part(index, self.max_inline, len))?
                .copy_from_slice(data.get(..len)?);
            wqe.inline = Some(len);
            wr.length = header.dma.length;
            return Some(());
        }
        let count = header.dma.num_sge as usize;
        if count > self.max_sge {
            return None;
        }
        let slots = self.buffers.get_mut(part(index, self.max_sge, count))?;
        for slot in slots.iter_mut() {
            *slot = Buffer::Keyed(Sge::take(&mut data)?);
        }
        wqe.buffers = count;
        wr.length = list_len(wr.operation, slots)?;
        Some(())
    }

    /// Fetches a kernel consumer's work request.
    ///
    /// Errors: `EINVAL` if the request does not fit the QP. Context: any.
    pub(crate) fn take_kernel(
        &mut self,
        sequence: u32,
        source: &rdma::wr::SendWr<'_, Ah, Mr>,
    ) -> Result<SendWr> {
        let mut wqe = SendWqe::new(source.wr_id);
        let mut wr = operation::request(source.flags());
        operation::of_kernel(&source.op, &mut wqe, &mut wr)?;

        let index = self.index(sequence);
        let carries = matches!(wr.operation, SendOperation::Send | SendOperation::Write);
        if source.flags() & flags::INLINE != 0 && carries {
            let room = part(index, self.max_inline, self.max_inline);
            let room = self.inline.get_mut(room).ok_or(EINVAL)?;
            let len = source.copy_inline(room)?;
            wqe.inline = Some(len);
            wr.length = u32::try_from(len).or(Err(EINVAL))?;
        } else if wqe.local.is_none() {
            let count = source.sges().size_hint().0;
            if count > self.max_sge {
                return Err(EINVAL);
            }
            let list = part(index, self.max_sge, count);
            let slots = self.buffers.get_mut(list).ok_or(EINVAL)?;
            for (slot, sge) in slots.iter_mut().zip(source.sges()) {
                *slot = Buffer::from_kernel(&sge);
            }
            wqe.buffers = count;
            wr.length = list_len(wr.operation, slots).ok_or(EINVAL)?;
        }
        *self.heads.get_mut(index).ok_or(EINVAL)? = Some(wqe);
        Ok(wr)
    }

    /// Moves the WQE `there` of `from`, a store of the same shape, to `sequence`.
    pub(crate) fn take_from(
        &mut self,
        from: &mut SendWqes,
        there: u32,
        sequence: u32,
    ) -> Option<()> {
        let index = self.index(sequence);
        let from_index = from.index(there);
        let wqe = from.heads.get_mut(from_index)?.take()?;
        if let Some(len) = wqe.inline {
            let source = part(from_index, from.max_inline, len);
            let target = self.inline.get_mut(part(index, self.max_inline, len))?;
            target.copy_from_slice(from.inline.get(source)?);
        }
        let source = part(from_index, from.max_sge, wqe.buffers);
        let list = part(index, self.max_sge, wqe.buffers);
        let target = self.buffers.get_mut(list)?;
        target.copy_from_slice(from.buffers.get(source)?);
        *self.heads.get_mut(index)? = Some(wqe);
        Some(())
    }
}

/// Where the first `len` elements of slot `index` are, if each slot has room for `room` of them.
#[inline]
fn part(index: usize, room: usize, len: usize) -> Range<usize> {
    let start = index.wrapping_mul(room);
    start..start.wrapping_add(len)
}

/// The payload's length; an atomic operation's list must have room for its eight byte result.
fn list_len(operation: SendOperation, buffers: &[Buffer]) -> Option<u32> {
    let len = total_len(buffers);
    match operation {
        SendOperation::CompareSwap | SendOperation::FetchAdd => (len >= 8).then_some(8),
        _ => Some(len),
    }
}

/// The private copy of one receive work request.
pub(crate) struct RecvWqe {
    /// The consumer's cookie.
    pub(crate) wr_id: u64,
    /// Bytes that the list can take.
    pub(crate) capacity: u32,
    buffers: KVVec<Buffer>,
    count: usize,
}

impl RecvWqe {
    /// An empty WQE with room for `max_sge` buffers. Context: process, may sleep.
    pub(crate) fn new(max_sge: u32) -> Result<Self> {
        Ok(Self {
            wr_id: 0,
            capacity: 0,
            buffers: filled(max_sge as usize, || Ok(Buffer::default()))?,
            count: 0,
        })
    }

    /// The scatter list.
    #[inline]
    pub(crate) fn buffers(&self) -> &[Buffer] {
        self.buffers.get(..self.count).unwrap_or(&[])
    }

    /// Fetches the oldest WQE that librxe wrote, whose slot stays the kernel's.
    #[inline]
    pub(crate) fn receive_user(&mut self, requests: &mut RequestRing) -> Receive {
        if requests.available() == 0 {
            return Receive::Empty;
        }
        match requests.peek(0).map(|bytes| self.take_user(bytes)) {
            Some(Some(())) => Receive::Taken {
                capacity: self.capacity,
            },
            Some(None) => Receive::Malformed,
            None => Receive::Empty,
        }
    }

    /// [`None`] if the WQE makes no sense. `wr_id` is set in any case.
    #[inline]
    fn take_user(&mut self, bytes: &[u8]) -> Option<()> {
        let (header, mut data) = RecvHeader::parse(bytes)?;
        self.wr_id = header.wr_id;
        self.count = 0;
        self.capacity = 0;
        let count = header.dma.num_sge as usize;
        let slots = self.buffers.get_mut(..count)?;
        for slot in slots.iter_mut() {
            *slot = Buffer::Keyed(Sge::take(&mut data)?);
        }
        self.capacity = total_len(slots);
        self.count = count;
        Some(())
    }

    /// Copies a request. [`None`] if there is no room for its list. Context: any.
    pub(crate) fn copy(&mut self, source: &Self) -> Option<()> {
        let slots = self.buffers.get_mut(..source.count)?;
        for (slot, buffer) in slots.iter_mut().zip(source.buffers()) {
            *slot = *buffer;
        }
        self.wr_id = source.wr_id;
        self.capacity = source.capacity;
        self.count = source.count;
        Some(())
    }

    /// Fetches a kernel consumer's work request.
    ///
    /// Errors: `EINVAL` if its list is too long. Context: any.
    pub(crate) fn take_kernel(&mut self, source: &rdma::wr::RecvWr<'_>) -> Result {
        let count = source.sges().size_hint().0;
        let slots = self.buffers.get_mut(..count).ok_or(EINVAL)?;
        for (slot, sge) in slots.iter_mut().zip(source.sges()) {
            *slot = Buffer::from_kernel(&sge);
        }
        self.capacity = total_len(slots);
        self.wr_id = source.wr_id;
        self.count = count;
        Ok(())
    }
}
