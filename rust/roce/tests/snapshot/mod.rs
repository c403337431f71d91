// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Tables against the texts that are committed beside this file.

/// The texts by their names, as they were when the tests were compiled: in the kernel there are no files.
const COMMITTED: [(&str, &str); 1] = [("opcodes.txt", include_str!("opcodes.txt"))];

/// Checks that `text` is what the file `name` holds. With `UPDATE_SNAPSHOTS` in the environment,
/// makes it so.
pub fn check(name: &str, text: &str) {
    #[cfg(not(CONFIG_RUST))]
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshot");
        std::fs::write(folder.join(name), text).unwrap();
        return;
    }
    let (_, committed) = COMMITTED
        .into_iter()
        .find(|(known, _)| *known == name)
        .unwrap();
    for (line, (is, was)) in text.lines().zip(committed.lines()).enumerate() {
        assert_eq!(is, was, "{name}, line {}", line + 1);
    }
    assert_eq!(text, committed, "{name}: more or fewer lines");
}
