// SPDX-License-Identifier: GPL-2.0

//! Whole frames that a raw packet QP sends, past the IP stack.

use crate::{
    device::Device,
    memory::{
        access::Fault,
        buffer::Payload, //
    }, //
};
use kernel::prelude::*;
use net::{
    frame::ETHERNET_LEN,
    Transmit,
    TxFrame, //
    TxNetdev,
};

/// Why a frame could not be built.
pub(crate) enum FrameError {
    /// No memory for it, or no netdev any more: it is lost, as any that the network drops.
    Lost,
    /// It is shorter than a header, or longer than the netdev takes it.
    Length,
    /// Its memory may not be read.
    Payload(Fault),
}

/// Builds a frame of `len` bytes to leave by `tx_netdev`.
fn build(
    tx_netdev: &TxNetdev,
    len: usize,
    payload: Payload<'_, '_>,
) -> Result<TxFrame, FrameError> {
    let (_, max) = tx_netdev.max_len();
    if len < ETHERNET_LEN || len > max {
        return Err(FrameError::Length);
    }
    let mut frame = TxFrame::alloc(len).ok_or(FrameError::Lost)?;
    payload
        .copy_to(frame.bytes_mut())
        .map_err(FrameError::Payload)?;
    if !tx_netdev.takes(&frame) {
        return Err(FrameError::Length);
    }
    Ok(frame)
}

/// Frames that were built under a QP's lock and leave once it is released.
///
/// The vector's memory is kept from one batch to the next.
#[derive(Default)]
pub(crate) struct Frames {
    frames: KVec<TxFrame>,
    /// Where they leave, if there are any: the netdev is not to be held for longer.
    tx_netdev: Option<TxNetdev>,
    bytes: usize,
}

impl Frames {
    /// Most frames of a batch.
    const CAPACITY: usize = 64;
    /// Bytes after which a batch is full: with the longest frame, it has half as many again.
    const MAX_BYTES: usize = 128 << 10;

    /// Allocates room. Context: process, may sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            frames: KVec::with_capacity(Self::CAPACITY, GFP_KERNEL_ACCOUNT)?,
            ..Self::default()
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// How many more frames fit: none if there are too many bytes.
    pub(crate) fn room(&self) -> usize {
        if self.bytes >= Self::MAX_BYTES {
            return 0;
        }
        Self::CAPACITY.saturating_sub(self.frames.len())
    }

    /// Adds a frame of `len` bytes to leave by the netdev of `device`, whose bytes are `payload`.
    /// Context: process or softirq.
    pub(crate) fn push(
        &mut self,
        device: &Device,
        len: usize,
        payload: Payload<'_, '_>,
    ) -> Result<(), FrameError> {
        let tx_netdev = self.tx_netdev.take().or_else(|| device.tx_netdev());
        let tx_netdev = tx_netdev.ok_or(FrameError::Lost)?;
        let result = build(&tx_netdev, len, payload).and_then(|frame| {
            let pushed = self.frames.push_within_capacity(frame);
            pushed.or(Err(FrameError::Lost))
        });
        if result.is_ok() {
            self.bytes = self.bytes.wrapping_add(len);
        }
        if !self.frames.is_empty() {
            self.tx_netdev = Some(tx_netdev);
        }
        result
    }

    /// Sends all frames, if there are any. Returns how many left, their bytes, and how many were dropped on this
    /// machine. Context: process or softirq, no lock held.
    pub(crate) fn send(&mut self) -> (u64, u64, u64) {
        let (mut sent, mut bytes, mut dropped) = (0u64, 0u64, 0u64);
        if let Some(tx_netdev) = self.tx_netdev.take() {
            for frame in self.frames.drain_all() {
                let len = frame.len() as u64;
                match tx_netdev.transmit(frame) {
                    Transmit::Sent => {
                        sent = sent.wrapping_add(1);
                        bytes = bytes.wrapping_add(len);
                    }
                    Transmit::Dropped => dropped = dropped.wrapping_add(1),
                }
            }
        }
        self.bytes = 0;
        (sent, bytes, dropped)
    }
}
