//! How much one transaction may carry.

use alloc::vec::Vec;

use super::super::failure::KEYS_MAY_BE_LOCKED;

/// Heartbeats wait for the transaction in flight, and a server has room for a limited number of locks. So even if thousands of guards are
/// released at once, each transaction is short. All keys of one request fit in.
const MOST: usize = 1_024;

/// This many operations in a row, each refused for good while it stood alone, show that the store refuses everything.
const SURE: u8 = 8;

/// Both limits are at their largest at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Room {
    /// Once the store has refused a transaction as too large, the limit is half of what that one carried. It grows again by one with each
    /// full transaction that the store accepts, because operations differ in how many rows they concern.
    size: usize,
    /// Once the store has refused a transaction for good, the limit is half of what that one carried, until the operation to blame stands
    /// alone. It doubles with each full transaction that the store accepts.
    search: usize,
    /// How many operations in a row were refused for good while they stood alone.
    blamed: u8,
}

impl Default for Room {
    fn default() -> Self {
        Self { size: MOST, search: MOST, blamed: 0 }
    }
}

impl Room {
    fn limit(self) -> usize {
        if KEYS_MAY_BE_LOCKED { self.size.min(self.search) } else { self.size }
    }

    /// How many more fit beside this number of operations.
    pub(in super::super) fn beside(self, operations: usize) -> usize {
        self.limit().saturating_sub(operations)
    }

    /// Truncates the list to what fits beside that much else, but to one entry at least, and returns the rest.
    pub(in super::super) fn split<T>(self, list: &mut Vec<T>, else_goes: usize) -> Vec<T> {
        list.split_off(self.beside(else_goes).max(1).min(list.len()))
    }

    /// Notes that the store refused a transaction of this size as too large. Returns whether a smaller one is possible.
    pub(super) fn narrow(&mut self, load: usize) -> bool {
        if load > 1 {
            self.size = self.size.min(load / 2);
        }
        load > 1
    }

    /// Notes that the store refused a transaction of this size for good. Returns whether a smaller one may be accepted.
    // Protocol: docs/protocol.md#s11.
    pub(super) fn search(&mut self, load: usize) -> bool {
        if load == 1 {
            self.blamed = SURE.min(self.blamed + 1);
        }
        let divides = load > 1 && self.blamed < SURE;
        if divides {
            self.search = self.search.min(load / 2);
        } else if self.blamed >= SURE {
            self.search = MOST;
        }
        divides
    }

    /// Notes that the store accepted a transaction of this size.
    pub(super) fn widen(&mut self, load: usize) {
        if load >= self.size {
            self.size = MOST.min(self.size + 1);
        }
        if !KEYS_MAY_BE_LOCKED {
            return;
        }
        // A store that accepts a heartbeat does not refuse everything.
        self.blamed = 0;
        if load > 0 && load >= self.search {
            self.search = MOST.min(self.search * 2);
        }
    }
}
