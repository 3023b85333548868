//! How much one transaction may carry.

use alloc::vec::Vec;

/// No limit until the store refuses a transaction as too large: then half of what that one carried. It grows by one with each
/// full transaction that the store takes, because operations differ in how many rows they concern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Room(Option<usize>);

impl Room {
    /// What there is room for beside so many operations.
    pub(super) fn beside(self, operations: usize) -> usize {
        self.0.unwrap_or(usize::MAX).saturating_sub(operations)
    }

    /// Leaves in the list what there is room for beside so much else, but one entry at least, and takes out the rest.
    pub(super) fn split<T>(self, list: &mut Vec<T>, else_goes: usize) -> Vec<T> {
        list.split_off(self.beside(else_goes).max(1).min(list.len()))
    }

    /// The store refused so large a transaction. Whether it can be smaller.
    pub(super) fn narrow(&mut self, load: usize) -> bool {
        if load > 1 {
            self.0 = Some((load / 2).min(self.beside(0)));
        }
        load > 1
    }

    /// The store took so large a transaction.
    pub(super) fn widen(&mut self, load: usize) {
        if let Some(most) = self.0.as_mut().filter(|most| load >= **most) {
            *most += 1;
        }
    }
}
