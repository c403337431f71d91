// SPDX-License-Identifier: GPL-2.0

//! Work completions.

use rdma_bindings as bindings;

/// How a work request ended (`enum ib_wc_status`; the numbers are the same in userspace).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// As asked for.
    Success = bindings::ib_wc_status_IB_WC_SUCCESS,
    /// A message that does not fit its buffers, or exceeds what a message may have.
    LocLen = bindings::ib_wc_status_IB_WC_LOC_LEN_ERR,
    /// A request that the QP cannot do.
    LocQpOp = bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR,
    /// A local buffer that its key does not allow.
    LocProt = bindings::ib_wc_status_IB_WC_LOC_PROT_ERR,
    /// Not executed: the QP was in the error state.
    WrFlush = bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR,
    /// A memory window that cannot be bound like that.
    MwBind = bindings::ib_wc_status_IB_WC_MW_BIND_ERR,
    /// A response that makes no sense.
    BadResp = bindings::ib_wc_status_IB_WC_BAD_RESP_ERR,
    /// An access to local memory by a request with immediate data that is not allowed.
    LocAccess = bindings::ib_wc_status_IB_WC_LOC_ACCESS_ERR,
    /// The responder found the request invalid.
    RemInvReq = bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR,
    /// The responder does not allow the access.
    RemAccess = bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR,
    /// The responder failed.
    RemOp = bindings::ib_wc_status_IB_WC_REM_OP_ERR,
    /// No answer after all retries.
    RetryExc = bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR,
    /// The receiver was not ready after all retries.
    RnrRetryExc = bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR,
}

/// The operation of a completed work request (`enum ib_wc_opcode`; the numbers below [`Opcode::RegMr`], and from
/// [`Opcode::Recv`] on, are the same in userspace).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Opcode {
    /// Send.
    Send = bindings::ib_wc_opcode_IB_WC_SEND,
    /// RDMA write.
    RdmaWrite = bindings::ib_wc_opcode_IB_WC_RDMA_WRITE,
    /// RDMA read.
    RdmaRead = bindings::ib_wc_opcode_IB_WC_RDMA_READ,
    /// Compare and swap.
    CompSwap = bindings::ib_wc_opcode_IB_WC_COMP_SWAP,
    /// Fetch and add.
    FetchAdd = bindings::ib_wc_opcode_IB_WC_FETCH_ADD,
    /// Bind a memory window.
    BindMw = bindings::ib_wc_opcode_IB_WC_BIND_MW,
    /// Invalidate a key.
    LocalInv = bindings::ib_wc_opcode_IB_WC_LOCAL_INV,
    /// FLUSH.
    Flush = bindings::ib_wc_opcode_IB_WC_FLUSH,
    /// ATOMIC WRITE.
    AtomicWrite = bindings::ib_wc_opcode_IB_WC_ATOMIC_WRITE,
    /// Register a memory region, kernel only.
    RegMr = bindings::ib_wc_opcode_IB_WC_REG_MR,
    /// Receive.
    Recv = bindings::ib_wc_opcode_IB_WC_RECV,
    /// Receive of an RDMA write's immediate data.
    RecvRdmaWithImm = bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM,
}

/// The immediate data or key that came with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// Nothing.
    None,
    /// Immediate data, in native byte order.
    Imm(u32),
    /// The key that the message invalidated.
    Invalidated(u32),
}

/// Which network header a datagram came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// One completion, as a data path hands it to a completion queue.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// The consumer's own, from the work request; for many kernel consumers a pointer.
    pub wr_id: u64,
    /// How it ended. If not with success, only `wr_id` and `qp_num` mean something.
    pub status: Status,
    /// The operation.
    pub opcode: Opcode,
    /// Bytes received, read or fetched.
    pub byte_len: u32,
    /// The local QP.
    pub qp_num: u32,
    /// The sender of a datagram.
    pub src_qp: u32,
    /// Immediate data or an invalidated key.
    pub extra: Extra,
    /// Whether the first 40 bytes of a datagram's buffer hold network headers.
    pub grh: bool,
    /// VLAN of a datagram.
    pub vlan_id: Option<u16>,
    /// Network header of a datagram.
    pub network: Option<Network>,
}

impl Completion {
    /// A completion without details.
    #[inline]
    pub const fn new(wr_id: u64, status: Status, opcode: Opcode, qp_num: u32) -> Self {
        Self {
            wr_id,
            status,
            opcode,
            byte_len: 0,
            qp_num,
            src_qp: 0,
            extra: Extra::None,
            grh: false,
            vlan_id: None,
            network: None,
        }
    }

    /// Whether the request ended as asked for.
    #[inline]
    pub fn is_success(&self) -> bool {
        self.status == Status::Success
    }

    /// The completion as a kernel consumer reads it, without its QP.
    pub(crate) fn to_raw(self) -> bindings::ib_wc {
        let mut flags = 0;
        if self.grh {
            flags |= bindings::ib_wc_flags_IB_WC_GRH;
        }
        let extra = match self.extra {
            Extra::None => 0,
            Extra::Imm(value) => {
                flags |= bindings::ib_wc_flags_IB_WC_WITH_IMM;
                value.to_be()
            }
            Extra::Invalidated(key) => {
                flags |= bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE;
                key
            }
        };
        if self.vlan_id.is_some() {
            flags |= bindings::ib_wc_flags_IB_WC_WITH_VLAN;
        }
        let network = match self.network {
            None => 0,
            Some(network) => {
                flags |= bindings::ib_wc_flags_IB_WC_WITH_NETWORK_HDR_TYPE;
                match network {
                    Network::Ipv4 => bindings::rdma_network_type_RDMA_NETWORK_IPV4,
                    Network::Ipv6 => bindings::rdma_network_type_RDMA_NETWORK_IPV6,
                }
            }
        };
        let mut raw: bindings::ib_wc = pin_init::zeroed();
        raw.__bindgen_anon_1.bindgen_union_field = self.wr_id;
        raw.status = self.status as u32;
        raw.opcode = self.opcode as u32;
        raw.byte_len = self.byte_len;
        raw.ex.bindgen_union_field = extra;
        raw.src_qp = self.src_qp;
        raw.wc_flags = flags as i32;
        raw.port_num = 1;
        raw.vlan_id = self.vlan_id.unwrap_or(0);
        raw.network_hdr_type = network as u8;
        raw
    }
}
