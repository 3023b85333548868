//! Histories on real servers: processes take, hold, share, steal, fence and release leases while faults hit them, and write down what they
//! believe and when, by their machine's monotonic clock. The judge of simulated histories then judges them.

mod court;
mod director;
mod judge;
mod note;
mod player;

pub(crate) use director::{Site, histories};
pub(crate) use player::{Desk, Written, play};

use note::{Note, Notebook, What};

/// How many keys the contexts of a history share.
const KEYS: usize = 8;

/// The same seed gives the same random choices; their effects depend on the machine too.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    pub(crate) fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    fn index(&mut self, items: usize) -> usize {
        usize::try_from(self.below(items as u64)).expect("it is an index")
    }
}
