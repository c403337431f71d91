// SPDX-License-Identifier: GPL-2.0

//! Devices.

mod handle;

pub use handle::Handle;

use crate::{
    driver::Driver,
    error::not_supported,
    link,
    object::Object,
    ops::Ops,
    port,
    wr, //
};
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    prelude::*,
    str::{
        as_char_ptr_in_const_context,
        CStr, //
    },
    sync::Arc, //
};
use rdma_bindings as bindings;

/// Capabilities that a device can advertise (`enum ib_device_cap_flags`).
pub mod cap {
    use rdma_bindings as bindings;

    /// The state that a consumer assumes can be given when a QP is modified.
    pub const CURRENT_QP_STATE: u64 =
        bindings::ib_device_cap_flags_IB_DEVICE_CURR_QP_STATE_MOD as u64;
    /// The port counts packets with a wrong P_Key.
    pub const BAD_PKEY_COUNTER: u64 = bindings::ib_device_cap_flags_IB_DEVICE_BAD_PKEY_CNTR as u64;
    /// The port counts datagrams with a wrong Q_Key.
    pub const BAD_QKEY_COUNTER: u64 = bindings::ib_device_cap_flags_IB_DEVICE_BAD_QKEY_CNTR as u64;
    /// Port events are raised.
    pub const PORT_ACTIVE_EVENT: u64 =
        bindings::ib_device_cap_flags_IB_DEVICE_PORT_ACTIVE_EVENT as u64;
    /// There is a system image GUID.
    pub const SYS_IMAGE_GUID: u64 = bindings::ib_device_cap_flags_IB_DEVICE_SYS_IMAGE_GUID as u64;
    /// RNR NAKs are generated.
    pub const RNR_NAK: u64 = bindings::ib_device_cap_flags_IB_DEVICE_RC_RNR_NAK_GEN as u64;
    /// The size of a shared receive queue can be changed.
    pub const SRQ_RESIZE: u64 = bindings::ib_device_cap_flags_IB_DEVICE_SRQ_RESIZE as u64;
    /// Fast registration, local invalidate, send with invalidate.
    pub const MEM_MGT_EXTENSIONS: u64 =
        bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64;
    /// Memory windows of type 1.
    pub const MEM_WINDOW: u64 = bindings::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW as u64;
    /// Memory windows of type 2, of the kind that has a QP and a protection domain.
    pub const MEM_WINDOW_TYPE_2B: u64 =
        bindings::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW_TYPE_2B as u64;
    /// FLUSH for global visibility.
    pub const FLUSH_GLOBAL: u64 = bindings::ib_device_cap_flags_IB_DEVICE_FLUSH_GLOBAL as u64;
    /// FLUSH for persistence, where the architecture has a way to do it; then memory that keeps its
    /// contents can be registered for that.
    pub const FLUSH_PERSISTENT: u64 = if cfg!(CONFIG_ARCH_HAS_PMEM_API) {
        bindings::ib_device_cap_flags_IB_DEVICE_FLUSH_PERSISTENT as u64
    } else {
        0
    };
    /// ATOMIC WRITE.
    pub const ATOMIC_WRITE: u64 = bindings::ib_device_cap_flags_IB_DEVICE_ATOMIC_WRITE as u64;
}

/// The accesses to memory that is paged on demand (`ib_uverbs_odp_transport_cap_bits`).
pub mod paging {
    use rdma_bindings as bindings;

    /// The source of a SEND.
    pub const SEND: u32 = bindings::ib_uverbs_odp_transport_cap_bits_IB_UVERBS_ODP_SUPPORT_SEND;
    /// The destination of a receive.
    pub const RECEIVE: u32 = bindings::ib_uverbs_odp_transport_cap_bits_IB_UVERBS_ODP_SUPPORT_RECV;
    /// The destination of a receive of a shared queue.
    pub const SHARED_RECEIVE: u32 =
        bindings::ib_uverbs_odp_transport_cap_bits_IB_UVERBS_ODP_SUPPORT_SRQ_RECV;
    /// Both ends of an RDMA WRITE.
    pub const WRITE: u32 = bindings::ib_uverbs_odp_transport_cap_bits_IB_UVERBS_ODP_SUPPORT_WRITE;
    /// Both ends of an RDMA READ.
    pub const READ: u32 = bindings::ib_uverbs_odp_transport_cap_bits_IB_UVERBS_ODP_SUPPORT_READ;
    /// Both ends of an atomic operation.
    pub const ATOMIC: u32 = bindings::ib_uverbs_odp_transport_cap_bits_IB_UVERBS_ODP_SUPPORT_ATOMIC;
    /// The range of a FLUSH.
    pub const FLUSH: u32 = bindings::ib_uverbs_odp_transport_cap_bits_IB_UVERBS_ODP_SUPPORT_FLUSH;
    /// The destination of an ATOMIC WRITE.
    pub const ATOMIC_WRITE: u32 =
        bindings::ib_uverbs_odp_transport_cap_bits_IB_UVERBS_ODP_SUPPORT_ATOMIC_WRITE;
}

/// Attributes of a device.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs)]
pub struct Attr {
    /// In network byte order.
    pub sys_image_guid: [u8; 8],
    pub max_mr_size: u64,
    /// A bit for each page size.
    pub page_sizes: u64,
    pub vendor_id: u32,
    /// See [`cap`].
    pub cap_flags: u64,
    /// Objects of each type.
    pub max_objects: u32,
    pub max_qp_wr: u32,
    /// SGEs of a WR of any kind.
    pub max_sge: u32,
    pub max_cqe: u32,
    pub max_srq_wr: u32,
    /// Reads and atomics outstanding per QP, as a responder and as a requester.
    pub max_rd_atomic: u32,
    pub max_multicast_groups: u32,
    /// QPs per multicast group.
    pub max_multicast_qps: u32,
    /// QPs in multicast groups, counted once in each.
    pub max_multicast_attachments: u32,
    pub ack_delay: u8,
    /// See [`paging`]; for RC.
    pub paging_rc: u32,
    /// See [`paging`]; for XRC.
    pub paging_xrc: u32,
    /// See [`paging`]; for UD.
    pub paging_ud: u32,
}

/// The core of a device.
pub trait Device: Sized + Send + Sync + 'static {
    /// Process work of the device's objects, in particular the handlers of their events, runs here.
    /// Must not be destroyed while there are devices. Context: process.
    fn process_queue(&self) -> Arc<sync::WorkQueue>;

    /// The device's attributes: what works, no more. Context: process, may sleep.
    fn query(&self) -> Attr;

    /// The device goes into use: it is registered, or has come to another namespace (`rdma dev set netns`). Its other clients
    /// may follow. Context: process, with locks of `ib_core`.
    fn enabled(self: &Arc<Self>);

    /// The device goes out of use: it is unregistered, or goes to another namespace. `ib_core` has its other clients leave,
    /// then destroys the objects of processes. Context: process, may sleep.
    fn disabled(self: &Arc<Self>);

    /// The device is gone: all its objects are destroyed, and no other operation will be called.
    /// Context: process, may sleep.
    fn gone(self: &Arc<Self>);
}

/// `IB_FW_VERSION_NAME_MAX`.
const FIRMWARE_TEXT_LEN: usize = 32;

/// A device with the core `T`, as `ib_core` has it.
pub(crate) type Obj<T> = Object<bindings::ib_device, Arc<T>>;

/// The core of a device.
///
/// # Safety
///
/// `device` must be a device that [`register`] made for a driver whose devices are `T`s, and
/// `dealloc_driver` must not be called for `'a`.
pub(crate) unsafe fn core<'a, T>(device: *const bindings::ib_device) -> &'a Arc<T> {
    // SAFETY: `register` initialises the private part, and `dealloc_driver` takes it.
    unsafe { Obj::<T>::get(device) }
}

/// Whether a device is one of the driver `D`.
///
/// # Safety
///
/// `device` must be valid, and registered.
pub(crate) unsafe fn is_of<D: Driver>(device: *const bindings::ib_device) -> bool {
    // SAFETY: The device is valid, and its operations are constant.
    let query_device = unsafe { (*device).ops.query_device };
    query_device.is_some_and(|op| core::ptr::fn_addr_eq(op, query::<D> as QueryDevice))
}

/// The type of `query_device`.
type QueryDevice = unsafe extern "C" fn(
    *mut bindings::ib_device,
    *mut bindings::ib_device_attr,
    *mut bindings::ib_udata,
) -> c_int;

/// The `struct device` in a device.
pub(crate) fn embedded(device: *mut bindings::ib_device) -> *mut kernel::bindings::device {
    // It is the first field of each part of a union.
    device
        .wrapping_byte_add(core::mem::offset_of!(bindings::ib_device, __bindgen_anon_1))
        .cast()
}

/// The parameters of [`register`], for a device whose core is a `T`.
pub struct Registration<'a, T> {
    /// The name, which must not contain `%`.
    pub name: &'a CStr,
    /// The module that the driver is in.
    pub module: &'static ThisModule,
    /// The netdev below.
    pub netdev: &'a net::NetDev,
    /// In network byte order.
    pub node_guid: [u8; 8],
    /// Shown to people.
    pub description: &'a CStr,
    /// The driver's part.
    pub core: Arc<T>,
}

/// Why there is no device.
pub struct Failure {
    /// The error of `ib_core`.
    pub error: Error,
    /// The rest of a device that `ib_core` had already shown around: memory, the GID table above all. As for
    /// any other, to be kept until the last use of an entry, and [`Handle::flush_gids`].
    pub handle: Option<Handle>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            error,
            handle: None,
        }
    }
}

/// A device that is not registered yet.
struct Unregistered(NonNull<bindings::ib_device>);

impl Drop for Unregistered {
    fn drop(&mut self) {
        // SAFETY: The device was allocated and its registration failed, or was not tried.
        unsafe { bindings::ib_dealloc_device(self.0.as_ptr()) };
    }
}

/// Makes a device and registers it. Process context, may sleep, not under RTNL.
///
/// The consumers of the kernel, and processes, may use the device before this returns. If it fails,
/// [`Device::gone`] is called.
///
/// Errors: `EINVAL` if the name has a `%`, `ENODEV` if the netdev's namespace is about to end, `ENFILE` if there is an RDMA
/// device of that name, `ENOMEM`, others of `ib_register_device()`. For [`Failure::handle`], see there.
pub fn register<D: Driver>(registration: Registration<'_, D::Device>) -> Result<Handle, Failure> {
    // The first free number would be taken.
    if registration.name.to_bytes().contains(&b'%') {
        registration.core.gone();
        return Err(EINVAL.into());
    }
    // Held to the end of this function. A registered device goes to `init_net` when its namespace ends.
    let net = net::HeldNet::of(registration.netdev).inspect_err(|_| registration.core.gone())?;
    // SAFETY: The size is that of an `Obj<D::Device>`; the namespace is held until the device is registered.
    let device = unsafe { bindings::_ib_alloc_device(size_of::<Obj<D::Device>>(), net.as_ptr()) };
    let Some(device) = NonNull::new(device) else {
        registration.core.gone();
        return Err(ENOMEM.into());
    };
    let ptr = device.as_ptr();
    // SAFETY: The device is new and belongs to us; it has the size of an `Obj<D::Device>`.
    unsafe {
        Obj::<D::Device>::init(ptr, registration.core);
        (*ptr).node_type = bindings::RDMA_NODE_IB_CA as u8;
        (*ptr).phys_port_cnt = port::NUMBER;
        (*ptr).num_comp_vectors = i32::try_from(bindings::num_online_cpus()).unwrap_or(1);
        // All names come from users. udev leaves them alone then.
        (*ptr).name_assign_type = bindings::rdma_nl_name_assign_type_RDMA_NAME_ASSIGN_TYPE_USER;
        (*ptr).local_dma_lkey = wr::LOCAL_DMA_LKEY;
        (*ptr).node_guid = u64::from_ne_bytes(registration.node_guid);
        let bytes = registration.description.to_bytes();
        let room = (*ptr).node_desc.len().wrapping_sub(1);
        for (to, &from) in (*ptr).node_desc.iter_mut().take(room).zip(bytes) {
            *to = from;
        }
        (*ptr).uverbs_cmd_mask |= 1 << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POST_SEND
            | 1 << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_REQ_NOTIFY_CQ;
        (*ptr).link_ops = link::ops();
        bindings::ib_set_device_ops(ptr, &Ops::<D>::TABLE);
        (*ptr).ops.owner = registration.module.as_ptr();
    }
    let guard = Unregistered(device);
    // SAFETY: The device is initialised; this is the reference of the handle.
    unsafe { kernel::bindings::get_device(embedded(ptr)) };
    // INVARIANT: The reference was just taken.
    let handle = Handle(device);
    // SAFETY: The device is complete. Without a DMA device, it is one of virtual DMA.
    let registered = to_result(unsafe {
        bindings::ib_register_device(ptr, registration.name.as_char_ptr(), core::ptr::null_mut())
    });
    if let Err(error) = registered {
        drop(guard);
        return Err(Failure {
            error,
            handle: Some(handle),
        });
    }
    // From now on unregistering, which anybody can do, frees the device.
    core::mem::forget(guard);
    Ok(handle)
}

/// `query_device`.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn query<D: Driver>(
    device: *mut bindings::ib_device,
    raw: *mut bindings::ib_device_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: `ib_core` passes a device of this driver, zeroed attributes to fill in, and null or
    // valid driver data.
    let (core, raw) = unsafe {
        if !udata.is_null() && ((*udata).inlen != 0 || (*udata).outlen != 0) {
            return EINVAL.to_errno();
        }
        (core::<D::Device>(device), &mut *raw)
    };
    let attr = core.query();
    let limit = bindings::device_limit;
    raw.sys_image_guid = u64::from_ne_bytes(attr.sys_image_guid);
    raw.max_mr_size = attr.max_mr_size;
    raw.page_size_cap = attr.page_sizes;
    raw.vendor_id = attr.vendor_id;
    raw.device_cap_flags = attr.cap_flags;
    raw.kernel_cap_flags = u64::from(
        bindings::ib_kernel_cap_flags_IBK_ALLOW_USER_UNREG
            | bindings::ib_kernel_cap_flags_IBK_LOCAL_DMA_LKEY
            | bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG
            | bindings::ib_kernel_cap_flags_IBK_ON_DEMAND_PAGING,
    );
    raw.odp_caps.general_caps = u64::from(
        bindings::ib_uverbs_odp_general_cap_bits_IB_UVERBS_ODP_SUPPORT
            | bindings::ib_uverbs_odp_general_cap_bits_IB_UVERBS_ODP_SUPPORT_IMPLICIT,
    );
    raw.odp_caps.per_transport_caps.rc_odp_caps = attr.paging_rc;
    raw.odp_caps.per_transport_caps.xrc_odp_caps = attr.paging_xrc;
    raw.odp_caps.per_transport_caps.ud_odp_caps = attr.paging_ud;
    raw.max_qp = limit(attr.max_objects);
    raw.max_qp_wr = limit(attr.max_qp_wr);
    raw.max_send_sge = limit(attr.max_sge);
    raw.max_recv_sge = limit(attr.max_sge);
    raw.max_sge_rd = limit(attr.max_sge);
    raw.max_cq = limit(attr.max_objects);
    raw.max_cqe = limit(attr.max_cqe);
    // `cq::Moderation` takes all values.
    raw.cq_caps.max_cq_moderation_count = u16::MAX;
    raw.cq_caps.max_cq_moderation_period = u16::MAX;
    raw.max_srq = limit(attr.max_objects);
    raw.max_srq_wr = limit(attr.max_srq_wr);
    raw.max_srq_sge = limit(attr.max_sge);
    raw.max_mr = limit(attr.max_objects);
    raw.max_mw = limit(attr.max_objects);
    raw.max_pd = limit(attr.max_objects);
    raw.max_ah = limit(attr.max_objects);
    raw.max_qp_rd_atom = limit(attr.max_rd_atomic);
    raw.max_qp_init_rd_atom = limit(attr.max_rd_atomic);
    raw.max_res_rd_atom = limit(attr.max_rd_atomic.saturating_mul(attr.max_objects));
    raw.max_mcast_grp = limit(attr.max_multicast_groups);
    raw.max_mcast_qp_attach = limit(attr.max_multicast_qps);
    raw.max_total_mcast_qp_attach = limit(attr.max_multicast_attachments);
    // `memory::Exchange` is done by atomic instructions of the CPU.
    raw.atomic_cap = bindings::ib_atomic_cap_IB_ATOMIC_GLOB;
    raw.max_fast_reg_page_list_len = D::MAX_FAST_PAGES;
    raw.max_pkeys = port::PKEY_TABLE_LEN;
    raw.local_ca_ack_delay = attr.ack_delay;
    0
}

/// `modify_device`: the description, which sysfs shows as `node_desc`, can be changed, and nothing else.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn modify(
    device: *mut bindings::ib_device,
    mask: c_int,
    modification: *mut bindings::ib_device_modify,
) -> c_int {
    const DESCRIPTION: c_int = bindings::ib_device_modify_flags_IB_DEVICE_MODIFY_NODE_DESC as c_int;
    if mask & !DESCRIPTION != 0 {
        return not_supported().to_errno();
    }
    if mask & DESCRIPTION != 0 {
        // SAFETY: `ib_core` passes a device and a modification, with arrays of the same length. It reads and writes the
        // device's without a lock.
        unsafe {
            core::ptr::copy(
                &raw const (*modification).node_desc,
                (&raw mut (*device).node_desc).cast(),
                1,
            );
        }
    }
    0
}

/// `get_dev_fw_str`: there is no firmware, so the version is that of the ABI.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn firmware(device: *mut bindings::ib_device, text: *mut c_char) {
    // SAFETY: `ib_core` passes a device, and room for `IB_FW_VERSION_NAME_MAX` bytes.
    unsafe {
        kernel::bindings::snprintf(
            text,
            FIRMWARE_TEXT_LEN,
            c"%llu".as_char_ptr(),
            (*device).attrs.fw_ver,
        );
    }
}

/// `dealloc_driver`: the last call for a device.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn dealloc<T: Device>(device: *mut bindings::ib_device) {
    // SAFETY: `ib_core` calls this once, when no other operation is in progress, nor will be.
    let core = unsafe { Obj::<T>::take(device) };
    core.gone();
}

type Show = unsafe extern "C" fn(
    *mut kernel::bindings::device,
    *const kernel::bindings::device_attribute,
    *mut c_char,
) -> isize;

/// Sysfs attributes of a device: `parent`, by which tools find the netdev of a software device, and `hca_type`, the name
/// of the module. By the latter a provider tells our devices from those of another module with the same driver id:
/// `node_desc` is for users to change, and rdma-core's rdma-ndd does so.
#[repr(C)]
pub(crate) struct Attributes {
    pub(crate) group: kernel::bindings::attribute_group,
    list: [*const kernel::bindings::attribute; 3],
    parent: kernel::bindings::device_attribute,
    hca_type: kernel::bindings::device_attribute,
}

// SAFETY: Nothing in it is ever changed.
unsafe impl Sync for Attributes {}

pub(crate) static ATTRIBUTES: Attributes = Attributes {
    group: kernel::bindings::attribute_group {
        __bindgen_anon_2: kernel::bindings::attribute_group__bindgen_ty_2 {
            attrs_const: (&raw const ATTRIBUTES.list).cast(),
        },
        ..pin_init::zeroed()
    },
    list: [
        &raw const ATTRIBUTES.parent.attr,
        &raw const ATTRIBUTES.hca_type.attr,
        core::ptr::null(),
    ],
    parent: attribute(c"parent", show_parent),
    hca_type: attribute(c"hca_type", show_hca_type),
};

const fn attribute(name: &'static CStr, show: Show) -> kernel::bindings::device_attribute {
    kernel::bindings::device_attribute {
        // Kernels with lockdep have more fields in it; all-zero stands for its own place as the key.
        attr: {
            let mut attr: kernel::bindings::attribute = pin_init::zeroed();
            attr.name = as_char_ptr_in_const_context(name);
            attr.mode = 0o444;
            attr
        },
        __bindgen_anon_1: kernel::bindings::device_attribute__bindgen_ty_1 {
            show_const: Some(show),
        },
        ..pin_init::zeroed()
    }
}

/// Shows `hca_type`.
///
/// # Safety
///
/// Only sysfs may call this, for the device of an `ib_device` whose operations are those of this
/// crate.
unsafe extern "C" fn show_hca_type(
    device: *mut kernel::bindings::device,
    _attribute: *const kernel::bindings::device_attribute,
    text: *mut c_char,
) -> isize {
    // SAFETY: While sysfs shows an attribute, its device is not deleted, and so the module is there. `text` has room for
    // a page.
    unsafe {
        let owner = (*bindings::rdma_device_to_ibdev(device)).ops.owner;
        if owner.is_null() {
            return ENODEV.to_errno() as isize;
        }
        kernel::bindings::sysfs_emit(text, c"%s\n".as_char_ptr(), &raw const (*owner).name) as isize
    }
}

/// Shows `parent`.
///
/// # Safety
///
/// Only sysfs may call this, for the device of an `ib_device` whose operations are those of this
/// crate.
unsafe extern "C" fn show_parent(
    device: *mut kernel::bindings::device,
    _attribute: *const kernel::bindings::device_attribute,
    text: *mut c_char,
) -> isize {
    // SAFETY: While sysfs shows an attribute, its device is not deleted, so the `ib_device` is
    // registered and its operations may be called.
    let netdev = unsafe {
        let device = bindings::rdma_device_to_ibdev(device);
        match (*device).ops.get_netdev {
            Some(get_netdev) => get_netdev(device, port::NUMBER),
            None => core::ptr::null_mut(),
        }
    };
    if netdev.is_null() {
        return ENODEV.to_errno() as isize;
    }
    // SAFETY: The netdev is referenced until it is put; `text` has room for a page.
    unsafe {
        let len = kernel::bindings::sysfs_emit(
            text,
            c"%s\n".as_char_ptr(),
            bindings::netdev_raw_name(netdev),
        );
        bindings::dev_put(netdev);
        len as isize
    }
}
