//! The entries of a map in chunks: an insertion or a removal moves the rest of one chunk, however many entries there are.

use alloc::{
    boxed::Box,
    vec::{self, Vec},
};
use core::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    mem, slice,
};

use super::{find_in, make_room};

/// The largest chunk.
const MOST: usize = 128;

/// A place, where an entry is, holds the index of a chunk, and in this many lowest bits the index within that chunk.
const BITS: u32 = 8;

const fn place(chunk: usize, at: usize) -> usize {
    chunk << BITS | at
}

/// The index of a chunk, and that of an entry in it.
const fn parts(place: usize) -> (usize, usize) {
    (place >> BITS, place & ((1 << BITS) - 1))
}

/// Entries in order. Up to [`MOST`] of them are a vector and nothing else, because most maps hold one entry.
#[derive(Clone)]
pub(crate) enum Entries<T> {
    Few(Vec<T>),
    Many(Box<Chunks<T>>),
}

/// No chunk is empty, and two neighbours together hold more than half of a full one.
#[derive(Clone)]
pub(crate) struct Chunks<T> {
    chunks: Vec<Vec<T>>,
    len: usize,
}

impl<T> Entries<T> {
    pub(super) const fn new() -> Self {
        Self::Few(Vec::new())
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Few(entries) => entries.len(),
            Self::Many(many) => many.len,
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Few(entries) => entries.clear(),
            Self::Many(_) => *self = Self::new(),
        }
    }

    pub(super) fn first(&self) -> Option<&T> {
        match self {
            Self::Few(entries) => entries.first(),
            Self::Many(many) => many.chunks.first()?.first(),
        }
    }

    #[cfg(test)]
    fn chunks(&self) -> &[Vec<T>] {
        match self {
            Self::Few(entries) => slice::from_ref(entries),
            Self::Many(many) => &many.chunks,
        }
    }

    fn chunks_mut(&mut self) -> &mut [Vec<T>] {
        match self {
            Self::Few(entries) => slice::from_mut(entries),
            Self::Many(many) => &mut many.chunks,
        }
    }

    /// The entries from a place on.
    pub(super) fn from(&self, from: usize) -> impl Iterator<Item = &T> {
        let (head, rest) = match self {
            Self::Few(entries) => (&entries[from..], &[][..]),
            Self::Many(many) => many.from(from),
        };
        Each { head: head.iter(), chunks: rest.iter() }
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks_mut().iter_mut().flatten()
    }

    pub(super) fn at(&self, at: usize) -> &T {
        match self {
            Self::Few(entries) => &entries[at],
            Self::Many(many) => many.at(at),
        }
    }

    pub(super) fn at_mut(&mut self, at: usize) -> &mut T {
        match self {
            Self::Few(entries) => &mut entries[at],
            Self::Many(many) => many.at_mut(at),
        }
    }

    /// The place of the entry that equals what is looked for, or else the place where it would stand.
    pub(super) fn find(&self, compare: impl Fn(&T) -> Ordering) -> Result<usize, usize> {
        match self {
            Self::Few(entries) => find_in(entries, compare),
            Self::Many(many) => many.find(compare),
        }
    }

    /// Inserts an entry at a place that [`find`](Self::find) returned, and returns the place that it has then. `kept` holds places of other
    /// entries, and corrects them.
    pub(super) fn insert(&mut self, at: usize, entry: T, kept: &mut [usize]) -> usize {
        match self {
            Self::Few(entries) if entries.len() < MOST => {
                kept.iter_mut().filter(|kept| **kept >= at).for_each(|kept| *kept += 1);
                make_room(entries);
                entries.insert(at, entry);
                at
            }
            Self::Few(entries) => {
                let mut many = Chunks { chunks: Vec::from([mem::take(entries)]), len: MOST };
                let at = many.insert(at, entry, kept);
                *self = Self::Many(Box::new(many));
                at
            }
            Self::Many(many) => many.insert(at, entry, kept),
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> T {
        match self {
            Self::Few(entries) => entries.remove(at),
            Self::Many(many) => {
                let entry = many.remove(at);
                self.be_few_again();
                entry
            }
        }
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        match self {
            Self::Few(entries) => entries.retain(keep),
            Self::Many(many) => {
                many.retain(keep);
                self.be_few_again();
            }
        }
    }

    pub(super) fn into_vec(self) -> Vec<T> {
        match self {
            Self::Few(entries) => entries,
            Self::Many(many) => many.chunks.into_iter().flatten().collect(),
        }
    }

    fn be_few_again(&mut self) {
        if let Self::Many(many) = self
            && many.chunks.len() <= 1
        {
            *self = Self::Few(many.chunks.pop().unwrap_or_default());
        }
    }
}

/// None of this is inlined, because most maps hold one entry, and each acquisition asks many maps.
impl<T> Chunks<T> {
    #[inline(never)]
    fn at(&self, at: usize) -> &T {
        let (chunk, at) = parts(at);
        &self.chunks[chunk][at]
    }

    #[inline(never)]
    fn at_mut(&mut self, at: usize) -> &mut T {
        let (chunk, at) = parts(at);
        &mut self.chunks[chunk][at]
    }

    /// The rest of a chunk, and the chunks after it.
    #[inline(never)]
    fn from(&self, from: usize) -> (&[T], &[Vec<T>]) {
        let (chunk, at) = parts(from);
        (&self.chunks[chunk][at..], &self.chunks[chunk + 1..])
    }

    #[inline(never)]
    fn find(&self, compare: impl Fn(&T) -> Ordering) -> Result<usize, usize> {
        // The first chunk whose last entry is not less than what is looked for, or else the last chunk.
        let others = &self.chunks[..self.chunks.len() - 1];
        let chunk = others.partition_point(|chunk| chunk.last().is_none_or(|last| compare(last) == Ordering::Less));
        find_in(&self.chunks[chunk], compare).map(|at| place(chunk, at)).map_err(|at| place(chunk, at))
    }

    #[inline(never)]
    fn insert(&mut self, at: usize, entry: T, kept: &mut [usize]) -> usize {
        let (mut chunk, mut at) = parts(at);
        if self.chunks[chunk].len() == MOST {
            // Entries that come in order fill each chunk.
            let is_last = chunk + 1 == self.chunks.len() && at == MOST;
            let cut = if is_last { MOST } else { MOST / 2 };
            self.cut(chunk, cut, kept);
            if at >= cut {
                (chunk, at) = (chunk + 1, at - cut);
            }
        }
        let place = place(chunk, at);
        for kept in kept.iter_mut().filter(|kept| **kept >= place && parts(**kept).0 == chunk) {
            *kept += 1;
        }
        make_room(&mut self.chunks[chunk]);
        self.chunks[chunk].insert(at, entry);
        self.len += 1;
        place
    }

    /// Makes two chunks of one.
    fn cut(&mut self, chunk: usize, cut: usize, kept: &mut [usize]) {
        let rest = self.chunks[chunk].split_off(cut);
        self.chunks.insert(chunk + 1, rest);
        for kept in kept {
            let (its_chunk, at) = parts(*kept);
            if its_chunk > chunk {
                *kept = place(its_chunk + 1, at);
            } else if its_chunk == chunk && at >= cut {
                *kept = place(chunk + 1, at - cut);
            }
        }
    }

    #[inline(never)]
    fn remove(&mut self, at: usize) -> T {
        let (chunk, at) = parts(at);
        self.len -= 1;
        let entry = self.chunks[chunk].remove(at);
        if self.chunks[chunk].len() <= MOST / 2 {
            self.join(chunk);
            self.join(chunk.saturating_sub(1));
        }
        entry
    }

    /// Makes one chunk of two that are small, or of which one is empty.
    fn join(&mut self, first: usize) {
        if let Some([this, next]) = self.chunks.get(first..first + 2)
            && (this.len() + next.len() <= MOST / 2 || this.is_empty() || next.is_empty())
        {
            let mut next = self.chunks.remove(first + 1);
            self.chunks[first].append(&mut next);
        }
    }

    #[inline(never)]
    fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.len = 0;
        let mut chunks = Vec::<Vec<T>>::with_capacity(self.chunks.len());
        for mut chunk in mem::take(&mut self.chunks) {
            chunk.retain(&mut keep);
            self.len += chunk.len();
            match chunks.last_mut() {
                Some(last) if last.len() + chunk.len() <= MOST / 2 => last.append(&mut chunk),
                _ if chunk.is_empty() => {}
                _ => chunks.push(chunk),
            }
        }
        self.chunks = chunks;
    }
}

struct Each<'a, T> {
    head: slice::Iter<'a, T>,
    chunks: slice::Iter<'a, Vec<T>>,
}

impl<'a, T> Iterator for Each<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(entry) = self.head.next() {
                return Some(entry);
            }
            self.head = self.chunks.next()?.iter();
        }
    }
}

pub(crate) struct IntoEach<T> {
    head: vec::IntoIter<T>,
    chunks: vec::IntoIter<Vec<T>>,
}

impl<T> Iterator for IntoEach<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        loop {
            if let Some(entry) = self.head.next() {
                return Some(entry);
            }
            self.head = self.chunks.next()?.into_iter();
        }
    }
}

impl<T> IntoIterator for Entries<T> {
    type Item = T;
    type IntoIter = IntoEach<T>;

    fn into_iter(self) -> IntoEach<T> {
        let (head, chunks) = match self {
            Self::Few(entries) => (entries, Vec::new()),
            Self::Many(many) => (Vec::new(), many.chunks),
        };
        IntoEach { head: head.into_iter(), chunks: chunks.into_iter() }
    }
}

// Which entries share a chunk depends on the order in which they came. So only the entries are compared.

impl<T: PartialEq> PartialEq for Entries<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.from(0).eq(other.from(0))
    }
}

impl<T: Eq> Eq for Entries<T> {}

impl<T: Hash> Hash for Entries<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len().hash(state);
        self.from(0).for_each(|entry| entry.hash(state));
    }
}

impl<T: fmt::Debug> fmt::Debug for Entries<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.from(0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So an insertion moves the entries of one chunk at most. Where there are many entries, one insertion in 64 also moves the chunks.
    #[test]
    fn no_chunk_is_large_and_no_two_neighbours_are_small() {
        let mut entries = Entries::new();
        for step in 0..60_000_u64 {
            let number = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            match entries.find(|known: &u64| known.cmp(&(number % 40_000))) {
                Err(at) => _ = entries.insert(at, number % 40_000, &mut []),
                Ok(at) => _ = entries.remove(at),
            }
            if step % 20_000 == 19_999 {
                entries.retain(|number| number % 3 > 0);
            }
            if step % 100 == 0 {
                let sizes: Vec<usize> = entries.chunks().iter().map(Vec::len).collect();
                assert!(sizes.iter().all(|size| *size <= MOST), "{sizes:?}");
                assert!(sizes.windows(2).all(|pair| pair[0] + pair[1] > MOST / 2), "{sizes:?}");
                assert_eq!(sizes.iter().sum::<usize>(), entries.len());
            }
        }
        assert!(entries.chunks().len() > 100);
        entries.retain(|number| *number < 10);
        assert!(matches!(entries, Entries::Few(_)));
    }

    #[test]
    fn entries_that_come_in_order_fill_their_chunks() {
        let mut entries = Entries::new();
        for number in 0..100 * MOST {
            let at = entries.find(|known: &usize| known.cmp(&number)).unwrap_or_else(|at| at);
            entries.insert(at, number, &mut []);
        }
        assert_eq!(entries.chunks().len(), 100);
    }
}
