// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The whole table of QP state transitions against a committed text, and what follows from it.

use std::fmt::Write;

use proptest::prelude::*;
use roce::qp::{
    check,
    transition,
    AttrMask,
    Mtu,
    State,
    TransitionError,
    Type, //
};

mod snapshot;

fn every() -> impl Iterator<Item = (State, State, Type)> {
    State::ALL.into_iter().flat_map(|from| {
        State::ALL
            .into_iter()
            .flat_map(move |to| Type::ALL.into_iter().map(move |ty| (from, to, ty)))
    })
}

fn names(mask: AttrMask) -> String {
    let has = |(attr, name): &(AttrMask, &'static str)| mask.contains(*attr).then_some(*name);
    let names: Vec<&str> = AttrMask::NAMES.iter().filter_map(has).collect();
    if names.is_empty() {
        "-".to_owned()
    } else {
        names.join("|")
    }
}

#[test]
fn table_is_as_committed() {
    let mut text = String::new();
    for (from, to, ty) in every() {
        write!(text, "{from:?} -> {to:?}, {ty:?}: ").unwrap();
        match transition(from, to, ty) {
            None => writeln!(text, "no"),
            Some(it) => {
                let [required, optional] = [it.required, it.optional].map(names);
                writeln!(text, "required {required}; optional {optional}")
            }
        }
        .unwrap();
    }
    snapshot::check("transitions.txt", &text);
}

#[test]
fn required_and_optional_are_apart() {
    for (from, to, ty) in every() {
        if let Some(it) = transition(from, to, ty) {
            assert_eq!(it.required.without(it.optional), it.required);
            assert!(!(it.required | it.optional).contains(AttrMask::STATE));
        }
    }
}

#[test]
fn reset_and_err_ask_for_nothing() {
    for from in State::ALL {
        for ty in Type::ALL {
            for to in [State::Reset, State::Err] {
                if (from, to) == (State::Reset, State::Err) {
                    // Linux has it so.
                    assert_eq!(
                        check(from, to, ty, AttrMask::STATE),
                        Err(TransitionError::NotAllowed)
                    );
                    continue;
                }
                assert_eq!(check(from, to, ty, AttrMask::STATE), Ok(()));
                assert_eq!(
                    check(from, to, ty, AttrMask::STATE | AttrMask::QKEY),
                    Err(TransitionError::Unexpected(AttrMask::QKEY))
                );
            }
        }
    }
}

#[test]
fn current_state_may_be_given_only_where_it_may_change_by_itself() {
    for (from, to, ty) in every() {
        let known = transition(from, to, ty)
            .is_some_and(|it| (it.required | it.optional).contains(AttrMask::CUR_STATE));
        if known {
            assert!(matches!(
                from,
                State::Rtr | State::Rts | State::Sqd | State::Sqe
            ));
        }
    }
}

#[test]
fn error_says_what_is_wrong() {
    let (from, to) = (State::Reset, State::Init);
    let given = AttrMask::STATE | AttrMask::PORT;
    assert_eq!(
        check(from, to, Type::Rc, given),
        Err(TransitionError::Missing(
            AttrMask::PKEY_INDEX | AttrMask::ACCESS_FLAGS
        ))
    );
    let given = given | AttrMask::PKEY_INDEX | AttrMask::ACCESS_FLAGS;
    assert_eq!(check(from, to, Type::Rc, given), Ok(()));
    let unnamed = AttrMask::from_bits(1 << 31);
    assert_eq!(
        check(from, to, Type::Rc, given | unnamed),
        Err(TransitionError::Unexpected(unnamed))
    );
    assert_eq!(
        check(from, State::Rts, Type::Rc, given),
        Err(TransitionError::NotAllowed)
    );
}

proptest! {
    #[test]
    fn check_agrees_with_the_table(bits in 0u32..1 << 26, drop: u32) {
        // Dropping some attributes of a full set finds more good ones than chance alone would.
        for (from, to, ty) in every() {
            let it = transition(from, to, ty);
            let full = it.map_or(AttrMask::NONE, |it| it.required | it.optional);
            for mask in [AttrMask::from_bits(bits), AttrMask::from_bits(full.bits() & drop), full] {
                let good = it.is_some_and(|it| {
                    mask.contains(it.required) && (full | AttrMask::STATE).contains(mask)
                });
                prop_assert_eq!(check(from, to, ty, mask).is_ok(), good);
            }
        }
    }
}

#[test]
fn numbers_are_those_of_the_verbs() {
    for (number, state) in (0..).zip(State::ALL) {
        assert_eq!(State::try_from(number), Ok(state));
    }
    assert_eq!(State::try_from(7), Err(()));
    for (number, ty) in [1, 2, 3, 4, 8, 9, 10].into_iter().zip(Type::ALL) {
        assert_eq!(Type::try_from(number), Ok(ty));
    }
    for number in [0, 5, 6, 7, 11] {
        assert_eq!(Type::try_from(number), Err(()));
    }
    for (number, mtu) in (1..).zip(Mtu::ALL) {
        assert_eq!(Mtu::try_from(number), Ok(mtu));
        assert_eq!(mtu.bytes(), 128 << number);
        assert_eq!(1 << mtu.shift(), mtu.bytes());
        assert_eq!(Mtu::at_most(mtu.bytes()), Some(mtu));
        assert_eq!(Mtu::at_most(mtu.bytes() * 2 - 1), Some(mtu));
    }
    assert_eq!(Mtu::at_most(255), None);
    assert_eq!(Mtu::try_from(6), Err(()));
}
