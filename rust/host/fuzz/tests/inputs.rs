// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The fuzz targets without a fuzzer: with the inputs of the corpus, and with events by chance.

use std::fs;

use arbitrary::{
    Arbitrary,
    Unstructured, //
};

const RUNS: u64 = 100_000;

/// Each target with all inputs of its corpus, as libFuzzer reads them.
macro_rules! corpus {
    ($($target:ident),*) => {
        mod corpus {
            use super::*;

            $(
                #[test]
                fn $target() {
                    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/", stringify!($target));
                    let mut inputs = 0;
                    for entry in fs::read_dir(path).expect("a corpus") {
                        let bytes = fs::read(entry.expect("an entry").path()).expect("a file");
                        if let Ok(input) = Arbitrary::arbitrary_take_rest(Unstructured::new(&bytes)) {
                            fuzz::$target::run(input);
                            inputs += 1;
                        }
                    }
                    assert!(inputs >= 10, "only {inputs}");
                }
            )*
        }
    };
}

corpus!(conversation, icrc, packet, requester, responder, values);

#[test]
fn requester_by_chance() {
    for seed in 0..RUNS {
        fuzz::requester::run(fuzz::requester::Input::by_chance(seed));
    }
}

#[test]
fn responder_by_chance() {
    for seed in 0..RUNS {
        fuzz::responder::run(fuzz::responder::Input::by_chance(seed));
    }
}
