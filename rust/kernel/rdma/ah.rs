// SPDX-License-Identifier: GPL-2.0

//! Addresses and address handles.

use crate::{
    gid,
    object::Object,
    pd,
    udata::Udata, //
};
use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// Where to send: an address vector (`struct rdma_ah_attr`) of RoCE.
///
/// Holds a reference to an entry of the GID table; see [`gid::Attr`] for when it must be dropped.
pub struct Address {
    /// The destination.
    pub dgid: gid::Gid,
    /// The source.
    pub sgid: gid::Attr,
    /// Where the source was when the vector was read: the entry forgets it when the address goes.
    place: gid::Place,
    /// Hop limit, or time to live.
    pub hop_limit: u8,
    /// Traffic class, or type of service.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Service level.
    pub sl: u8,
    /// The most that the path takes (`enum ib_rate`); only kept, to be told.
    static_rate: u8,
    /// Port of the device.
    pub port: u32,
    /// Ethernet address of the destination, as `ib_core` resolved it.
    pub dmac: [u8; 6],
}

/// The UDP source port for packets from QP `local` to QP `remote`: the flow label chooses it, or if that is 0, both
/// numbers do. All devices do it so, so that switches spread flows in the same way. Any context.
///
/// C header: `rdma_get_udp_sport()` in [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)
pub fn udp_source_port(flow_label: u32, local: u32, remote: u32) -> u16 {
    // SAFETY: No requirements.
    unsafe { bindings::rdma_get_udp_sport(flow_label, local, remote) }
}

impl Clone for Address {
    #[inline(never)]
    fn clone(&self) -> Self {
        Self {
            sgid: self.sgid.clone(),
            ..*self
        }
    }
}

impl Address {
    /// Where the source is, or was until it went. Context: any.
    #[inline]
    pub fn place(&self) -> gid::Place {
        self.sgid.place().unwrap_or(self.place)
    }

    /// Reads a C address vector. `EINVAL` if it is not a global one for RoCE, if its source is going away, or if its
    /// service level has more than four bits.
    ///
    /// # Safety
    ///
    /// `raw.grh.sgid_attr` must be null, or an entry of a GID table to which the caller holds a
    /// reference.
    // Inlined, it makes the module 500 bytes larger.
    #[inline(never)]
    pub(crate) unsafe fn from_raw(raw: &bindings::rdma_ah_attr) -> Result<Self> {
        if raw.type_ != bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE || raw.sl > 15 {
            return Err(EINVAL);
        }
        // SAFETY: By the promise of the caller.
        let sgid = unsafe { gid::Attr::hold(raw.grh.sgid_attr) }.ok_or(EINVAL)?;
        let place = sgid.place().ok_or(EINVAL)?;
        let [low, high] = raw.__bindgen_anon_1.bindgen_union_field;
        let [a, b, c, d] = low.to_ne_bytes();
        let [e, f, ..] = high.to_ne_bytes();
        Ok(Self {
            dgid: gid::from_raw(&raw.grh.dgid),
            sgid,
            place,
            hop_limit: raw.grh.hop_limit,
            traffic_class: raw.grh.traffic_class,
            flow_label: raw.grh.flow_label & 0xf_ffff,
            sl: raw.sl,
            static_rate: raw.static_rate,
            port: raw.port_num,
            dmac: [a, b, c, d, e, f],
        })
    }

    /// Writes a C address vector, without a reference to the GID table.
    #[inline(never)]
    pub(crate) fn to_raw(&self, raw: &mut bindings::rdma_ah_attr) {
        let [a, b, c, d, e, f] = self.dmac;
        raw.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
        raw.ah_flags = bindings::ib_ah_flags_IB_AH_GRH as u8;
        gid::to_raw(&mut raw.grh.dgid, &self.dgid);
        raw.grh.sgid_attr = core::ptr::null();
        // The table has at most 256 entries that a user can name.
        raw.grh.sgid_index = self.sgid.index() as u8;
        raw.grh.hop_limit = self.hop_limit;
        raw.grh.traffic_class = self.traffic_class;
        raw.grh.flow_label = self.flow_label;
        raw.sl = self.sl;
        raw.static_rate = self.static_rate;
        raw.port_num = self.port;
        raw.__bindgen_anon_1.bindgen_union_field = [
            u32::from_ne_bytes([a, b, c, d]),
            u32::from_ne_bytes([e, f, 0, 0]),
        ];
    }
}

/// The core of an address handle: where datagrams go.
pub trait AddressHandle: Sized + Send + Sync + 'static {
    /// The core of a protection domain.
    type Pd: 'static;

    /// Makes an address handle. Context: process, may sleep; for a kernel consumer, without `udata`, any, interrupts
    /// may be off.
    fn create(
        pd: &Arc<Self::Pd>,
        address: Address,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<Arc<Self>>;

    /// The address vector. Context: any.
    fn address(&self) -> &Address;

    /// Destroys it: no further request can name it. Context: any, interrupts may be off.
    fn destroy(self: &Arc<Self>);
}

pub(crate) type Obj<T> = Object<bindings::ib_ah, Arc<T>>;

/// `create_ah`, `create_user_ah`.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn create<A: AddressHandle>(
    ah: *mut bindings::ib_ah,
    init: *mut bindings::rdma_ah_init_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: `ib_core` passes a new object that belongs to a protection domain, an initialised
        // `init` whose `ah_attr` it keeps alive, with a reference to the source GID, and for user
        // calls valid driver data.
        let (pd, address, mut udata) = unsafe {
            (
                pd::Obj::<A::Pd>::get((*ah).pd),
                Address::from_raw(&*(*init).ah_attr)?,
                Udata::from_raw(udata),
            )
        };
        let core = A::create(pd, address, udata.as_mut())?;
        // SAFETY: The object is new and `ib_core` allocated it with the size in the vtable.
        unsafe { Obj::<A>::init(ah, core) };
        Ok(0)
    })
}

/// `destroy_ah`. Any context.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn destroy<A: AddressHandle>(
    ah: *mut bindings::ib_ah,
    _flags: u32,
) -> c_int {
    // SAFETY: `ib_core` destroys an object that it created, once, and then frees it.
    let core = unsafe { Obj::<A>::take(ah) };
    core.destroy();
    0
}

/// `query_ah`.
///
/// # Safety
///
/// Only `ib_core` may call this, as `struct ib_device_ops` has it.
pub(crate) unsafe extern "C" fn query<A: AddressHandle>(
    ah: *mut bindings::ib_ah,
    attr: *mut bindings::rdma_ah_attr,
) -> c_int {
    // SAFETY: `ib_core` passes an object that it created and an attribute to fill in.
    let (core, attr) = unsafe { (Obj::<A>::get(ah), &mut *attr) };
    core.address().to_raw(attr);
    0
}
