// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The laws of PSN arithmetic.

use proptest::prelude::*;
use roce::psn::Psn;

fn psn() -> impl Strategy<Value = Psn> {
    prop_oneof![
        any::<u32>().prop_map(Psn::new),
        (0u32..4).prop_map(Psn::new),
        (0u32..4).prop_map(|n| Psn::new(0).sub(n)),
        (0u32..8).prop_map(|n| Psn::new(0x80_0000 - 4 + n)),
    ]
}

proptest! {
    #[test]
    fn invariant_holds(value: u32, a in psn(), n: u32) {
        prop_assert!(Psn::new(value).get() < 1 << 24);
        prop_assert!(a.add(n).get() < 1 << 24);
        prop_assert!(a.sub(n).get() < 1 << 24);
    }

    #[test]
    fn sub_undoes_add(a in psn(), n: u32) {
        prop_assert_eq!(a.add(n).sub(n), a);
        prop_assert_eq!(a.next().sub(1), a);
    }

    #[test]
    fn diff_leads_back(a in psn(), b in psn()) {
        let diff = a.diff(b);
        prop_assert!((-(1 << 23)..1 << 23).contains(&diff));
        prop_assert_eq!(b.add(diff as u32), a);
        prop_assert_eq!(b.add(a.steps_from(b)), a);
    }

    #[test]
    fn order_is_the_sign_of_diff(a in psn(), b in psn()) {
        prop_assert_eq!(a.is_before(b), a.diff(b) < 0);
        prop_assert_eq!(a.is_after(b), a.diff(b) > 0);
    }

    #[test]
    fn order_does_not_depend_on_the_place(a in psn(), b in psn(), n: u32) {
        prop_assert_eq!(a.add(n).diff(b.add(n)), a.diff(b));
    }
}

#[test]
fn wraps() {
    let last = Psn::new(0xff_ffff);
    assert_eq!(last.next(), Psn::new(0));
    assert_eq!(Psn::new(0).sub(1), last);
    assert!(last.is_before(Psn::new(0)));
    assert!(Psn::new(0).is_after(last));
}

#[test]
fn opposite_points_are_each_before_the_other() {
    let (a, b) = (Psn::new(0), Psn::new(1 << 23));
    assert_eq!(a.diff(b), -(1 << 23));
    assert_eq!(b.diff(a), -(1 << 23));
    assert!(a.is_before(b) && b.is_before(a));
    assert!(!a.is_after(b) && !b.is_after(a));
    assert!(b.sub(1).is_after(a));
}
