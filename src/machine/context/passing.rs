//! Passing a lease on within its context: its cohort decides who uses it next, and what becomes of it after use.

use super::{
    cohort::{Cohort, Held, Stage, User},
    config::{Config, belief_ms},
    input::{Slot, Turn, TurnId},
    store_queue::{StoreQueue, is_downgrade},
    time::Monotonic,
    token::Token,
};

/// What becomes of the next turn at a lease that is held.
pub(super) enum HandOut {
    /// There is none, or it waits until the lease is no longer in doubt.
    Nothing,
    /// It is a theft that joined the request of an earlier one, which now uses the lease.
    Robbed,
    /// It may not have the lease now.
    KeepBack,
    /// It needs a token, and there are none left.
    Refill,
    /// It got the lease.
    Granted {
        turn: TurnId,
        token: Token,
        /// Whether the lease passed to it from another turn, for the first time since the store was asked whether others wait.
        is_passed_on: bool,
        is_last: bool,
    },
}

/// What becomes of a lease when one of its users releases it.
pub(super) enum AfterUse {
    /// Other users keep it.
    Shared,
    /// The next turn may use it.
    PassedOn,
    /// It is kept for a while, although nobody uses it.
    Lingers,
    /// Nobody here is to have it, so it goes back to the store.
    GoesBack,
}

impl Cohort {
    /// Gives the lease to the next turn that may have it.
    // Protocol: docs/protocol.md#s6, #s8, #p5.
    pub(super) fn hand_out(
        &mut self,
        slot: &Slot,
        believed: bool,
        store_queue: &StoreQueue,
        config: &Config,
        now: Monotonic,
    ) -> HandOut {
        let Self { turns, stage: Stage::Held(held), .. } = self else { return HandOut::Nothing };
        let Some(turn) = turns.first() else { return HandOut::Nothing };
        if turn.steal && !held.users.is_empty() {
            return HandOut::Robbed;
        }
        // What was fenced while the lease was exclusive comes before the store's downgrade, or is refused after it.
        let weakens = held.was_exclusive(slot) && held.may_be_fenced() && store_queue.carries(slot, is_downgrade);
        let settled = held.upgrade.is_none() && held.admits(turn) && !weakens;
        let may_use = settled && (held.users.is_empty() || held.may_go_on(config, now));
        let next = if may_use { Some(0) } else { turns.first_sharer() };
        let joins = |at: &usize| may_use || turns.at(*at).is_some_and(|turn| held.is_joined_by(turn));
        let Some(next) = next.filter(joins) else { return HandOut::KeepBack };
        if !believed {
            return HandOut::Nothing;
        }
        if held.next_token > held.last_token {
            return HandOut::Refill;
        }
        let Some(turn) = turns.take(next) else {
            debug_assert!(false, "it was found in the queue");
            return HandOut::Nothing;
        };
        let token = held.admit(&turn, config.lease_ms, now);
        let is_passed_on = token != held.grant && !core::mem::replace(&mut held.passed_on, true);
        HandOut::Granted { turn: turn.id, token, is_passed_on, is_last: turns.is_empty() }
    }

    /// A user releases the lease. Returns what becomes of it, or `None` if this turn does not use it. `may_keep` tells whether the context
    /// may keep the lease without a user, as far as the session knows.
    pub(super) fn release(
        &mut self,
        turn: TurnId,
        slot: &Slot,
        may_keep: bool,
        config: &Config,
        now: Monotonic,
    ) -> Option<AfterUse> {
        let Self { turns, stage: Stage::Held(held), .. } = self else { return None };
        if !held.is_used_by(turn) {
            return None;
        }
        held.users.retain(|user| user.turn != turn);
        if !held.users.is_empty() {
            return Some(AfterUse::Shared);
        }
        // A transaction that a user has fenced may still be open. Then the next user needs a new lease from the store.
        let may_keep = held.is_plain(slot) && may_keep && !held.may_be_fenced();
        if may_keep && !turns.is_empty() && held.may_go_on(config, now) {
            return Some(AfterUse::PassedOn);
        }
        if may_keep && turns.is_empty() && config.linger_ms > 0 && !held.contended && !held.queued_for {
            held.lingers_until = Some(now.plus(config.linger_ms));
            return Some(AfterUse::Lingers);
        }
        Some(AfterUse::GoesBack)
    }
}

impl Held {
    /// Whether the lease may be passed on here although other contexts wait.
    // Protocol: docs/protocol.md#p5.
    pub(super) fn may_go_on(&self, config: &Config, now: Monotonic) -> bool {
        let within_tenure = now.since(self.tenure_since) < config.max_tenure_ms;
        !self.contended || (self.handoffs < config.max_local_handoffs && within_tenure)
    }

    /// Whether the lease has the slot's mode, neither upgraded nor downgraded, and is not for one request alone.
    fn is_plain(&self, slot: &Slot) -> bool {
        self.mode == slot.mode && slot.own.is_none()
    }

    pub(super) fn is_used_by_only(&self, turn: TurnId) -> bool {
        self.is_used_by(turn) && self.users.len() == 1 && self.upgrade.is_none()
    }

    /// A turn becomes a user.
    // Protocol: docs/protocol.md#q.
    fn admit(&mut self, turn: &Turn, lease_ms: u64, now: Monotonic) -> Token {
        let token = self.next_token;
        self.next_token = token.next();
        // The first user after a grant does not count as a hand-off.
        self.handoffs += u32::from(token != self.grant);
        (self.lingers_until, self.stolen) = (None, false);
        let ends_at = turn.max_hold_ms.map(|hold_ms| now.plus(hold_ms));
        let expires_at = (!turn.renews).then(|| now.plus(belief_ms(lease_ms)));
        let (turn, mode, share) = (turn.id, turn.mode, turn.share);
        self.users.reserve_exact(usize::from(self.users.is_empty()));
        self.users.push(User { turn, token, mode, share, ends_at, expires_at });
        token
    }
}
