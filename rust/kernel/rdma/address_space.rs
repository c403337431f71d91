// SPDX-License-Identifier: GPL-2.0

//! All of a process's memory, paged on demand.
//!
//! The address space is cut into chunks. A chunk gets a [`PageList`] when pages of it are faulted in.
//! There are no more of them than lists for twice the machine's memory: a further one takes the place of one
//! that was not used lately, whose pages then are faulted in again when they are needed. So what a peer makes
//! us remember is bounded, whatever addresses it uses.

use crate::{
    memory::{
        Fault,
        Intent,
        Memory,
        MissingPages,
        Visit, //
    },
    page_list::{
        end_of,
        unmapped,
        used,
        Charge,
        Effort,
        Forgotten,
        PageList,
        MAX_BATCH, //
    },
};
use kernel::{
    mm::{
        Mm,
        MmWithUser, //
    },
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        aref::ARef,
        Arc, //
    },
};
use rdma_bindings as bindings;
use sync::{
    new_spin_lock_bh,
    SpinLockBh, //
};

/// A chunk: as many pages as are faulted in at once. Its list is a page.
const CHUNK_PAGES: usize = MAX_BATCH;
const CHUNK_SIZE: usize = CHUNK_PAGES * PAGE_SIZE;
/// Lists that there always may be.
const MIN_LISTS: usize = 64;
/// Lists of which one is picked to make room, at the most: they are looked at under a lock.
const MAX_LOOKS: usize = 64;
/// How often one that makes room before it was of use is made again at once.
const TRIES: usize = 4;

struct Chunk {
    list: Arc<PageList>,
    /// Since the hand came by.
    used: bool,
}

/// A list that was taken out.
#[must_use = "the list is to be released"]
struct Taken {
    list: Arc<PageList>,
    forgotten: Forgotten,
}

impl Taken {
    /// Does what was not done under the lock. Context: process, no lock held.
    fn release(self) {
        drop(self.forgotten);
        self.list.release();
    }
}

struct Chunks {
    /// By their numbers: their addresses divided by their size.
    tree: RBTree<usize, Chunk>,
    count: usize,
    /// Where the search for one that makes room goes on, a number.
    hand: usize,
    /// The address space; [`None`] once the memory is released.
    mm: Option<ARef<Mm>>,
}

impl Chunks {
    /// Takes one out that was not used since it was looked at last, or nearly so.
    fn make_room(&mut self) -> Option<Taken> {
        for look in 0..MAX_LOOKS {
            // From the hand on, and round.
            let number = match self.tree.cursor_lower_bound(&self.hand) {
                Some(cursor) => *cursor.current().0,
                None => *self.tree.cursor_front()?.current().0,
            };
            self.hand = number.wrapping_add(1);
            let chunk = self.tree.get_mut(&number)?;
            if !chunk.used || look == MAX_LOOKS.wrapping_sub(1) {
                return self.take(number);
            }
            chunk.used = false;
        }
        None
    }

    /// Takes a chunk's list out. Nobody accesses its pages any more: the end of all access finds it either
    /// here or in this state.
    fn take(&mut self, number: usize) -> Option<Taken> {
        let chunk = self.tree.remove(&number)?;
        self.count = self.count.wrapping_sub(1);
        let forgotten = chunk.list.forget();
        Some(Taken {
            list: chunk.list,
            forgotten,
        })
    }
}

/// All of a process's memory: byte `n` is at the user address `n`.
///
/// # Invariants
///
/// Code that takes a list out of `chunks` releases it, in process context; nobody accesses its pages from then on.
#[pin_data(PinnedDrop)]
pub(crate) struct AddressSpace {
    /// The first address that is nobody's.
    end: usize,
    max_lists: usize,
    #[pin]
    chunks: SpinLockBh<Chunks>,
}

impl AddressSpace {
    /// Prepares all of the memory of `mm`. Context: process, may sleep.
    pub(crate) fn new(mm: &MmWithUser) -> Result<Arc<Self>> {
        // SAFETY: It reads a counter.
        let ram = unsafe { bindings::totalram_pages() } as usize;
        let chunks = Chunks {
            tree: RBTree::new(),
            count: 0,
            hand: 0,
            mm: Some(ARef::from(&**mm)),
        };
        Arc::pin_init(
            pin_init!(Self {
                end: end_of(mm),
                max_lists: ram.wrapping_div(CHUNK_PAGES / 2).max(MIN_LISTS),
                chunks <- new_spin_lock_bh!(chunks),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The list of a chunk, if there is one.
    fn find(&self, number: usize) -> Option<Arc<PageList>> {
        let mut chunks = self.chunks.lock();
        let chunk = chunks.tree.get_mut(&number)?;
        chunk.used = true;
        Some(chunk.list.clone())
    }

    /// Makes a list for a chunk that has none. Errors: `EFAULT` beyond the last address, if the process is
    /// gone or the memory released; `ENOMEM`.
    fn make(&self, number: usize) -> Result<Arc<PageList>> {
        let mm = used(&self.chunks.lock().mm)?;
        let start = number.checked_mul(CHUNK_SIZE).ok_or(EFAULT)?;
        let size = self.end.saturating_sub(start).min(CHUNK_SIZE);
        if size == 0 {
            return Err(EFAULT);
        }
        let list = PageList::new(&mm, start as u64, size as u64)?;
        let chunk = Chunk {
            list: list.clone(),
            used: true,
        };
        let charge = Charge::to(&mm);
        let node =
            RBTreeNode::new(number, chunk, GFP_KERNEL_ACCOUNT).inspect_err(|_| list.release())?;
        drop(charge);

        let mut chunks = self.chunks.lock();
        let (result, victim, unused) = if chunks.mm.is_none() {
            (Err(EFAULT), None, Some(node))
        } else if let Some(other) = chunks.tree.get(&number) {
            (Ok(other.list.clone()), None, Some(node))
        } else {
            let victim = if chunks.count < self.max_lists {
                None
            } else {
                chunks.make_room()
            };
            // There was none with that number.
            let none = chunks.tree.insert(node);
            chunks.count = chunks.count.wrapping_add(1);
            (Ok(list.clone()), victim, none)
        };
        drop(chunks);
        if let Some(victim) = victim {
            victim.release();
        }
        if unused.is_some() {
            // Nobody else has come to know it.
            list.release();
        }
        drop(unused);
        result
    }

    /// Takes a list out again.
    fn discard(&self, number: usize, list: &Arc<PageList>) {
        let mut chunks = self.chunks.lock();
        let found = chunks.tree.get(&number);
        if !found.is_some_and(|chunk| Arc::ptr_eq(&chunk.list, list)) {
            return;
        }
        let taken = chunks.take(number);
        drop(chunks);
        if let Some(taken) = taken {
            taken.release();
        }
    }

    /// The pages of `offset .. offset + len`. Errors: there are no such addresses.
    pub(crate) fn span(
        &self,
        offset: u64,
        len: u64,
        intent: Intent,
    ) -> Result<MissingPages, Fault> {
        let end = offset.checked_add(len).ok_or(Fault::OutOfRange)?;
        if end > self.end as u64 {
            return Err(Fault::OutOfRange);
        }
        // CAST: Both are at most `self.end`, a `usize`.
        let first = offset as usize >> PAGE_SHIFT;
        let past = match len {
            0 => first,
            _ => (end as usize).div_ceil(PAGE_SIZE),
        };
        Ok(MissingPages {
            first,
            count: past.saturating_sub(first),
            intent,
        })
    }

    /// Faults pages in, as [`PageList::fault_in`] does, but only those of the first one's chunk. With
    /// [`Effort::Present`], all pages up to the process's next mapping are done with at once.
    pub(crate) fn fault_in(&self, missing: &MissingPages, effort: Effort) -> Result<usize> {
        if effort == Effort::Present {
            // No list is made for addresses that are not mapped: a process may ask for terabytes of them. Mapped ones are
            // looked at page by page.
            let address = missing.first.checked_mul(PAGE_SIZE).ok_or(EFAULT)?;
            let mm = used(&self.chunks.lock().mm)?;
            let hole = unmapped(&mm, address, missing.count);
            if hole > 0 {
                return Ok(hole);
            }
        }
        let number = missing.first.wrapping_div(CHUNK_PAGES);
        let first = missing.first.wrapping_rem(CHUNK_PAGES);
        let here = MissingPages {
            first,
            count: missing.count.min(CHUNK_PAGES.wrapping_sub(first)),
            intent: missing.intent,
        };
        for _ in 0..TRIES {
            let (list, made) = match self.find(number) {
                Some(list) => (list, false),
                None => (self.make(number)?, true),
            };
            match list.fault_in(&here, effort) {
                // It had to make room for another one.
                Err(_) if list.is_forgotten() => {}
                result => {
                    // Nothing is kept for addresses where nothing is.
                    if made && (result.is_err() || list.is_blank()) {
                        self.discard(number, &list);
                    }
                    return result;
                }
            }
        }
        // As if they had been there for a moment.
        Ok(here.count)
    }

    /// Ends all access: when this returns, nobody accesses the pages any more. Context: process.
    pub(crate) fn release(&self) {
        let (tree, mm) = {
            let mut chunks = self.chunks.lock();
            chunks.count = 0;
            (core::mem::take(&mut chunks.tree), chunks.mm.take())
        };
        for chunk in tree.values() {
            chunk.list.release();
        }
        drop((tree, mm));
    }

    /// Calls `f` for each part of `offset .. offset + len` that is in one chunk, in order, with the chunk's
    /// list, the part's offset and length there, and the bytes before it.
    fn parts(
        &self,
        offset: u64,
        len: usize,
        intent: Intent,
        mut f: impl FnMut(&PageList, u64, usize, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let span = self.span(offset, len as u64, intent)?;
        let past = span.first.saturating_add(span.count);
        let mut done = 0usize;
        while done < len {
            // CAST: At most `self.end`, a `usize`, and so is what is added.
            let at = (offset as usize).wrapping_add(done);
            let number = at.wrapping_div(CHUNK_SIZE);
            let within = at.wrapping_rem(CHUNK_SIZE);
            let part = CHUNK_SIZE.wrapping_sub(within).min(len.wrapping_sub(done));
            let absent = |first: usize| {
                Fault::Absent(MissingPages {
                    first,
                    count: past.saturating_sub(first),
                    intent,
                })
            };
            let list = self.find(number).ok_or(absent(at >> PAGE_SHIFT))?;
            f(&list, within as u64, part, done).map_err(|fault| match fault {
                Fault::Absent(there) => {
                    absent(number.wrapping_mul(CHUNK_PAGES).wrapping_add(there.first))
                }
                // The part is within the list: so the list had to make room for another one.
                Fault::OutOfRange => absent(at >> PAGE_SHIFT),
            })?;
            done = done.wrapping_add(part);
        }
        Ok(())
    }
}

// SAFETY: The pieces are those of lists, for parts that make up what was asked for, in order.
unsafe impl Memory for AddressSpace {
    fn pieces(
        &self,
        offset: u64,
        len: usize,
        intent: Intent,
        f: &mut dyn Visit,
    ) -> Result<(), Fault> {
        let within = (offset as usize).wrapping_rem(CHUNK_SIZE);
        if within.saturating_add(len) > CHUNK_SIZE {
            self.parts(offset, len, intent, |list, at, part, _| {
                list.check(at, part as u64, intent)
            })?;
        }
        self.parts(offset, len, intent, |list, at, part, before| {
            list.pieces(
                at,
                part,
                intent,
                &mut |piece: *mut u8, len: usize, done: usize| {
                    f.visit(piece, len, before.wrapping_add(done));
                },
            )
        })
    }
}

#[pinned_drop]
impl PinnedDrop for AddressSpace {
    fn drop(self: Pin<&mut Self>) {
        self.release();
    }
}
