// SPDX-License-Identifier: GPL-2.0

//! QPs fail with a queue that they use (IBTA 10.2.9.5, 11.6.3.2).

use super::{
    table,
    Qp, //
};
use crate::queue::{
    cq::{
        Cq,
        OVERFLOW, //
    },
    srq::Srq,
    users::Users, //
};
use kernel::{
    sync::Arc,
    workqueue::WorkItem, //
};
use rdma::qp::State;

impl WorkItem<OVERFLOW> for Cq {
    type Pointer = Arc<Cq>;

    fn run(cq: Arc<Cq>) {
        cq.tell_overflow();
        // Their consumers cannot know any more what has become of their requests.
        fail(cq.users(), |qp| qp.posts_to(&cq));
    }
}

impl WorkItem for Srq {
    type Pointer = Arc<Srq>;

    fn run(srq: Arc<Srq>) {
        srq.tell_failure();
        fail(srq.users(), |qp| qp.takes_from(&srq));
    }
}

/// Moves each QP, if `is_user` says that it is one, to the error state, and tells its consumer. One in error stays:
/// it is flushed already, at its own pace.
fn fail(users: &Users, is_user: impl Fn(&Qp) -> bool) {
    users.for_each(|number| {
        let qp = table::find(number);
        if let Some(qp) = qp.filter(|qp| is_user(qp) && qp.state() != State::Error) {
            qp.fail();
        }
    });
}
