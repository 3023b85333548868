//! How much one transaction may carry.

use alloc::vec::Vec;

/// Heartbeats wait for the transaction in flight, and a server has room for a limited number of locks. So even if thousands of guards are
/// released at once, each transaction is short. All keys of one request fit in.
const MOST: usize = 1_024;

/// Once the store has refused a transaction as too large, the limit is half of what that one carried. It grows again by one with each full
/// transaction that the store accepts, because operations differ in how many rows they concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(MOST)
    }
}

impl Room {
    /// How many more fit beside this number of operations.
    pub(in super::super) fn beside(self, operations: usize) -> usize {
        self.0.saturating_sub(operations)
    }

    /// Truncates the list to what fits beside that much else, but to one entry at least, and returns the rest.
    pub(in super::super) fn split<T>(self, list: &mut Vec<T>, else_goes: usize) -> Vec<T> {
        list.split_off(self.beside(else_goes).max(1).min(list.len()))
    }

    /// Notes that the store refused a transaction of this size. Returns whether a smaller one is possible.
    pub(super) fn narrow(&mut self, load: usize) -> bool {
        if load > 1 {
            self.0 = self.0.min(load / 2);
        }
        load > 1
    }

    /// Notes that the store accepted a transaction of this size.
    pub(super) fn widen(&mut self, load: usize) {
        if load >= self.0 {
            self.0 = MOST.min(self.0 + 1);
        }
    }
}
