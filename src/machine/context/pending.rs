//! What a context wants of its store, until it is answered: operations, and the transactions that carry them.

use alloc::vec::Vec;
use core::iter;

use super::{
    failure::KEYS_MAY_BE_LOCKED,
    id::SessionId,
    input::{Slot, TurnId},
    key::Key,
    record::{Action, Ending},
    time::Monotonic,
};

/// One operation, and who wants to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PendingOperation {
    pub(super) slot: Slot,
    /// Of a request for several keys: where each of them stands.
    pub(super) all: Vec<Slot>,
    pub(super) action: Action,
    pub(super) turn: Option<TurnId>,
    pub(super) attempts: u32,
    pub(super) since: Monotonic,
    /// Of a release: until when the lease was believed in, and whether an attempt without an answer may have given it
    /// back before that.
    pub(super) believed_until: Monotonic,
    pub(super) maybe_released: bool,
    /// Of a release: its guard wanted to upgrade, and nobody knows whether the store has done that.
    pub(super) maybe_upgraded: bool,
    /// Of a release: others wait, so the store has to look at their sessions.
    pub(super) contended: bool,
    /// Of a release: who waits to hear of it.
    pub(super) tells: Option<SessionId>,
    pub(super) second_look: SecondLook,
    /// It kept failing until nobody waited for it any more.
    pub(super) is_late: bool,
    pub(super) company: Company,
    /// It was tried again before its time, because a request for its key was to be sent.
    pub(super) is_hurried: bool,
}

/// Whether a try for several keys looks again once it has found some of them taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum SecondLook {
    /// It will, if only holders are in the way: they may not be using their keys.
    #[default]
    Ahead,
    /// It has asked the holders, and looks again until this moment.
    Until(Monotonic),
    /// It does not: its call waits for one of the keys next, and that asks the holders, too.
    Skipped,
}

/// What may share a transaction with an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Company {
    #[default]
    Anything,
    /// Operations that need the same key and no other. Somebody else kept one of its records locked, so all others would wait with it.
    SameKey,
    /// No other operation. The store refused it for good, so all others would fail with it.
    Nothing,
}

impl PendingOperation {
    /// An operation that was not sent yet.
    pub(super) fn new(slot: &Slot, action: Action, turn: Option<TurnId>, now: Monotonic) -> Self {
        Self {
            slot: slot.clone(),
            all: Vec::new(),
            action,
            turn,
            attempts: 0,
            since: now,
            believed_until: Monotonic::default(),
            maybe_released: false,
            maybe_upgraded: false,
            contended: false,
            tells: None,
            second_look: SecondLook::default(),
            is_late: false,
            company: Company::default(),
            is_hurried: false,
        }
    }

    /// Whether it is about this slot.
    pub(super) fn concerns(&self, slot: &Slot) -> bool {
        self.slot == *slot || self.all.contains(slot)
    }

    /// Whether all that is sent in the same transaction would fail, or wait, with it.
    pub(super) fn holds_up(&self) -> bool {
        self.company != Company::Anything
    }

    /// Whether it is not sent with the rest: it would hold that up, or needs one of these keys.
    pub(super) fn goes_apart(&self, locked: &[Key]) -> bool {
        self.holds_up() || (KEYS_MAY_BE_LOCKED && self.keys().any(|key| locked.binary_search(key).is_ok()))
    }

    /// Whether the store refused it for good.
    pub(super) fn is_refused(&self) -> bool {
        self.company == Company::Nothing
    }

    /// Whether somebody else kept one of its records locked when it was sent last.
    pub(super) fn is_locked(&self) -> bool {
        KEYS_MAY_BE_LOCKED && self.company == Company::SameKey
    }

    /// From now on, no more than this may share a transaction with it.
    pub(super) fn keep_to(&mut self, company: Company) {
        self.company = self.company.max(company);
    }

    /// Whether an earlier attempt may have released the lease while its context still believed in it.
    pub(super) fn may_have_ended_belief(&self) -> bool {
        self.maybe_released && self.since < self.believed_until
    }

    /// Whether it gives back what a request for its key would find taken.
    pub(super) fn gives_back(&self) -> bool {
        matches!(self.action, Action::Release { .. } | Action::Withdraw { .. })
    }

    /// Whether both go in one transaction if they go apart: they need just the same locked key.
    pub(super) fn goes_apart_with(&self, other: &Self) -> bool {
        let may_share = |operation: &Self| operation.all.is_empty() && !operation.is_refused();
        may_share(self) && may_share(other) && self.slot.key == other.slot.key
    }

    /// The keys whose records it needs.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        iter::once(&self.slot).chain(&self.all).map(|slot| &slot.key)
    }

    /// The same, of which nobody waits to hear.
    pub(super) fn unasked(&self) -> Self {
        Self { turn: None, ..self.clone() }
    }

    /// Whether it asks for a lease: that opens a session where there is none.
    pub(super) fn acquires(&self) -> bool {
        matches!(self.action, Action::Acquire(_) | Action::AcquireAll(_))
    }

    /// Whether the end of the session does the same, and nobody waits to hear of it.
    pub(super) fn is_done_by_session_end(&self) -> bool {
        self.turn.is_none() && self.gives_back()
    }

    /// Whether nothing else waits for it, and the session need not go on for it.
    pub(super) fn may_go_unsent(&self) -> bool {
        self.holds_up() && self.is_done_by_session_end()
    }

    /// Whether it makes sense in one session only. A request is carried over to the next session.
    pub(super) fn needs_this_session(&self) -> bool {
        self.is_of_session() && !self.acquires()
    }

    /// Whether it says something about a session. A look at a key does not.
    pub(super) fn is_of_session(&self) -> bool {
        !matches!(self.action, Action::Inspect)
    }
}

/// When something was sent, and by which transaction: two moments of a clock that stood still are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) at: Monotonic,
    pub(super) transaction: u64,
}

/// A transaction that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Transaction {
    pub(super) sent: Sent,
    /// Whose it is.
    pub(super) session: SessionId,
    /// Whether it opens that session.
    pub(super) opens: bool,
    /// The lease that its heartbeat asks for, in ms, if it carries one.
    pub(super) lease_ms: Option<u64>,
    /// The sessions that it ends.
    pub(super) ends: Vec<Ending>,
    pub(super) operations: Vec<PendingOperation>,
    /// No answer is waited for longer.
    pub(super) limit: Monotonic,
    /// The keys whose records are to be forgotten.
    pub(super) forgets: Vec<Key>,
}

impl Transaction {
    /// How many operations it carries.
    pub(super) fn load(&self) -> usize {
        self.operations.len() + self.ends.len() + self.forgets.len()
    }

    /// Whether it has several keys, any of which may be the locked one.
    pub(super) fn has_several_keys(&self) -> bool {
        let keys: Vec<_> = self.operations.iter().map(|operation| &operation.slot.key).collect();
        !self.forgets.is_empty() || keys.windows(2).any(|keys| keys[0] != keys[1])
    }

    /// Whether its answer must find the session's row.
    pub(super) fn is_of_session(&self) -> bool {
        self.lease_ms.is_some() || self.operations.iter().any(PendingOperation::is_of_session)
    }

    /// Whom it was to end. If its session is not the context's any more, it was to delete that row, too.
    pub(super) fn endings(&self, own: SessionId) -> Vec<Ending> {
        let mut endings = self.ends.clone();
        if self.session != own && !self.opens {
            endings.push(Ending { session: self.session, beat: None });
        }
        endings
    }
}
