// SPDX-License-Identifier: GPL-2.0

//! The operation of a send WQE, from librxe's WQEs and from kernel consumers' WRs.

use crate::{
    memory::{
        access::Access,
        key::Mr,
        mw, //
    },
    packet::ah::Ah,
    queue::user_wqe::{
        self,
        opcode,
        Atomic,
        BindMw,
        Rdma,
        SendHeader,
        Ud, //
    },
    queue::xrcd, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    wc,
    wr::{
        flags,
        SendOp, //
    }, //
};
use roce::{
    packet::Flush,
    qp::Type,
    requester::{
        SendOperation,
        SendWr, //
    }, //
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
    pub(crate) wr_id: u64,
    /// The operation, as its completion names it.
    pub(crate) opcode: wc::Opcode,
    /// Elements of the scatter/gather list.
    pub(crate) buffers: usize,
    /// Bytes of inline data, which then stands for the list.
    pub(crate) inline: Option<usize>,
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

/// Notes what a process asks for with this WQE, of a QP of type `ty`. [`None`] if that makes no sense. The requester refuses
/// operations on the wire that the service lacks.
#[inline]
pub(super) fn of_user(
    header: &SendHeader,
    ty: Type,
    wqe: &mut SendWqe,
    wr: &mut SendWr,
    find_ah: impl FnOnce(u32) -> Option<Arc<Ah>>,
) -> Option<()> {
    let mut rdma = |operation, opcode, addr, rkey| {
        wqe.opcode = opcode;
        wr.operation = operation;
        wr.remote_va = addr;
        wr.rkey = rkey;
    };
    match header.opcode {
        opcode::SEND => {}
        opcode::SEND_WITH_IMM => wr.immediate = Some(header.immediate()),
        opcode::SEND_WITH_INV => wr.invalidate_rkey = Some(header.invalidate_rkey()),
        opcode::RDMA_WRITE | opcode::RDMA_WRITE_WITH_IMM => {
            let Rdma { addr, rkey, .. } = header.operation()?;
            rdma(SendOperation::Write, wc::Opcode::RdmaWrite, addr, rkey);
            if header.opcode == opcode::RDMA_WRITE_WITH_IMM {
                wr.immediate = Some(header.immediate());
            }
        }
        opcode::RDMA_READ => {
            let Rdma { addr, rkey, .. } = header.operation()?;
            rdma(SendOperation::Read, wc::Opcode::RdmaRead, addr, rkey);
        }
        opcode::ATOMIC_CMP_AND_SWP | opcode::ATOMIC_FETCH_AND_ADD => {
            let atomic: Atomic = header.operation()?;
            let (addr, rkey) = (atomic.addr, atomic.rkey);
            if header.opcode == opcode::ATOMIC_CMP_AND_SWP {
                let (operation, opcode) = (SendOperation::CompareSwap, wc::Opcode::CompSwap);
                rdma(operation, opcode, addr, rkey);
                wr.compare = atomic.compare_add;
                wr.swap_add = atomic.swap;
            } else {
                rdma(SendOperation::FetchAdd, wc::Opcode::FetchAdd, addr, rkey);
                wr.swap_add = atomic.compare_add;
            }
        }
        opcode::ATOMIC_WRITE => {
            let Rdma { addr, rkey, .. } = header.operation()?;
            let (operation, opcode) = (SendOperation::AtomicWrite, wc::Opcode::AtomicWrite);
            rdma(operation, opcode, addr, rkey);
        }
        opcode::FLUSH => {
            let flush: user_wqe::Flush = header.operation()?;
            let (operation, opcode) = (SendOperation::Flush, wc::Opcode::Flush);
            rdma(operation, opcode, flush.addr, flush.rkey);
            wr.flush = Flush {
                placement: flush.placement,
                selectivity: flush.selectivity,
            };
        }
        opcode::LOCAL_INV if ty.is_connected() => {
            wqe.opcode = wc::Opcode::LocalInv;
            wqe.local = Some(Local::Invalidate(header.invalidate_rkey()));
            wr.operation = SendOperation::Local;
            wr.fence = true;
        }
        opcode::BIND_MW if ty.is_connected() => {
            let bind: BindMw = header.operation()?;
            wqe.opcode = wc::Opcode::BindMw;
            wqe.local = Some(Local::Bind(mw::Bind {
                window: bind.mw_rkey,
                key: bind.rkey,
                region: bind.mr_lkey,
                start: bind.addr,
                len: bind.length,
                access: Access::from_bits(bind.access),
            }));
            // Requests under way need no window of this side: it waits for them only if asked to.
            wr.operation = SendOperation::Local;
        }
        _ => return None,
    }
    match ty {
        Type::Rc | Type::Uc => {}
        Type::XrcInitiator if *xrcd::NUMBERS.end() < header.xrc_srqn => return None,
        Type::XrcInitiator => wr.xrc_srqn = header.xrc_srqn,
        // Nobody can post to it.
        Type::XrcTarget => return None,
        Type::Ud | Type::Gsi => {
            let ud: Ud = header.operation()?;
            wqe.ah = Some(find_ah(ud.ah_num)?);
            wr.dest_qpn = ud.remote_qpn;
            wr.qkey = ud.remote_qkey;
        }
        Type::RawPacket => {
            // It has no headers of its own, and nobody fills in checksums.
            if header.opcode != opcode::SEND || header.flags & flags::IP_CSUM != 0 {
                return None;
            }
            wqe.local = Some(Local::Frame);
            wr.operation = SendOperation::Local;
        }
    }
    Some(())
}

/// Notes what a kernel consumer asks for. Errors: `EINVAL` if that is nothing that the driver knows.
pub(super) fn of_kernel(op: &SendOp<Ah, Mr>, wqe: &mut SendWqe, wr: &mut SendWr) -> Result {
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
