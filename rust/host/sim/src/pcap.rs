// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Captures that packet analyzers read.

use std::{
    fs::File,
    io::{
        BufWriter,
        Result,
        Write, //
    },
    path::Path, //
};

use roce::time::Instant;

/// Packets begin with the IP header.
const LINKTYPE_RAW: u32 = 101;

/// A capture file with time stamps in nanoseconds.
#[derive(Debug)]
pub struct Writer(BufWriter<File>);

impl Writer {
    /// Starts a capture.
    pub fn create(path: &Path) -> Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&0xa1b2_3c4du32.to_le_bytes())?;
        file.write_all(&[2, 0, 4, 0])?;
        file.write_all(&[0; 8])?;
        file.write_all(&65_535u32.to_le_bytes())?;
        file.write_all(&LINKTYPE_RAW.to_le_bytes())?;
        Ok(Self(file))
    }

    /// Adds a packet.
    pub fn write(&mut self, now: Instant, bytes: &[u8]) -> Result<()> {
        let len = bytes.len() as u32;
        for word in [
            (now.as_ns() / 1_000_000_000) as u32,
            (now.as_ns() % 1_000_000_000) as u32,
            len,
            len,
        ] {
            self.0.write_all(&word.to_le_bytes())?;
        }
        self.0.write_all(bytes)
    }
}
