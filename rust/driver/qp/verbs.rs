// SPDX-License-Identifier: GPL-2.0

//! The verbs of a QP, but for `modify_qp` and `query_qp`.

use super::{
    attributes::Attributes,
    deadlines::Deadlines,
    paths::Paths,
    receive::{
        queue::RecvSource,
        Receiving, //
    },
    send::{
        queue::SendSource,
        Sending, //
    },
    table,
    Qp,
    Verbs, //
};
use crate::{
    device::{
        attributes::check_qp_cap,
        counters::{
            self,
            QpCounter, //
        },
        Device, //
    },
    live::{
        Kind,
        Live, //
    },
    memory::{
        context::{
            Context,
            MmapInfo,
            Published, //
        },
        key::Mr,
        paging_turns::{
            self,
            Pager,
            Turn, //
        },
        pd::Pd, //
    },
    packet::ah::Ah,
    queue::{
        cq::Cq,
        srq::Srq,
        xrcd::Xrcd, //
    }, //
};
use core::sync::atomic::{
    AtomicBool,
    AtomicU32, //
};
use kernel::{
    new_work,
    prelude::*,
    sync::Arc, //
};
use rdma::{
    details::Details,
    error::not_supported,
    qp::{
        Cap,
        Init,
        QueuePair,
        State,
        Type, //
    },
    udata::Udata,
    wr::{
        RecvWrs,
        SendWrs, //
    }, //
};
use sync::{
    new_spin_lock_bh,
    Gate, //
};

/// The response of `create_qp` to librxe: where its rings are.
#[derive(Clone, Copy, zerocopy_derive::IntoBytes, zerocopy_derive::Immutable)]
#[repr(C)]
struct CreateQpResponse {
    receive: MmapInfo,
    send: MmapInfo,
}

impl Qp {
    /// Makes a QP that nothing finds yet. Not inlined, so that its frame is no part of the caller's.
    /// Context: process, may sleep.
    #[inline(never)]
    fn new(
        pd: &Arc<Pd>,
        init: &Init<Self>,
        send: impl PinInit<Sending>,
        receive: impl PinInit<Receiving>,
        published: [Option<Published>; 2],
    ) -> Result<Arc<Self>> {
        let number = if init.ty == Type::Gsi {
            table::GSI_NUMBER
        } else {
            table::reserve_number()?
        };
        let ty = roce::qp::Type::try_from(init.ty as u32).map_err(|()| EINVAL)?;
        let turn = Turn::new()?;
        Arc::pin_init(
            pin_init!(Self {
                number,
                ty,
                pd: pd.clone(),
                gate <- Gate::new(),
                state: AtomicU32::new(State::Reset as u32),
                remote: AtomicU32::new(0),
                verbs <- Verbs::new(init, published),
                send <- send,
                receive <- receive,
                paths <- new_spin_lock_bh!(Paths::default()),
                is_armed: AtomicBool::new(false),
                deadlines <- Deadlines::new(),
                work <- new_work!("Qp::work"),
                paging <- new_work!("Qp::paging"),
                turn <- new_spin_lock_bh!(turn),
                bulk_send <- new_work!("Qp::bulk_send"),
                bulk_respond <- new_work!("Qp::bulk_respond"),
                _live: Live::new(Kind::Qp),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }
}

impl QueuePair for Qp {
    type Device = Device;
    type Context = Context;
    type Pd = Pd;
    type Ah = Ah;
    type Cq = Cq;
    type Srq = Srq;
    type Xrcd = Xrcd;
    type Mr = Mr;
    type Counter = QpCounter;

    fn create(
        pd: &Arc<Pd>,
        init: &mut Init<Self>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<Arc<Self>> {
        check_qp_cap(&init.cap, init.srq.is_some())?;
        if init.ty == Type::Gsi && init.srq.is_some() {
            return Err(EINVAL);
        }
        // A kernel consumer's requests have no field for the number of an XRC SRQ.
        if init.ty == Type::XrcInitiator && init.context.is_none() {
            return Err(not_supported());
        }
        if init.ty == Type::RawPacket {
            let netdev = pd.device().netdev().ok_or(ENODEV)?;
            // A kernel consumer that wants to send frames has the network stack.
            if init.context.is_none() || !netdev.has_ethernet_frames() {
                return Err(not_supported());
            }
        }

        let process = udata.zip(init.context.as_ref());
        let recv_source = match (&init.xrcd, &init.srq) {
            (Some(domain), _) => {
                init.cap = Cap::default();
                RecvSource::Domain(domain.clone())
            }
            (None, Some(srq)) => {
                (init.cap.max_recv_wr, init.cap.max_recv_sge) = (0, 0);
                RecvSource::Shared(srq.clone())
            }
            // It has no receive queue, whatever was asked for.
            _ if init.ty == Type::XrcInitiator => {
                (init.cap.max_recv_wr, init.cap.max_recv_sge) = (0, 0);
                RecvSource::Kernel
            }
            _ if process.is_some() => RecvSource::user(&mut init.cap)?,
            _ => RecvSource::Kernel,
        };
        let send_source = if process.is_some() {
            SendSource::user(&mut init.cap)?
        } else {
            SendSource::Kernel
        };
        let mut published = [None, None];
        if let Some((udata, context)) = process {
            let publish = |ring| context.publish(ring);
            published = [
                recv_source.ring().map(publish).transpose()?,
                send_source.ring().map(publish).transpose()?,
            ];
            let info =
                |ring: &Option<Published>| ring.as_ref().map_or(MmapInfo::NONE, Published::info);
            let [receive, send] = published.each_ref().map(info);
            udata.copy_out(&CreateQpResponse { receive, send })?;
        }

        let qp = Self::new(
            pd,
            init,
            Sending::new(init, send_source)?,
            Receiving::new(init, recv_source)?,
            published,
        )?;
        table::publish(&qp)?;
        // The lists have the number, so only its owner may be on them.
        match qp.enlist() {
            Ok(()) => Ok(qp),
            Err(error) => {
                qp.delist();
                table::withdraw(&qp);
                qp.release_completions();
                Err(error)
            }
        }
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn destroy(self: &Arc<Self>) {
        self.delist();
        table::withdraw(self);
        self.settle();
        self.gate.close_and_wait();
        self.release_completions();
        self.deadlines.shutdown();
        let pager: Arc<dyn Pager> = self.clone();
        paging_turns::withdraw(&pager);
        self.set_state(State::Reset);
        for ring in self.verbs.published.iter().flatten() {
            ring.withdraw();
        }
        // Requests hold references to address handles, regions and routes, and the attributes one to
        // the GID table: let go of them now, not when the last packet in flight lets go of the QP.
        *self.verbs.attributes.lock() = Attributes::default();
        self.send.lock().reset(self);
        self.receive.lock().reset(self);
        self.with_paths(Paths::reset);
    }

    fn doorbell(self: &Arc<Self>) -> Result {
        self.ring_doorbell()
    }

    fn post_send(self: &Arc<Self>, wrs: &mut SendWrs<'_, Ah, Mr>) -> Result {
        if !self.takes_sends() {
            let _ = wrs.next();
            return Err(EINVAL);
        }
        // Refused at once, or the CM would repeat a message for more than a minute, while its clients keep the device.
        if self.is_general_services() && self.device().is_dead() {
            let _ = wrs.next();
            return Err(EIO);
        }
        let result = match &mut *self.send.posted.lock() {
            Some(posted) => wrs.by_ref().try_for_each(|wr| posted.push(&wr)),
            None => return Err(EINVAL),
        };
        trace::post_send(self.number);
        self.send.worker.move_here();
        self.kick();
        result
    }

    fn post_recv(self: &Arc<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        if self.state() == State::Reset {
            let _ = wrs.next();
            return Err(EINVAL);
        }
        let result = match &mut *self.receive.posted.lock() {
            Some(posted) => posted.post(wrs),
            None => return Err(EINVAL),
        };
        if self.state() == State::Error {
            self.kick();
        }
        result
    }

    fn bind_counter(&self, counter: &Arc<QpCounter>) -> Result {
        {
            let mut send = self.send.lock();
            if send.tally.is_bound() {
                return Err(EBUSY);
            }
            send.report(self);
            send.tally.bind(Some(counter.clone()));
        }
        let mut receive = self.receive.lock();
        receive.report(self);
        receive.tally.bind(Some(counter.clone()));
        Ok(())
    }

    fn unbind_counter(&self) {
        {
            let mut receive = self.receive.lock();
            receive.report(self);
            receive.tally.bind(None);
        }
        let mut send = self.send.lock();
        send.report(self);
        send.tally.bind(None);
    }

    /// Its sizes, and what it has counted, if anything.
    fn describe(&self, details: &mut Details<'_>) -> Result {
        let posted = self.send.lock().requester.len();
        details.number(c"max_sends", self.verbs.cap.max_send_wr.into())?;
        details.number(c"sends", posted.into())?;
        details.number(c"max_recvs", self.verbs.cap.max_recv_wr.into())?;
        let sent = self.send.lock().counted();
        let received = self.receive.lock().counted();
        for (counter, value) in (counters::OF_SENDS.into_iter().zip(sent))
            .chain(counters::OF_RECEIVES.into_iter().zip(received))
        {
            if value != 0 {
                details.number(counter.name(), value)?;
            }
        }
        Ok(())
    }
}
