// SPDX-License-Identifier: GPL-2.0

//! As much of `proptest` as the tests use: values at random, the same at every run, that do not shrink.
//!
//! A property that fails says with which values.

use std::{
    fmt::Debug,
    marker::PhantomData,
    ops, //
};

/// How often a property is tried.
const TRIALS: u64 = 256;

/// Pseudo-random numbers.
pub struct Random(u64);

impl Random {
    /// Those of one trial of one property.
    fn new(property: &str, trial: u64) -> Self {
        let mut random = Self(trial);
        for byte in property.bytes() {
            random.0 ^= u64::from(byte);
            random.next();
        }
        random
    }

    /// The next number: a linear congruence, whose upper bits are the good ones, folded twice.
    fn next(&mut self) -> u64 {
        let mut half = || {
            self.0 = self
                .0
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            (self.0 >> 32) ^ (self.0 >> 59)
        };
        half() << 32 | half()
    }

    /// A number below `bound`, which is not zero.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// What makes values.
pub trait Strategy {
    /// Their type.
    type Value: Debug;

    /// Makes one.
    fn draw(&self, random: &mut Random) -> Self::Value;

    /// One that makes others of them.
    fn prop_map<T: Debug, F: Fn(Self::Value) -> T>(self, map: F) -> Map<Self, F>
    where
        Self: Sized,
    {
        Map(self, map)
    }
}

/// Values made of another strategy's.
pub struct Map<S, F>(S, F);

impl<S: Strategy, T: Debug, F: Fn(S::Value) -> T> Strategy for Map<S, F> {
    type Value = T;

    fn draw(&self, random: &mut Random) -> T {
        self.1(self.0.draw(random))
    }
}

/// What makes a value, whatever strategy it is of.
type Draw<T> = Box<dyn Fn(&mut Random) -> T>;

/// A strategy among others.
pub struct OneOf<T>(pub Vec<Draw<T>>);

impl<T: Debug> Strategy for OneOf<T> {
    type Value = T;

    fn draw(&self, random: &mut Random) -> T {
        let index = random.below(self.0.len() as u64);
        self.0[index as usize](random)
    }
}

/// Types of which any value may be made.
pub trait Arbitrary: Debug {
    /// Makes one.
    fn arbitrary(random: &mut Random) -> Self;
}

impl<T: Arbitrary, const N: usize> Arbitrary for [T; N] {
    fn arbitrary(random: &mut Random) -> Self {
        [(); N].map(|()| T::arbitrary(random))
    }
}

impl<T: Arbitrary> Arbitrary for Vec<T> {
    fn arbitrary(random: &mut Random) -> Self {
        let len = random.below(100);
        (0..len).map(|_| T::arbitrary(random)).collect()
    }
}

/// Any value of a type.
pub struct Any<T>(PhantomData<T>);

impl<T: Arbitrary> Strategy for Any<T> {
    type Value = T;

    fn draw(&self, random: &mut Random) -> T {
        T::arbitrary(random)
    }
}

/// Any value of a type.
pub fn any<T: Arbitrary>() -> Any<T> {
    Any(PhantomData)
}

macro_rules! integers {
    ($($integer:ident)*) => {$(
        impl Arbitrary for $integer {
            fn arbitrary(random: &mut Random) -> Self {
                random.next() as Self
            }
        }

        // `u64::from` is not there for all of them.
        #[allow(clippy::cast_lossless)]
        impl Strategy for ops::Range<$integer> {
            type Value = $integer;

            fn draw(&self, random: &mut Random) -> $integer {
                self.start + random.below((self.end - self.start) as u64) as $integer
            }
        }

        #[allow(clippy::cast_lossless)]
        impl Strategy for ops::RangeInclusive<$integer> {
            type Value = $integer;

            fn draw(&self, random: &mut Random) -> $integer {
                match ((self.end() - self.start()) as u64).checked_add(1) {
                    Some(count) => self.start() + random.below(count) as $integer,
                    None => random.next() as $integer,
                }
            }
        }
    )*};
}
integers!(u8 u32 u64 usize);

macro_rules! tuples {
    ($($(($strategy:ident $field:tt))*;)*) => {$(
        impl<$($strategy: Strategy),*> Strategy for ($($strategy,)*) {
            type Value = ($($strategy::Value,)*);

            fn draw(&self, random: &mut Random) -> Self::Value {
                ($(self.$field.draw(random),)*)
            }
        }
    )*};
}
tuples! {
    (A 0);
    (A 0)(B 1);
    (A 0)(B 1)(C 2);
    (A 0)(B 1)(C 2)(D 3);
}

pub mod sample {
    //! Values from lists.

    use super::{
        Debug,
        Random,
        Strategy, //
    };

    /// An element of a list.
    pub struct Select<T: 'static>(&'static [T]);

    impl<T: Debug + Clone> Strategy for Select<T> {
        type Value = T;

        fn draw(&self, random: &mut Random) -> T {
            let index = random.below(self.0.len() as u64);
            self.0[index as usize].clone()
        }
    }

    /// An element of `list`.
    pub fn select<T: Debug + Clone>(list: &'static [T]) -> Select<T> {
        Select(list)
    }
}

pub mod collection {
    //! Several values.

    use super::{
        ops,
        Random,
        Strategy, //
    };

    /// How many there may be.
    pub struct Size(ops::Range<usize>);

    impl From<usize> for Size {
        fn from(size: usize) -> Self {
            Self(size..size + 1)
        }
    }

    impl From<ops::Range<usize>> for Size {
        fn from(sizes: ops::Range<usize>) -> Self {
            Self(sizes)
        }
    }

    /// Values in a row.
    pub struct VecStrategy<S>(S, Size);

    impl<S: Strategy> Strategy for VecStrategy<S> {
        type Value = Vec<S::Value>;

        fn draw(&self, random: &mut Random) -> Self::Value {
            let len = self.1 .0.draw(random);
            (0..len).map(|_| self.0.draw(random)).collect()
        }
    }

    /// So many values of one strategy.
    pub fn vec<S: Strategy>(strategy: S, size: impl Into<Size>) -> VecStrategy<S> {
        VecStrategy(strategy, size.into())
    }
}

/// Tries a property.
pub fn run<S: Strategy>(
    property: &str,
    strategy: S,
    holds: impl Fn(S::Value) -> Result<(), String>,
) {
    for trial in 0..TRIALS {
        if let Err(message) = holds(strategy.draw(&mut Random::new(property, trial))) {
            // The same once more: they have been moved, and are of interest only now.
            let values = strategy.draw(&mut Random::new(property, trial));
            panic!("trial {trial} with {values:?}: {message}");
        }
    }
}

pub mod prelude {
    //! What tests have in scope.

    pub use super::{
        any,
        Strategy, //
    };
    pub use crate::{
        prop_assert,
        prop_assert_eq,
        prop_oneof,
        proptest, //
    };
}

/// Functions with parameters at random.
#[macro_export]
macro_rules! proptest {
    ($($(#[$attribute:meta])* fn $name:ident($($parameters:tt)*) $body:block)*) => {$(
        $(#[$attribute])*
        fn $name() {
            $crate::property!($name $body [] [] $($parameters)*)
        }
    )*};
}

/// One of them, its parameters taken apart into patterns and strategies.
#[doc(hidden)]
#[macro_export]
macro_rules! property {
    ($name:ident $body:block [$($pattern:pat,)*] [$($strategy:expr,)*]) => {
        $crate::run(stringify!($name), ($($strategy,)*), |($($pattern,)*)| {
            $body
            #[allow(unreachable_code)]
            Ok(())
        })
    };
    ($name:ident $body:block [$($done:tt)*] [$($from:tt)*] mut $value:ident: $type:ty $(, $($rest:tt)*)?) => {
        $crate::property!($name $body [$($done)* mut $value,] [$($from)* $crate::any::<$type>(),] $($($rest)*)?)
    };
    ($name:ident $body:block [$($done:tt)*] [$($from:tt)*] $value:ident: $type:ty $(, $($rest:tt)*)?) => {
        $crate::property!($name $body [$($done)* $value,] [$($from)* $crate::any::<$type>(),] $($($rest)*)?)
    };
    ($name:ident $body:block [$($done:tt)*] [$($from:tt)*] $value:pat in $strategy:expr $(, $($rest:tt)*)?) => {
        $crate::property!($name $body [$($done)* $value,] [$($from)* $strategy,] $($($rest)*)?)
    };
}

/// One of several strategies.
#[macro_export]
macro_rules! prop_oneof {
    ($($strategy:expr),* $(,)?) => {
        $crate::OneOf(vec![$({
            let strategy = $strategy;
            Box::new(move |random: &mut $crate::Random| $crate::Strategy::draw(&strategy, random))
        },)*])
    };
}

/// The property does not hold unless the condition does.
#[macro_export]
macro_rules! prop_assert {
    ($condition:expr $(,)?) => {
        if !$condition {
            return Err(format!("{}, line {}", stringify!($condition), line!()));
        }
    };
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!(
                "{}, line {}: {}",
                stringify!($condition),
                line!(),
                format_args!($($message)+)
            ));
        }
    };
}

/// The property does not hold unless both are equal.
#[macro_export]
macro_rules! prop_assert_eq {
    ($left:expr, $right:expr $(,)?) => {
        match (&$left, &$right) {
            (left, right) => {
                if !(*left == *right) {
                    return Err(format!(
                        "{} == {}, line {}\n left: {left:?}\nright: {right:?}",
                        stringify!($left),
                        stringify!($right),
                        line!()
                    ));
                }
            }
        }
    };
}
