// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Tables against the texts that are committed beside this file.

use std::{
    env,
    fs,
    path::Path, //
};

/// Checks that `text` is what the file `name` holds. With `UPDATE_SNAPSHOTS` in the environment,
/// makes it so.
pub fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/snapshot")
        .join(name);
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap();
    for (line, (is, was)) in text.lines().zip(committed.lines()).enumerate() {
        assert_eq!(is, was, "{name}, line {}", line + 1);
    }
    assert_eq!(text, committed, "{name}: more or fewer lines");
}
