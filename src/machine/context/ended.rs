//! Requests that ended lately.
//!
//! A server that takes over may lack their ends: it still lists a lease, or a place in the queue, of a session that lives. Nobody else may
//! end them, so the context does it again.

use alloc::vec::Vec;

use super::{Machine, id::RequestId, input::Slot, key::Key, mode::Mode, time::Monotonic};

/// The requests whose ends the store confirmed, the latest one last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ended(Vec<(Key, RequestId)>);

impl Machine {
    /// The store confirmed that a request is over.
    pub(super) fn note_end(&mut self, key: &Key, request: RequestId) {
        if self.config.remembered_ends == 0 {
            return;
        }
        if self.ended.0.len() >= self.config.remembered_ends {
            self.ended.0.remove(0);
        }
        self.ended.0.push((key.clone(), request));
    }

    /// Ends them once more. No request is ever made twice, so this ends nothing else.
    pub(super) fn end_again(&mut self, now: Monotonic) {
        for (key, request) in core::mem::take(&mut self.ended.0) {
            let slot = Slot { key, mode: Mode::Exclusive, own: None };
            self.withdraw_request(&slot, request, now);
        }
    }
}
