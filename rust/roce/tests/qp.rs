// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The numbers of types and path MTUs.

use roce::qp::{
    Mtu,
    Type, //
};

#[test]
fn numbers_are_those_of_the_verbs() {
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
