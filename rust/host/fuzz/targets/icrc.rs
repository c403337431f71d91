// SPDX-License-Identifier: GPL-2.0 OR MIT

#![no_main]

libfuzzer_sys::fuzz_target!(|input: fuzz::icrc::Input<'_>| fuzz::icrc::run(input));
