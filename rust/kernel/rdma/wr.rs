// SPDX-License-Identifier: GPL-2.0

//! Work requests of kernel consumers.

use crate::{
    ah,
    memory::{
        KernelBuffer,
        Memory, //
    },
    mr,
    qp, //
};
use core::marker::PhantomData;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// The key of all kernel memory. Nothing but a work request of a kernel consumer may use it, and
/// no memory region has it.
pub const LOCAL_DMA_LKEY: u32 = 0;

/// Flags of a send request (`enum ib_send_flags`; the same numbers in userspace).
pub mod flags {
    use rdma_bindings as bindings;

    /// Wait for earlier reads and atomics.
    pub const FENCE: u32 = bindings::ib_send_flags_IB_SEND_FENCE as u32;
    /// Ask for a completion.
    pub const SIGNALED: u32 = bindings::ib_send_flags_IB_SEND_SIGNALED as u32;
    /// Raise a solicited event at the receiver.
    pub const SOLICITED: u32 = bindings::ib_send_flags_IB_SEND_SOLICITED as u32;
    /// Take the payload at once, by address and without keys.
    pub const INLINE: u32 = bindings::ib_send_flags_IB_SEND_INLINE as u32;
    /// Fill in the checksums of IPv4, TCP and UDP.
    pub const IP_CSUM: u32 = bindings::ib_send_flags_IB_SEND_IP_CSUM as u32;
}

/// One piece of a kernel consumer's buffer (`struct ib_sge`).
#[derive(Clone, Copy)]
pub struct Sge {
    addr: u64,
    length: u32,
    lkey: u32,
}

impl Sge {
    /// Its address in the region that the key names.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Its bytes.
    #[inline]
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Its key.
    #[inline]
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The memory itself, if the key is [`LOCAL_DMA_LKEY`].
    ///
    /// It may be used until the request completes, not longer.
    #[inline]
    pub fn buffer(&self) -> Option<KernelBuffer> {
        if self.lkey != LOCAL_DMA_LKEY {
            return None;
        }
        // SAFETY: Values of this type come from kernel consumers' requests only, and nobody can change them. One that
        // uses the local DMA key vouches for the memory until the request completes, see `KernelBuffer`; for
        // virtual-DMA devices the address is a kernel address.
        Some(unsafe { KernelBuffer::new(self.addr as usize, self.length as usize) })
    }
}

/// The pieces of a request's buffer.
///
/// # Invariants
///
/// `next` is valid for reads of `left` elements for `'a`, if `left` is positive. It need not be aligned: iSER has its
/// lists in packed structures.
#[derive(Clone)]
pub struct Sges<'a> {
    next: *const bindings::ib_sge,
    left: usize,
    _list: PhantomData<&'a bindings::ib_sge>,
}

impl Sges<'_> {
    /// # Safety
    ///
    /// `list` must be valid for reads of `count` elements for `'a`, if `count` is positive.
    unsafe fn new(list: *const bindings::ib_sge, count: c_int) -> Self {
        let count = usize::try_from(count).unwrap_or(0);
        // INVARIANT: By the promise of the caller.
        Self {
            next: list,
            left: if list.is_null() { 0 } else { count },
            _list: PhantomData,
        }
    }
}

impl Iterator for Sges<'_> {
    type Item = Sge;

    #[inline]
    fn next(&mut self) -> Option<Sge> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: By the type invariant there was an element more than are left now.
        let sge = unsafe { self.next.read_unaligned() };
        // INVARIANT: The elements that are left are behind it.
        self.next = self.next.wrapping_add(1);
        Some(Sge {
            addr: sge.addr,
            length: sge.length,
            lkey: sge.lkey,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// The operation of a send request; `A` is an address handle, `M` a memory region.
pub enum SendOp<A, M> {
    /// Send.
    Send,
    /// Send with immediate data, in native byte order.
    SendImm(u32),
    /// Send, and invalidate a key of the receiver.
    SendInv(u32),
    /// RDMA write.
    Write {
        /// Remote address.
        addr: u64,
        /// Remote key.
        rkey: u32,
    },
    /// RDMA write with immediate data.
    WriteImm {
        /// Remote address.
        addr: u64,
        /// Remote key.
        rkey: u32,
        /// Immediate data, in native byte order.
        imm: u32,
    },
    /// RDMA read.
    Read {
        /// Remote address.
        addr: u64,
        /// Remote key.
        rkey: u32,
    },
    /// Compare and swap.
    CompSwap {
        /// Remote address.
        addr: u64,
        /// Remote key.
        rkey: u32,
        /// To compare with.
        compare: u64,
        /// To put there.
        swap: u64,
    },
    /// Fetch and add.
    FetchAdd {
        /// Remote address.
        addr: u64,
        /// Remote key.
        rkey: u32,
        /// To add.
        add: u64,
    },
    /// Send on a datagram QP.
    Datagram {
        /// To whom.
        ah: Arc<A>,
        /// To which QP.
        remote_qpn: u32,
        /// Its Q_Key.
        qkey: u32,
        /// Immediate data, in native byte order.
        imm: Option<u32>,
    },
    /// Invalidate a local key.
    LocalInv(u32),
    /// Register the pages that were mapped to a fast-registration region.
    RegMr {
        /// The region.
        mr: Arc<M>,
        /// The key it gets.
        key: u32,
        /// The access rights it gets.
        access: u32,
    },
    /// Anything else.
    Unsupported,
}

/// A send request, see [`SendOp`].
pub struct SendWr<'a, A, M> {
    /// The consumer's own.
    pub wr_id: u64,
    flags: u32,
    /// The operation.
    pub op: SendOp<A, M>,
    sges: Sges<'a>,
}

impl<'a, A, M> SendWr<'a, A, M> {
    /// See [`flags`].
    #[inline]
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// The pieces of the buffer.
    pub fn sges(&self) -> Sges<'a> {
        self.sges.clone()
    }

    /// Gathers the payload of a request with [`flags::INLINE`]. Returns its length; `EINVAL` if
    /// `out` is too small, or for another request.
    pub fn copy_inline(&self, out: &mut [u8]) -> Result<usize> {
        if self.flags & flags::INLINE == 0 {
            return Err(EINVAL);
        }
        let mut done = 0usize;
        for sge in self.sges() {
            let end = done.checked_add(sge.length as usize).ok_or(EINVAL)?;
            let part = out.get_mut(done..end).ok_or(EINVAL)?;
            // SAFETY: An inline request of a kernel consumer gives kernel addresses, valid at
            // least while it is posted, whatever its keys say.
            let buffer = unsafe { KernelBuffer::new(sge.addr as usize, sge.length as usize) };
            let memory: &dyn Memory = &buffer;
            memory.read(0, part).or(Err(EINVAL))?;
            done = end;
        }
        Ok(done)
    }
}

/// A list of send requests, as a kernel consumer posts it; see [`SendOp`].
pub struct SendWrs<'a, A, M> {
    next: *const bindings::ib_send_wr,
    current: *const bindings::ib_send_wr,
    datagram: bool,
    _list: PhantomData<(&'a bindings::ib_send_wr, A, M)>,
}

impl<'a, A, M> SendWrs<'a, A, M> {
    /// # Safety
    ///
    /// `list` must be a list of requests that are valid for `'a`, each of the C type that its
    /// opcode and `ty` call for, to a QP whose driver's address handles are `A`s and regions `M`s.
    pub(crate) unsafe fn new(list: *const bindings::ib_send_wr, ty: qp::Type) -> Self {
        Self {
            next: list,
            current: list,
            datagram: matches!(ty, qp::Type::Ud | qp::Type::Gsi),
            _list: PhantomData,
        }
    }

    /// The request that was taken last; the first one before that.
    pub(crate) fn current(&self) -> *const bindings::ib_send_wr {
        self.current
    }

    /// Reads the operation of the request at `ptr`.
    ///
    /// # Safety
    ///
    /// `ptr` must be a request of the list: the fields of its own type are behind it.
    unsafe fn op(&self, ptr: *const bindings::ib_send_wr) -> SendOp<A, M> {
        // SAFETY: By the promise of the creator the pointer is valid.
        let wr = unsafe { &*ptr };
        let imm = u32::from_be(wr.ex.bindgen_union_field);
        // `ib_drain_sq()` posts a WRITE to queue pairs of all types.
        if self.datagram && wr.opcode != bindings::ib_wr_opcode_IB_WR_RDMA_WRITE {
            let imm = match wr.opcode {
                bindings::ib_wr_opcode_IB_WR_SEND => None,
                bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => Some(imm),
                _ => return SendOp::Unsupported,
            };
            // SAFETY: Requests to datagram QPs are of this type, by the creator's promise.
            let ud = unsafe { &*ptr.cast::<bindings::ib_ud_wr>() };
            if ud.ah.is_null() {
                return SendOp::Unsupported;
            }
            // SAFETY: The consumer passes an address handle that lives at least until the request
            // is posted.
            let ah = unsafe { ah::Obj::<A>::get(ud.ah) }.clone();
            return SendOp::Datagram {
                ah,
                remote_qpn: ud.remote_qpn & 0xff_ffff,
                qkey: ud.remote_qkey,
                imm,
            };
        }
        match wr.opcode {
            bindings::ib_wr_opcode_IB_WR_SEND => SendOp::Send,
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => SendOp::SendImm(imm),
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV => {
                SendOp::SendInv(wr.ex.bindgen_union_field)
            }
            bindings::ib_wr_opcode_IB_WR_LOCAL_INV => SendOp::LocalInv(wr.ex.bindgen_union_field),
            bindings::ib_wr_opcode_IB_WR_RDMA_WRITE
            | bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM
            | bindings::ib_wr_opcode_IB_WR_RDMA_READ => {
                // SAFETY: Requests with these opcodes are of this type, by the creator's promise.
                let rdma = unsafe { &*ptr.cast::<bindings::ib_rdma_wr>() };
                let (addr, rkey) = (rdma.remote_addr, rdma.rkey);
                match wr.opcode {
                    bindings::ib_wr_opcode_IB_WR_RDMA_WRITE => SendOp::Write { addr, rkey },
                    bindings::ib_wr_opcode_IB_WR_RDMA_READ => SendOp::Read { addr, rkey },
                    _ => SendOp::WriteImm { addr, rkey, imm },
                }
            }
            bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP
            | bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD => {
                // SAFETY: Requests with these opcodes are of this type, by the creator's promise.
                let atomic = unsafe { &*ptr.cast::<bindings::ib_atomic_wr>() };
                let (addr, rkey) = (atomic.remote_addr, atomic.rkey);
                match wr.opcode {
                    bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP => SendOp::CompSwap {
                        addr,
                        rkey,
                        compare: atomic.compare_add,
                        swap: atomic.swap,
                    },
                    _ => SendOp::FetchAdd {
                        addr,
                        rkey,
                        add: atomic.compare_add,
                    },
                }
            }
            bindings::ib_wr_opcode_IB_WR_REG_MR => {
                // SAFETY: Requests with this opcode are of this type, by the creator's promise.
                let reg = unsafe { &*ptr.cast::<bindings::ib_reg_wr>() };
                if reg.mr.is_null() {
                    return SendOp::Unsupported;
                }
                // SAFETY: The consumer passes a region of this device that lives at least until the
                // request is posted.
                let (region, iova) = unsafe { (mr::Obj::<M>::get(reg.mr), (*reg.mr).iova) };
                region.note_iova(iova);
                SendOp::RegMr {
                    mr: region.core.clone(),
                    key: reg.key,
                    access: reg.access as u32,
                }
            }
            _ => SendOp::Unsupported,
        }
    }
}

impl<'a, A, M> Iterator for SendWrs<'a, A, M> {
    type Item = SendWr<'a, A, M>;

    /// Takes the next request off the list. If posting ends with an error, the consumer is told
    /// that the request taken last is the first one not posted.
    fn next(&mut self) -> Option<SendWr<'a, A, M>> {
        if self.next.is_null() {
            return None;
        }
        let ptr = self.next;
        // SAFETY: By the promise of the creator the pointer is valid for `'a`.
        let wr: &'a bindings::ib_send_wr = unsafe { &*ptr };
        self.current = ptr;
        self.next = wr.next;
        Some(SendWr {
            wr_id: wr.__bindgen_anon_1.bindgen_union_field,
            flags: wr.send_flags as u32,
            // SAFETY: It is of the list.
            op: unsafe { self.op(ptr) },
            // SAFETY: A valid request has a valid list of `num_sge` elements.
            sges: unsafe { Sges::new(wr.sg_list, wr.num_sge) },
        })
    }
}

/// A receive request.
pub struct RecvWr<'a> {
    /// The consumer's own.
    pub wr_id: u64,
    sges: Sges<'a>,
}

impl<'a> RecvWr<'a> {
    /// The pieces of the buffer.
    pub fn sges(&self) -> Sges<'a> {
        self.sges.clone()
    }
}

/// A list of receive requests, as a kernel consumer posts it.
pub struct RecvWrs<'a> {
    next: *const bindings::ib_recv_wr,
    current: *const bindings::ib_recv_wr,
    _list: PhantomData<&'a bindings::ib_recv_wr>,
}

impl<'a> RecvWrs<'a> {
    /// # Safety
    ///
    /// `list` must be a list of requests that are valid for `'a`.
    pub(crate) unsafe fn new(list: *const bindings::ib_recv_wr) -> Self {
        Self {
            next: list,
            current: list,
            _list: PhantomData,
        }
    }

    /// The request that was taken last; the first one before that.
    pub(crate) fn current(&self) -> *const bindings::ib_recv_wr {
        self.current
    }
}

impl<'a> Iterator for RecvWrs<'a> {
    type Item = RecvWr<'a>;

    /// Takes the next request off the list. If posting ends with an error, the consumer is told
    /// that the request taken last is the first one not posted.
    fn next(&mut self) -> Option<RecvWr<'a>> {
        if self.next.is_null() {
            return None;
        }
        let ptr = self.next;
        // SAFETY: By the promise of the creator the pointer is valid for `'a`.
        let wr: &'a bindings::ib_recv_wr = unsafe { &*ptr };
        self.current = ptr;
        self.next = wr.next;
        Some(RecvWr {
            wr_id: wr.__bindgen_anon_1.bindgen_union_field,
            // SAFETY: A valid request has a valid list of `num_sge` elements.
            sges: unsafe { Sges::new(wr.sg_list, wr.num_sge) },
        })
    }
}

/// Returns the errno of a post. If a request was refused, `bad` names it: the request `at`.
///
/// # Safety
///
/// `bad` must be null, or valid for writes.
pub(crate) unsafe fn answer<T>(result: Result, at: *const T, bad: *mut *const T) -> c_int {
    let Err(error) = result else {
        return 0;
    };
    if !bad.is_null() {
        // SAFETY: By the promise of the caller.
        unsafe { *bad = at };
    }
    error.to_errno()
}
