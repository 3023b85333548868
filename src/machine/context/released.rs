//! Leases that were released recently.
//!
//! After a failover, the new server may still list them. The session is alive, so no other context may remove them: this context withdraws
//! their requests. A place in the queue that comes back needs no such care: once it is granted, nobody here knows it, and it is released.

use alloc::vec::Vec;

use super::{Machine, id::RequestId, input::Slot, key::Key, record::Action, time::Monotonic};

/// How many releases are repeated: a server that takes over lacks only the last writes of its predecessor.
const REMEMBERED: usize = 64;

/// The requests whose releases the store confirmed, and the requests of shared leases that were upgraded later, the latest one last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Released(Vec<(Key, RequestId)>);

impl Machine {
    /// The store confirmed a release.
    pub(super) fn note_release(&mut self, key: &Key, request: RequestId) {
        if !self.config.repeats_releases {
            return;
        }
        if self.released.0.len() >= REMEMBERED {
            self.released.0.remove(0);
        }
        self.released.0.push((key.clone(), request));
    }

    /// Withdraws their requests. Request ids are never reused, so this affects no other request.
    // Protocol: docs/protocol.md#e.
    pub(super) fn release_again(&mut self, now: Monotonic) {
        // They stay: the next server may lack what this one is told now.
        for (key, request) in self.released.0.clone() {
            // A connection may be replaced again and again while nothing can be sent.
            if !self.store_queue.will_send_for(&key, |action| *action == Action::Withdraw { request }) {
                let slot = Slot::of_key(key);
                self.withdraw_request(&slot, request, now);
            }
        }
    }
}
