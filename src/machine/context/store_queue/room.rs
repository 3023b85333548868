//! How much one transaction may carry.

use alloc::vec::Vec;

/// There is no limit until the store refuses a transaction as too large. The limit is then half of what that one carried, and grows by
/// one with each full transaction that the store accepts, because operations differ in how many rows they concern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Room(Option<usize>);

impl Room {
    /// How many more fit beside this number of operations.
    pub(super) fn beside(self, operations: usize) -> usize {
        self.0.unwrap_or(usize::MAX).saturating_sub(operations)
    }

    /// Truncates the list to what fits beside so much else, but to one entry at least, and returns the rest.
    pub(super) fn split<T>(self, list: &mut Vec<T>, else_goes: usize) -> Vec<T> {
        list.split_off(self.beside(else_goes).max(1).min(list.len()))
    }

    /// The store refused a transaction of this size. Returns whether a smaller one is possible.
    pub(super) fn narrow(&mut self, load: usize) -> bool {
        if load > 1 {
            self.0 = Some((load / 2).min(self.beside(0)));
        }
        load > 1
    }

    /// The store accepted a transaction of this size.
    pub(super) fn widen(&mut self, load: usize) {
        if let Some(most) = self.0.as_mut().filter(|most| load >= **most) {
            *most += 1;
        }
    }
}
