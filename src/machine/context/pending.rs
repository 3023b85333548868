//! The operations of a context that the store has not answered yet, and the transactions that carry them.

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

/// One operation, and who waits for its answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PendingOperation {
    pub(super) slot: Slot,
    /// For a request for several keys: the slot of each.
    pub(super) all: Vec<Slot>,
    pub(super) action: Action,
    pub(super) turn: Option<TurnId>,
    pub(super) attempts: u32,
    pub(super) since: Monotonic,
    /// For the release of a lease that was held: what its answer means depends on that lease.
    pub(super) release: Option<ReleaseFacts>,
    pub(super) second_look: SecondLook,
    /// Whether it kept failing until nobody waited for it any more.
    pub(super) is_late: bool,
    pub(super) company: Company,
    /// Whether it was tried again before its time, because a request for its key was to be sent.
    pub(super) is_hurried: bool,
}

/// What is known of a lease that is being released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ReleaseFacts {
    /// Until when the lease counted as valid.
    pub(super) believed_until: Monotonic,
    /// Whether an attempt without an answer may have released it.
    pub(super) maybe_released: bool,
    /// Whether the guard was upgrading, so that the store may have upgraded the lease.
    pub(super) maybe_upgraded: bool,
    /// Whether others wait, so that the store has to look at their sessions.
    pub(super) contended: bool,
    /// The session that waits to be notified of the release.
    pub(super) tells: Option<SessionId>,
}

/// Whether a try for several keys looks again once it has found some of them taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum SecondLook {
    /// It looks again if only holders are in the way, because they may not be using their keys.
    #[default]
    Ahead,
    /// It has asked the holders, and looks again until this moment.
    Until(Monotonic),
    /// It does not look again: its call waits for one of the keys next, which also asks the holders.
    Skipped,
}

/// What may share a transaction with an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Company {
    #[default]
    Anything,
    /// Only operations that need the same key and no other. Somebody else kept this key locked, so all other operations would wait for it,
    /// too.
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
            release: None,
            second_look: SecondLook::default(),
            is_late: false,
            company: Company::default(),
            is_hurried: false,
        }
    }

    /// Whether the operation concerns this slot.
    pub(super) fn concerns(&self, slot: &Slot) -> bool {
        self.slot == *slot || self.all.contains(slot)
    }

    /// Whether everything in the same transaction would fail or wait with it.
    pub(super) fn holds_up(&self) -> bool {
        self.company != Company::Anything
    }

    /// Whether it is sent separately, because it would hold up the rest, or needs one of these locked keys.
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

    /// Restricts what may share a transaction with it from now on.
    pub(super) fn keep_to(&mut self, company: Company) {
        self.company = self.company.max(company);
    }

    /// Whether an earlier attempt may have released the lease while its context still considered it valid.
    pub(super) fn may_have_ended_belief(&self) -> bool {
        self.release.is_some_and(|facts| facts.maybe_released && self.since < facts.believed_until)
    }

    /// Whether it releases a lease that no longer counts as valid.
    pub(super) fn has_outlived_belief(&self, now: Monotonic) -> bool {
        self.release.is_none_or(|facts| facts.believed_until <= now)
    }

    /// Whether it releases something that a request for its key would find taken.
    pub(super) fn gives_back(&self) -> bool {
        matches!(self.action, Action::Release { .. } | Action::Withdraw { .. })
    }

    /// Whether both may share a separate transaction, because they need the same locked key and no other.
    pub(super) fn goes_apart_with(&self, other: &Self) -> bool {
        let may_share = |operation: &Self| operation.all.is_empty() && !operation.is_refused();
        may_share(self) && may_share(other) && self.slot.key == other.slot.key
    }

    /// The keys whose records it needs.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        iter::once(&self.slot).chain(&self.all).map(|slot| &slot.key)
    }

    /// The same operation, without anybody who waits for its answer.
    pub(super) fn unasked(&self) -> Self {
        Self { turn: None, ..self.clone() }
    }

    /// Whether it requests a lease, which opens a session if there is none.
    pub(super) fn acquires(&self) -> bool {
        matches!(self.action, Action::Acquire(_) | Action::AcquireAll(_))
    }

    /// Whether the end of the session has the same effect, and nobody waits for the answer.
    pub(super) fn is_done_by_session_end(&self) -> bool {
        self.turn.is_none() && self.gives_back()
    }

    /// Whether nothing waits for it, so that the session need not continue for it.
    pub(super) fn may_go_unsent(&self) -> bool {
        self.holds_up() && self.is_done_by_session_end()
    }

    /// Whether it makes sense only in its session. A request carries over to the next session.
    pub(super) fn needs_this_session(&self) -> bool {
        self.is_of_session() && !self.acquires()
    }

    /// Whether its answer tells something about the session. A look at a key does not.
    pub(super) fn is_of_session(&self) -> bool {
        !matches!(self.action, Action::Inspect)
    }
}

/// When something was sent, and by which transaction. The number tells moments apart that are equal on the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) at: Monotonic,
    pub(super) transaction: u64,
}

/// A transaction that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Transaction {
    pub(super) sent: Sent,
    /// The session that sent it.
    pub(super) session: SessionId,
    /// Whether it opens that session.
    pub(super) opens: bool,
    /// The lease that its heartbeat asks for, in ms, if it carries one.
    pub(super) lease_ms: Option<u64>,
    /// The sessions that it ends.
    pub(super) ends: Vec<Ending>,
    pub(super) operations: Vec<PendingOperation>,
    /// The time until which an answer is awaited.
    pub(super) limit: Monotonic,
    /// The keys whose records are to be deleted.
    pub(super) forgets: Vec<Key>,
    /// Sessions that have ended themselves, as messages said after it was sent. Its answer may still name them, because it may have run
    /// before.
    pub(super) gone: Vec<SessionId>,
}

impl Transaction {
    /// How many operations it carries.
    pub(super) fn load(&self) -> usize {
        self.operations.len() + self.ends.len() + self.forgets.len()
    }

    /// Whether it needs several keys, any of which may be the locked one.
    pub(super) fn has_several_keys(&self) -> bool {
        let keys: Vec<_> = self.operations.iter().map(|operation| &operation.slot.key).collect();
        !self.forgets.is_empty() || keys.windows(2).any(|keys| keys[0] != keys[1])
    }

    /// Whether its answer must find the session's row.
    pub(super) fn is_of_session(&self) -> bool {
        self.lease_ms.is_some() || self.operations.iter().any(PendingOperation::is_of_session)
    }

    /// The sessions that it was to end. These include its own session if that is no longer the context's.
    pub(super) fn endings(&self, own: SessionId) -> Vec<Ending> {
        let mut endings = self.ends.clone();
        if self.session != own && !self.opens {
            endings.push(Ending { session: self.session, beat: None });
        }
        endings
    }
}
