// SPDX-License-Identifier: GPL-2.0

//! The C vtable of a driver.

use crate::{
    ah,
    counter,
    cq,
    details,
    device,
    driver::Driver,
    mad,
    mr,
    mw,
    pd,
    port,
    qp,
    srq,
    stats,
    ucontext,
    xrcd, //
};
use core::marker::PhantomData;
use rdma_bindings as bindings;

/// Carries the vtable of the driver `D`.
///
/// Each operation knows the objects that it needs, by the types of their cores. All of these are those of one driver,
/// tied to each other by the bounds of [`Driver`]: so what an operation finds behind a C object is of the type that another
/// one has put there.
pub(crate) struct Ops<D>(PhantomData<D>);

impl<D: Driver> Ops<D> {
    /// The vtable. The owner is filled in for each device, for a constant cannot know the module.
    ///
    /// There is no `query_gid`: `ib_core` keeps the GID table of a RoCE port itself.
    pub(crate) const TABLE: bindings::ib_device_ops = bindings::ib_device_ops {
        driver_id: D::ID,
        uverbs_abi_ver: D::ABI_VERSION,

        query_device: Some(device::query::<D>),
        modify_device: Some(device::modify),
        get_dev_fw_str: Some(device::firmware),
        dealloc_driver: Some(device::dealloc::<D::Device>),
        device_group: &raw const device::ATTRIBUTES.group,

        query_port: Some(port::query::<D::Device>),
        query_port_speed: Some(port::speed::<D::Device>),
        get_port_immutable: Some(port::immutable::<D::Device>),
        get_link_layer: Some(port::link_layer),
        get_netdev: Some(port::netdev::<D::Device>),
        query_pkey: Some(port::query_pkey::<D::Device>),
        add_gid: Some(port::add_gid::<D::Address>),
        del_gid: Some(port::del_gid::<D::Address>),
        alloc_hw_port_stats: Some(stats::alloc::<D>),
        get_hw_stats: Some(stats::get::<D>),
        process_mad: Some(mad::process::<D::Device>),
        counter_init: Some(counter::init::<D::Counter>),
        counter_alloc_stats: Some(counter::alloc::<D>),
        counter_bind_qp: Some(counter::bind::<D::Qp>),
        counter_unbind_qp: Some(counter::unbind::<D::Qp>),
        counter_dealloc: Some(counter::dealloc::<D::Counter>),
        counter_update_stats: Some(counter::update::<D>),
        fill_res_qp_entry: Some(details::of_qp::<D::Qp>),
        fill_res_cq_entry: Some(details::of_cq::<D::Cq>),
        fill_res_mr_entry: Some(details::of_mr::<D::Mr>),
        fill_res_srq_entry: Some(details::of_srq::<D::Srq>),

        alloc_ucontext: Some(ucontext::create::<D::Context>),
        dealloc_ucontext: Some(ucontext::destroy::<D::Context>),
        query_ucontext: Some(ucontext::query),
        disassociate_ucontext: Some(ucontext::disassociate),
        mmap: Some(ucontext::mmap::<D::Context>),

        alloc_pd: Some(pd::create::<D::Pd>),
        dealloc_pd: Some(pd::destroy::<D::Pd>),

        alloc_xrcd: Some(xrcd::create::<D::Xrcd>),
        dealloc_xrcd: Some(xrcd::destroy::<D::Xrcd>),

        create_ah: Some(ah::create::<D::Ah>),
        create_user_ah: Some(ah::create::<D::Ah>),
        query_ah: Some(ah::query::<D::Ah>),
        destroy_ah: Some(ah::destroy::<D::Ah>),

        create_cq: Some(cq::create::<D::Cq>),
        destroy_cq: Some(cq::destroy::<D::Cq>),
        pre_destroy_cq: Some(cq::silence::<D::Cq>),
        post_destroy_cq: Some(cq::end::<D::Cq>),
        modify_cq: Some(cq::moderate::<D::Cq>),
        resize_user_cq: Some(cq::resize::<D::Cq>),
        poll_cq: Some(cq::poll::<D::Cq>),
        req_notify_cq: Some(cq::request_notify::<D::Cq>),

        reg_user_mr: Some(mr::register_user::<D::Mr>),
        reg_user_mr_dmabuf: Some(mr::register_dma_buf::<D::Mr>),
        rereg_user_mr: Some(mr::reregister_user::<D::Mr>),
        get_dma_mr: Some(mr::get_dma::<D::Mr>),
        alloc_mr: Some(mr::alloc::<D>),
        map_mr_sg: Some(mr::map::<D::Mr>),
        dereg_mr: Some(mr::deregister::<D::Mr>),
        advise_mr: Some(mr::advise::<D::Pd>),

        alloc_mw: Some(mw::create::<D::Mw>),
        dealloc_mw: Some(mw::destroy::<D::Mw>),

        create_qp: Some(qp::create::<D::Qp>),
        modify_qp: Some(qp::modify::<D::Qp>),
        query_qp: Some(qp::query::<D::Qp>),
        destroy_qp: Some(qp::destroy::<D::Qp>),
        post_send: Some(qp::post_send::<D::Qp>),
        post_recv: Some(qp::post_recv::<D::Qp>),
        attach_mcast: Some(qp::attach::<D::Qp>),
        detach_mcast: Some(qp::detach::<D::Qp>),

        create_srq: Some(srq::create::<D::Srq>),
        modify_srq: Some(srq::modify::<D::Srq>),
        query_srq: Some(srq::query::<D::Srq>),
        destroy_srq: Some(srq::destroy::<D::Srq>),
        post_srq_recv: Some(srq::post_recv::<D::Srq>),

        size_rdma_counter: size_of::<counter::Obj<D::Counter>>(),
        size_ib_ucontext: size_of::<ucontext::Obj<D::Context>>(),
        size_ib_pd: size_of::<pd::Obj<D::Pd>>(),
        size_ib_ah: size_of::<ah::Obj<D::Ah>>(),
        size_ib_mw: size_of::<mw::Obj<D::Mw>>(),
        size_ib_cq: size_of::<cq::Obj<D::Cq>>(),
        size_ib_qp: size_of::<qp::Obj<D::Qp>>(),
        size_ib_srq: size_of::<srq::Obj<D::Srq>>(),
        size_ib_xrcd: size_of::<xrcd::Obj<D::Xrcd>>(),

        ..pin_init::zeroed()
    };
}
