// SPDX-License-Identifier: GPL-2.0

//! `modify_qp` and `query_qp`.

use super::{
    now,
    paths::{
        Alternate,
        Paths, //
    },
    Qp, //
};
use crate::{
    device::attributes::{
        MAX_RD_ATOMIC,
        MAX_TAKEN_RD_ATOMIC, //
    },
    memory::access::Access,
    packet::path::{
        self,
        Path, //
    },
    storage::filled, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    port,
    qp::{
        Attr,
        AttrMask,
        Modify,
        State, //
    }, //
};
use roce::{
    psn::Psn,
    qp as protocol,
    requester::RequesterConfig,
    responder::{
        RemoteAccess,
        Resource,
        ResponderConfig, //
    },
    time, //
};

/// Request packets that a QP may have outstanding, and as many READ responses. At first: few enough for 16 QPs to fit into
/// a receiver's backlog (`net.core.netdev_max_backlog`, 1000 packets). At the most: enough for two CPUs, one that builds
/// them and one that takes them in, each of which does 100 at a time.
const WINDOW_PACKETS: u32 = 64;
const WINDOW_PACKETS_MOST: u32 = 256;

/// A QP's attributes as they were set.
#[derive(Default)]
pub(crate) struct Attributes {
    set: Attr,
    /// The migrations that `set` tells of.
    migrations: u32,
}

impl Attributes {
    /// Catches up with a migration: what was said of the alternate path holds for the primary one now. There
    /// is at most one between two changes by the consumer, who has to load the next path.
    fn follow(&mut self, qp: &Qp) {
        let (state, migrations) = {
            let paths = qp.paths.lock();
            (paths.state(), paths.migrations())
        };
        let set = &mut self.set;
        set.path_mig_state = state as u32;
        if self.migrations == migrations {
            return;
        }
        self.migrations = migrations;
        set.address = set.alt_address.take();
        set.port = core::mem::take(&mut set.alt_port);
        set.pkey_index = core::mem::take(&mut set.alt_pkey_index);
        set.timeout = core::mem::take(&mut set.alt_timeout);
    }
}

impl Modify for Qp {
    fn modify(self: &Arc<Self>, attr: &Attr, mask: AttrMask) -> Result {
        let mut attributes = self.verbs.attributes.lock();
        attributes.follow(self);
        let from = self.state();
        if mask.contains(AttrMask::CUR_STATE) && attr.cur_state != from {
            return Err(EINVAL);
        }
        let to = if mask.contains(AttrMask::STATE) {
            attr.state
        } else {
            from
        };
        // `uverbs` adds the port to an address. The core's table does not have it for UC in SQD.
        let asked = if from == State::Sqd && mask.contains(AttrMask::AV) {
            mask.without(AttrMask::PORT)
        } else {
            mask
        };
        if !asked.allow(self.ty as u32, from, to) {
            return Err(EINVAL);
        }
        check_values(self, attr, mask)?;
        // Messages are under way as they were begun: neither their attributes nor the end of the wait for
        // them change (IBTA 10.3.1.5). It starts none meanwhile, so what is drained stays so.
        let stays = matches!(to, State::Rts | State::Sqd);
        if from == State::Sqd && stays && !self.send.lock().is_drained() {
            return Err(EINVAL);
        }

        if from == State::Rts && to == State::Sqd {
            self.run_send();
        }

        let peer = if mask.contains(AttrMask::DEST_QPN) {
            attr.dest_qp_num
        } else {
            attributes.set.dest_qp_num
        };
        let resolve = |address| {
            // A connected QP has one peer.
            if path::is_to_group(address) {
                return Err(EINVAL);
            }
            let has_window = self.ty.is_reliable();
            Path::resolve(self.device(), address, self.number, peer, has_window)
        };
        let primary = attr.address.as_ref().map(resolve).transpose()?;
        // Packets of full size will all be dropped on this machine, but short ones get through: the peer of `rdma_cm` may
        // have chosen the MTU, by its own netdev.
        let is_too_long = |path: &Arc<Path>| attr.path_mtu > path.mtu_enum();
        if primary.as_ref().is_some_and(is_too_long) && net::may_log() {
            pr_warn!(
                "QP {}: the path MTU is longer than the route to the peer takes; full packets will be dropped\n",
                self.number,
            );
        }
        let alternate = match &attr.alt_address {
            Some(address) => Some(Alternate {
                path: resolve(address)?,
                timeout: attr.alt_timeout,
            }),
            None => None,
        };
        let wanted = if mask.contains(AttrMask::PATH_MIG_STATE) {
            let wanted = protocol::MigrationState::try_from(attr.path_mig_state);
            Some(wanted.map_err(|()| EINVAL)?)
        } else {
            None
        };
        let new_resources = if mask.contains(AttrMask::MAX_DEST_RD_ATOMIC) {
            // Requesters of other drivers round their limit up to a power of two, as do responders.
            let count = match attr.max_dest_rd_atomic {
                0 => 0,
                count => usize::from(count).next_power_of_two(),
            };
            Some(filled(count, || Ok(Resource::default()))?)
        } else {
            None
        };
        if matches!(to, State::Reset | State::Error) && self.takes_packets() {
            // A consumer that ends a connection has seen the completions of its receives.
            self.settle();
        }
        let migrated = self.with_paths(|paths| paths.modify(primary, alternate, wanted));
        // An address may have gone since the paths were looked up.
        self.lose_paths();
        let migrated = migrated?;
        merge(&mut attributes.set, attr, mask);
        if from != State::Sqd && to == State::Sqd && !mask.contains(AttrMask::EN_SQD_ASYNC_NOTIFY) {
            // It is asked for each time.
            attributes.set.en_sqd_async_notify = false;
        }
        if let Some(migrated) = &migrated {
            self.migrated(migrated);
        }
        attributes.follow(self);

        match to {
            State::Reset => reset(self, &mut attributes),
            State::Error => {
                drop(attributes);
                if from != State::Error {
                    self.enter_error(None);
                }
            }
            _ => {
                apply_receive(self, &attributes.set, (from, to), new_resources);
                apply_send(self, &attributes, from, to)?;
                drop(attributes);
                if to == State::Rts || to == State::Sqd {
                    self.run_send();
                }
                // A device that is retired has had its QPs fail: this one may have come after that.
                if self.is_of_process() && self.device().is_retired() {
                    self.fail();
                }
            }
        }
        Ok(())
    }

    fn query(self: &Arc<Self>) -> Attr {
        let mut attributes = self.verbs.attributes.lock();
        attributes.follow(self);
        let mut attr = attributes.set.clone();
        attr.path_mtu = match self.ty.is_connected() {
            true => path_mtu(self, &attr) as u32,
            false => self.device().mtu() as u32,
        };
        if self.is_general_services() {
            attr.port = port::NUMBER;
        }
        attr.state = self.state();
        attr.cur_state = attr.state;
        // A side that is configured shows the PSN of its next request, not the one that was set.
        if !self.is_datagram()
            && matches!(
                attr.state,
                State::Rtr | State::Rts | State::Sqd | State::Sqe
            )
        {
            attr.rq_psn = self.receive.lock().responder.expected_psn().get();
        }
        if matches!(attr.state, State::Rts | State::Sqd | State::Sqe) {
            attr.sq_psn = self.send.lock().requester.next_psn().get();
        }
        attr.cap = self.verbs.cap;
        attr.sq_draining = attr.state == State::Sqd && !self.send.lock().is_drained();
        attr
    }
}

fn check_values(qp: &Qp, attr: &Attr, mask: AttrMask) -> Result {
    let mtu = qp.device().mtu();
    if attr.path_mtu > mtu as u32 && net::may_log() {
        pr_warn!(
            "QP {}: refused: the path MTU is above its port's of {} bytes: give the netdevs of both hosts the same MTU\n",
            qp.number,
            mtu.bytes(),
        );
    }
    // Attributes outside the mask are zero.
    let refused = (mask.contains(AttrMask::PORT) && attr.port != port::NUMBER)
        || attr.pkey_index != 0
        || (mask.contains(AttrMask::PATH_MTU) && attr.path_mtu == 0)
        || attr.path_mtu > mtu as u32
        || u32::from(attr.max_rd_atomic) > MAX_TAKEN_RD_ATOMIC
        || u32::from(attr.max_dest_rd_atomic) > MAX_RD_ATOMIC
        || attr.timeout > 31
        || attr.retry_cnt > 7
        || attr.rnr_retry > 7
        || attr.min_rnr_timer > 31
        || mask.contains(AttrMask::CAP)
        || (mask.contains(AttrMask::ALT_PATH) && attr.alt_port != port::NUMBER)
        || attr.alt_pkey_index != 0
        || attr.alt_timeout > 31;
    if refused {
        return Err(EINVAL);
    }
    Ok(())
}

fn merge(set: &mut Attr, attr: &Attr, mask: AttrMask) {
    macro_rules! take {
        ($($bit:ident => $field:ident),* $(,)?) => {
            $(if mask.contains(AttrMask::$bit) {
                set.$field = attr.$field.clone();
            })*
        };
    }
    take!(
        ACCESS_FLAGS => access,
        PKEY_INDEX => pkey_index,
        PORT => port,
        QKEY => qkey,
        AV => address,
        PATH_MTU => path_mtu,
        TIMEOUT => timeout,
        RETRY_CNT => retry_cnt,
        RNR_RETRY => rnr_retry,
        RQ_PSN => rq_psn,
        MAX_QP_RD_ATOMIC => max_rd_atomic,
        MIN_RNR_TIMER => min_rnr_timer,
        SQ_PSN => sq_psn,
        MAX_DEST_RD_ATOMIC => max_dest_rd_atomic,
        DEST_QPN => dest_qp_num,
        EN_SQD_ASYNC_NOTIFY => en_sqd_async_notify,
        ALT_PATH => alt_address,
        ALT_PATH => alt_port,
        ALT_PATH => alt_pkey_index,
        ALT_PATH => alt_timeout,
    );
}

fn reset(qp: &Arc<Qp>, attributes: &mut Attributes) {
    let before = qp.state();
    qp.set_state(State::Reset);
    // It sends nothing more.
    qp.send.lock().reset(qp);
    qp.receive.lock().reset(qp);
    if !matches!(before, State::Reset | State::Init) {
        // A packet from the former peer may have been admitted and not taken in. The next connection must not get it. Nor
        // may the QP have another peer while a packet of this one is on a stack (`demux::receive_own`).
        sync::synchronize_rcu();
        // Also what such a packet has left.
        qp.send.lock().reset(qp);
    }
    qp.wait_until_sent();
    qp.receive.lock().reset(qp);
    qp.with_paths(Paths::reset);
    qp.send.cq.forget(&qp.verbs.handle);
    qp.receive.cq.forget(&qp.verbs.handle);
    *attributes = Attributes::default();
}

/// The MTU that messages are cut up by. A datagram is one packet: the port's MTU, which may change, bounds its length
/// when it is sent.
fn path_mtu(qp: &Qp, set: &Attr) -> protocol::Mtu {
    match qp.ty.is_connected() {
        true => protocol::Mtu::try_from(set.path_mtu).unwrap_or(protocol::Mtu::M256),
        false => protocol::Mtu::M4096,
    }
}

/// Copies the attributes to the receive side. `resources`: room for the READs and atomics that the peer may have
/// outstanding, if their number changes.
fn apply_receive(
    qp: &Arc<Qp>,
    set: &Attr,
    (from, to): (State, State),
    resources: Option<KVVec<Resource>>,
) {
    let mut receive = qp.receive.lock();
    let old = resources.map(|resources| receive.responder.replace_storage(resources));
    if from == State::Init && to == State::Rtr {
        qp.remote
            .store(set.dest_qp_num, core::sync::atomic::Ordering::Relaxed);
        let has_srq = receive.has_srq();
        receive.responder.configure(ResponderConfig {
            service: qp.ty,
            mtu: path_mtu(qp, set),
            expected_psn: Psn::new(set.rq_psn),
            dest_qpn: set.dest_qp_num,
            min_rnr_timer: set.min_rnr_timer,
            access: responder_access(set),
            qkey: set.qkey,
            pkey: crate::device::port::DEFAULT_PKEY,
            has_srq,
        });
    } else {
        receive.responder.set_access(responder_access(set));
        receive.responder.set_min_rnr_timer(set.min_rnr_timer);
        receive.responder.set_qkey(set.qkey);
    }
    drop(receive);
    drop(old);
}

/// Puts the attributes where requests are made of them, and changes the state, both in one moment.
///
/// Errors: `EINVAL` if the QP has failed meanwhile.
fn apply_send(qp: &Arc<Qp>, attributes: &Attributes, from: State, to: State) -> Result {
    let set = &attributes.set;
    let config = RequesterConfig {
        service: qp.ty,
        mtu: path_mtu(qp, set),
        dest_qpn: set.dest_qp_num,
        src_qpn: qp.number,
        pkey: crate::device::port::DEFAULT_PKEY,
        initial_psn: Psn::new(set.sq_psn),
        timeout: time::ack_timeout(set.timeout),
        retry_count: set.retry_cnt,
        rnr_retry: set.rnr_retry,
        max_rd_atomic: set.max_rd_atomic,
        window_packets: WINDOW_PACKETS,
        window_packets_most: WINDOW_PACKETS_MOST,
    };
    if from == State::Sqe {
        // All requests posted until now are flushed, whether or not their turn has come (IBTA 10.3.1).
        qp.flush_posted_sends();
    }
    let mut send = qp.send.lock();
    // First: a QP that has failed must not get a requester that does not know. One that fails from now on waits for
    // the lock with what it has to tell it.
    if !qp.change_state(from, to) {
        return Err(EINVAL);
    }
    send.qkey = set.qkey;
    if from == State::Rtr && to == State::Rts {
        send.requester.configure(config);
    } else {
        // A migration since has brought its own.
        if qp.paths.lock().migrations() == attributes.migrations {
            send.requester.set_timeout(config.timeout);
        }
        send.requester.set_retry_count(config.retry_count);
        send.requester.set_rnr_retry(config.rnr_retry);
        send.requester.set_max_rd_atomic(config.max_rd_atomic);
    }
    match to {
        // In RTS already, it must not forget an error that is about to take it to SQE.
        State::Rts if from != State::Rts => send.requester.start(),
        State::Sqd if from != State::Sqd => {
            send.requester.pause(now());
            send.tell_drained = set.en_sqd_async_notify;
        }
        _ => {}
    }
    Ok(())
}

fn responder_access(set: &Attr) -> RemoteAccess {
    let bits = Access::from_bits(set.access);
    RemoteAccess {
        write: bits.contains(Access::REMOTE_WRITE),
        read: bits.contains(Access::REMOTE_READ),
        atomic: bits.contains(Access::REMOTE_ATOMIC),
        flush_global: bits.contains(Access::FLUSH_GLOBAL),
        flush_persistent: bits.contains(Access::FLUSH_PERSISTENT),
    }
}
