//! Reads the state of a key without changing anything.

use super::{Outcome, sorted::SortedMap, transition::Transition};

impl Transition<'_> {
    /// The entries of the record, without those of ended sessions.
    pub(super) fn status(&self) -> Outcome {
        let mut seen = self.record.clone();
        seen.grants.retain(|grant| !self.sessions.has_ended(grant.holder));
        seen.queue.retain(|waiter| !self.sessions.has_ended(waiter.holder));
        let holders = seen.grants.iter().map(|grant| grant.holder).chain(seen.queue.iter().map(|waiter| waiter.holder));
        let mut sessions = SortedMap::new();
        for holder in holders {
            if let Some(row) = self.sessions.get(holder)
                && !sessions.contains_key(&holder)
            {
                sessions.insert(holder, row.clone());
            }
        }
        let sessions = sessions.into_pairs();
        Outcome::Status { last_token: seen.last_token, grants: seen.grants, queue: seen.queue, sessions }
    }
}
