//! Transactions that users opened, and that the context must not leave behind.

use alloc::vec::Vec;

use crate::executor::Shared;
use crate::store::OpenTransaction;

/// The user's open transactions, which are aborted when the context is suspended.
#[derive(Default)]
pub(crate) struct OpenTransactions {
    last: u64,
    all: Vec<(u64, Shared<dyn OpenTransaction>)>,
}

impl OpenTransactions {
    pub(crate) fn add(&mut self, transaction: Shared<dyn OpenTransaction>) -> u64 {
        self.last += 1;
        self.all.push((self.last, transaction));
        self.last
    }

    /// Removes a transaction. Drop it after the lock is released.
    pub(crate) fn remove(&mut self, place: u64) -> Option<Shared<dyn OpenTransaction>> {
        let at = self.all.iter().position(|(known, _)| *known == place)?;
        Some(self.all.swap_remove(at).1)
    }

    pub(crate) fn take_all(&mut self) -> Vec<Shared<dyn OpenTransaction>> {
        let mut all = Vec::with_capacity(self.all.len());
        for (_, transaction) in self.all.drain(..) {
            all.push(transaction);
        }
        all
    }
}
