//! What the next transaction carries.

use alloc::vec::Vec;

use super::super::{
    cohorts::Cohorts, failure::KEYS_MAY_BE_LOCKED, pending::PendingOperation, session::OwnSession,
    sorted::HAS_MANY_KEYS,
};
use super::{
    StoreQueue,
    apart::{next_apart, take_first},
};

/// The operations of the next transaction.
pub(in super::super) struct Load {
    pub(in super::super) operations: Vec<PendingOperation>,
    pub(in super::super) kind: LoadKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum LoadKind {
    /// What waits, except what is sent separately.
    Usual,
    /// What the store refused for good, or what needs a locked key: nothing else goes with it.
    Apart,
    /// A heartbeat, before everything that waits.
    Heartbeat,
}

impl StoreQueue {
    /// Drops operations that became obsolete while they waited.
    pub(in super::super) fn drop_obsolete(&mut self, cohorts: &Cohorts) {
        if self.is_mostly_given_up() {
            self.keep_wanted(usize::MAX, cohorts);
            self.given_up = 0;
        } else if !self.waiting.is_empty() {
            // Operations that do not fit in the next transaction are examined later: otherwise each transaction would cost as much as the
            // whole queue. Refused operations and those that need a locked key are sent separately, so they take no room here, and all of
            // them are examined.
            self.keep_wanted(self.room.beside(0), cohorts);
        }
    }

    /// Drops operations that nobody wants any more. After `most` that stay, it examines only those that are sent separately.
    // Protocol: docs/protocol.md#o.
    fn keep_wanted(&mut self, mut most: usize, cohorts: &Cohorts) {
        let mut operations = core::mem::take(&mut self.waiting);
        let before = operations.len();
        let locked = self.locked_keys(&operations);
        operations.retain(|operation| {
            let goes_apart = operation.goes_apart(&locked);
            let stays = (most == 0 && !goes_apart) || cohorts.still_want(operation);
            most = most.saturating_sub(usize::from(stays && !goes_apart));
            stays
        });
        if HAS_MANY_KEYS {
            self.given_up = self.given_up.saturating_sub(before - operations.len());
        }
        self.waiting = operations;
    }

    /// Takes what is sent next. What the store refused for good, and what needs a locked key, takes turns with all the rest, so that
    /// neither side has to wait for all of the other. `ends_stale` tells whether it is time to end earlier sessions of the context.
    // Protocol: docs/protocol.md#s11.
    pub(in super::super) fn take_next(&mut self, session: &OwnSession, ends_stale: bool) -> Option<Load> {
        let has_to_send = session.wants_beat() || session.wants_close();
        if self.waiting.is_empty() && !has_to_send && !ends_stale {
            return None;
        }
        let mut pending = self.take_waiting();
        let mut apart = self.take_apart(&mut pending);
        if self.put_beat_first(session, &pending) {
            self.waiting = pending;
            self.waiting.append(&mut apart);
            return Some(Load { operations: Vec::new(), kind: LoadKind::Heartbeat });
        }
        let first = next_apart(&apart, &pending);
        let is_its_turn = first.is_some() && (pending.is_empty() || !self.went_alone);
        let takes_ends_along = KEYS_MAY_BE_LOCKED && apart.iter().any(PendingOperation::acquires);
        let has_to_end = ends_stale && !takes_ends_along;
        self.went_alone = !has_to_send && !has_to_end && is_its_turn;
        if self.went_alone {
            if KEYS_MAY_BE_LOCKED {
                apart.rotate_left(first.unwrap_or_default());
            }
            let first = take_first(&mut apart);
            pending.append(&mut apart);
            apart = core::mem::replace(&mut pending, first);
        }
        self.waiting.append(&mut apart);
        let kind = if self.went_alone { LoadKind::Apart } else { LoadKind::Usual };
        Some(Load { operations: pending, kind })
    }

    /// Decides whether the heartbeat is sent alone, before everything else that waits. The store may refuse an operation for as long as
    /// somebody else keeps its key locked, and with it every heartbeat in the same transaction. If a heartbeat that was sent alone fails,
    /// too, everything is sent together, so that waiting requests learn that the store refuses everything.
    fn put_beat_first(&mut self, session: &OwnSession, pending: &[PendingOperation]) -> bool {
        let is_wanted = session.wants_beat() && !session.wants_close() && !pending.is_empty();
        let is_its_turn = session.has_failed() && !self.beat_alone;
        self.beat_alone = is_wanted && is_its_turn;
        self.beat_alone
    }
}
