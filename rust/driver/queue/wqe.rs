// SPDX-License-Identifier: GPL-2.0

//! Private copies of work requests: what the shared rings said once, out of reach of the process, and what kernel
//! consumers asked for.

use crate::{
    memory::{
        access::Access,
        buffer::{
            total_len,
            Buffer, //
        },
        key::Mr,
        mw, //
    },
    packet::ah::Ah,
    queue::ring::RequestRing,
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
    wc,
    wr::{
        flags,
        SendOp, //
    }, //
};
use roce::{
    requester::{
        SendOperation,
        SendWr, //
    },
    responder::Receive, //
};

/// A work request that the driver carries out itself, without the wire.
#[derive(Clone)]
pub(crate) enum Local {
    /// LOCAL_INV of this key.
    Invalidate(u32),
    /// BIND_MW, by processes only.
    Bind(mw::Bind),
    /// REG_MR, by kernel consumers only.
    Register {
        /// The region.
        mr: Arc<Mr>,
        /// Its new key.
        key: u32,
        /// Its new access flags.
        access: Access,
    },
    /// A SEND of a raw packet QP: the message is a whole frame.
    Frame,
}

/// A send work request, as far as the driver must remember it until it completes.
pub(crate) struct SendWqe {
    /// The consumer's cookie.
    pub(super) wr_id: u64,
    /// The operation, as its completion names it.
    pub(super) opcode: wc::Opcode,
    /// Elements of the scatter/gather list.
    pub(super) buffers: usize,
    /// Bytes of inline data, which then stands for the list.
    pub(super) inline: Option<usize>,
    /// The operand of an ATOMIC WRITE, as in memory; it stands for the list, too.
    pub(super) word: Option<[u8; 8]>,
    /// The destination of a datagram.
    pub(crate) ah: Option<Arc<Ah>>,
    /// The operation, if the request never reaches the wire.
    pub(crate) local: Option<Local>,
    /// The request is one that this QP cannot carry out: it completes with
    /// [`wc::Status::LocQpOp`] when its turn comes.
    pub(crate) refused: bool,
}

impl SendWqe {
    pub(super) fn new(wr_id: u64) -> Self {
        Self {
            wr_id,
            opcode: wc::Opcode::Send,
            buffers: 0,
            inline: None,
            word: None,
            ah: None,
            local: None,
            refused: false,
        }
    }
}

/// A request with nothing but what the flags say.
pub(super) fn request(bits: u32) -> SendWr {
    SendWr {
        fence: bits & flags::FENCE != 0,
        signaled: bits & flags::SIGNALED != 0,
        solicited: bits & flags::SOLICITED != 0,
        ..SendWr::default()
    }
}

/// The private copies of a send queue: one slot for each ring slot.
pub(crate) struct SendWqes {
    heads: KVVec<Option<SendWqe>>,
    buffers: KVVec<Buffer>,
    inline: Bytes,
    max_sge: usize,
    max_inline: usize,
}

/// The room that one send request has.
pub(super) struct Slot<'a> {
    pub(super) head: &'a mut Option<SendWqe>,
    /// For its scatter/gather list.
    pub(super) buffers: &'a mut [Buffer],
    /// For its inline data.
    pub(super) inline: &'a mut [u8],
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

    /// Room for work request `sequence`.
    #[inline]
    pub(super) fn slot(&mut self, sequence: u32) -> Option<Slot<'_>> {
        let index = self.index(sequence);
        let list = part(index, self.max_sge, self.max_sge);
        let inline = part(index, self.max_inline, self.max_inline);
        Some(Slot {
            head: self.heads.get_mut(index)?,
            buffers: self.buffers.get_mut(list)?,
            inline: self.inline.get_mut(inline)?,
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
    pub(crate) fn release(&mut self, sequence: u32) -> Option<(u64, wc::Opcode)> {
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

    /// Fetches a kernel consumer's work request.
    ///
    /// Errors: `EINVAL` if the request does not fit the QP. Context: any.
    pub(crate) fn take_kernel(
        &mut self,
        sequence: u32,
        source: &rdma::wr::SendWr<'_, Ah, Mr>,
    ) -> Result<SendWr> {
        let slot = self.slot(sequence).ok_or(EINVAL)?;
        let mut wqe = SendWqe::new(source.wr_id);
        let mut wr = request(source.flags());
        kernel_operation(&source.op, &mut wqe, &mut wr)?;

        let carries = matches!(wr.operation, SendOperation::Send | SendOperation::Write);
        if source.flags() & flags::INLINE != 0 && carries {
            let len = source.copy_inline(slot.inline)?;
            wqe.inline = Some(len);
            wr.length = u32::try_from(len).or(Err(EINVAL))?;
        } else if wqe.local.is_none() {
            let count = source.sges().size_hint().0;
            let list = slot.buffers.get_mut(..count).ok_or(EINVAL)?;
            for (buffer, sge) in list.iter_mut().zip(source.sges()) {
                *buffer = Buffer::from_kernel(&sge);
            }
            wqe.buffers = count;
            wr.length = list_len(wr.operation, list).ok_or(EINVAL)?;
        }
        *slot.head = Some(wqe);
        Ok(wr)
    }

    /// Moves the WQE `there` of `from`, a store of the same shape, to `sequence`.
    pub(crate) fn take_from(
        &mut self,
        from: &mut SendWqes,
        there: u32,
        sequence: u32,
    ) -> Option<()> {
        let (slot, source) = (self.slot(sequence)?, from.slot(there)?);
        let wqe = source.head.take()?;
        if let Some(len) = wqe.inline {
            let inline = slot.inline.get_mut(..len)?;
            inline.copy_from_slice(source.inline.get(..len)?);
        }
        let list = slot.buffers.get_mut(..wqe.buffers)?;
        list.copy_from_slice(source.buffers.get(..wqe.buffers)?);
        *slot.head = Some(wqe);
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
pub(super) fn list_len(operation: SendOperation, buffers: &[Buffer]) -> Option<u32> {
    let len = total_len(buffers);
    match operation {
        SendOperation::CompareSwap | SendOperation::FetchAdd => (len >= 8).then_some(8),
        _ => Some(len),
    }
}

/// Notes what a kernel consumer asks for. Errors: `EINVAL` if that is nothing that the driver knows.
fn kernel_operation(op: &SendOp<Ah, Mr>, wqe: &mut SendWqe, wr: &mut SendWr) -> Result {
    let mut rdma = |operation, opcode, addr, rkey| {
        wqe.opcode = opcode;
        wr.operation = operation;
        wr.remote_va = addr;
        wr.rkey = rkey;
    };
    match op {
        SendOp::Send => {}
        SendOp::SendImm(imm) => wr.immediate = Some(*imm),
        SendOp::SendInv(key) => wr.invalidate_rkey = Some(*key),
        SendOp::Write { addr, rkey } => {
            rdma(SendOperation::Write, wc::Opcode::RdmaWrite, *addr, *rkey);
        }
        SendOp::WriteImm { addr, rkey, imm } => {
            rdma(SendOperation::Write, wc::Opcode::RdmaWrite, *addr, *rkey);
            wr.immediate = Some(*imm);
        }
        SendOp::Read { addr, rkey } => {
            rdma(SendOperation::Read, wc::Opcode::RdmaRead, *addr, *rkey);
        }
        SendOp::CompSwap {
            addr,
            rkey,
            compare,
            swap,
        } => {
            let (operation, opcode) = (SendOperation::CompareSwap, wc::Opcode::CompSwap);
            rdma(operation, opcode, *addr, *rkey);
            wr.compare = *compare;
            wr.swap_add = *swap;
        }
        SendOp::FetchAdd { addr, rkey, add } => {
            rdma(SendOperation::FetchAdd, wc::Opcode::FetchAdd, *addr, *rkey);
            wr.swap_add = *add;
        }
        SendOp::Datagram {
            ah,
            remote_qpn,
            qkey,
            imm,
            ..
        } => {
            wqe.ah = Some(ah.clone());
            wr.dest_qpn = *remote_qpn;
            wr.qkey = *qkey;
            wr.immediate = *imm;
        }
        SendOp::LocalInv(key) => {
            wqe.opcode = wc::Opcode::LocalInv;
            wqe.local = Some(Local::Invalidate(*key));
            wr.operation = SendOperation::Local;
            // A retransmission of an earlier request must not find its key gone.
            wr.fence = true;
        }
        SendOp::RegMr { mr, key, access } => {
            wqe.opcode = wc::Opcode::RegMr;
            wqe.local = Some(Local::Register {
                mr: mr.clone(),
                key: *key,
                access: Access::from_bits(*access),
            });
            wr.operation = SendOperation::Local;
        }
        SendOp::Unsupported => return Err(EINVAL),
    }
    Ok(())
}

/// The private copy of one receive work request.
pub(crate) struct RecvWqe {
    /// The consumer's cookie.
    pub(crate) wr_id: u64,
    /// Bytes that the list can take.
    pub(crate) capacity: u32,
    pub(super) buffers: KVVec<Buffer>,
    pub(super) count: usize,
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
