//! That answers say what happened.

use leasehold::machine::{Acquire, Action, Grant, Mode, Outcome, Record, RequestId, Token, Waiter, Way};

use crate::rules::{Moved, rank, tokens};

impl Moved<'_> {
    pub(crate) fn who_is_granted_is_told_once(&self) {
        let known = tokens(self.before);
        let fresh = |token: &Token| !known.contains(token);
        let mut told: Vec<Token> = self.promoted().map(|promotion| promotion.block.first).collect();
        told.extend(self.granted().map(|granted| granted.block.first).filter(fresh));
        let mut granted: Vec<Token> = tokens(self.after).into_iter().filter(fresh).collect();
        told.sort_unstable();
        granted.sort_unstable();
        assert_eq!(told, granted, "who is granted is told exactly once");
        for promotion in self.promoted() {
            let grant = self.after.grants.iter().find(|grant| grant.block.first == promotion.block.first).unwrap();
            let as_told =
                (promotion.holder, promotion.request, promotion.block, promotion.lease_ms, promotion.previous);
            assert_eq!(as_told, (grant.holder, grant.request, grant.block, grant.lease_ms, grant.previous));
            let place = self
                .before
                .queue
                .iter()
                .find(|waiter| waiter.request == grant.request && waiter.holder == grant.holder);
            let place = place.expect("who is promoted had a place");
            let lease_ms = if place.holder == self.operation.holder { place.lease_ms } else { place.heir_ms };
            assert_eq!(
                (grant.lease_ms, grant.mode),
                (lease_ms, place.mode),
                "an heir's first lease is its own heir_ms"
            );
        }
    }

    /// Who is refused could not be granted now either.
    pub(crate) fn refusal_is_true(&self) {
        let Some(ask) = self.ask() else { return };
        let ahead = match (&self.answer.outcome, &self.operation.action) {
            (Outcome::Busy { ahead }, _) => ahead,
            (Outcome::BusyAll(all), Action::AcquireAll(asks)) => {
                let at = asks.iter().position(|(key, _)| key == self.key).expect("it is one of them");
                &all[at]
            }
            (Outcome::UpgradeConflict, _) => {
                let upgrades = self.after.queue.iter().any(|waiter| waiter.upgrades.is_some());
                return assert!(upgrades, "somebody else upgrades: {:?}", self.after);
            }
            _ => return,
        };
        if ahead.is_empty() {
            return;
        }
        let upgrades = match ask.way {
            Way::Upgrade(token) => Some(token),
            _ => None,
        };
        let given = |grant: &&Grant| grant.holder == self.operation.holder && Some(grant.block.first) == upgrades;
        let mut others = self.after.grants.iter().filter(|grant| !given(grant));
        let blocked = others.any(|grant| ask.mode == Mode::Exclusive || grant.mode == Mode::Exclusive);
        let own = (upgrades.is_none(), -i64::from(ask.priority), u64::MAX);
        let behind = self.after.queue.iter().any(|waiter| rank(waiter) < own);
        assert!(blocked || behind, "who is refused could not be granted: {:?}", self.after);
    }

    pub(crate) fn outcome_is_true(&self) {
        let own = |record: &Record, request: RequestId| {
            let holder = self.operation.holder;
            record.grants.iter().find(|grant| (grant.holder, grant.request) == (holder, request)).cloned()
        };
        if let Action::Release { request, .. } | Action::Withdraw { request } = &self.operation.action {
            let named = |waiter: &Waiter| (waiter.holder, waiter.request) == (self.operation.holder, *request);
            assert!(!self.after.queue.iter().any(named), "rule e: the place goes along");
        }
        match (&self.operation.action, &self.answer.outcome) {
            (Action::Inspect, Outcome::Status { last_token, grants, queue }) => {
                assert_eq!(
                    (last_token, grants, queue),
                    (&self.after.last_token, &self.after.grants, &self.after.queue)
                );
                assert_eq!(self.before, self.after, "looking changes nothing");
            }
            (Action::Fence { token, request }, outcome) => {
                let current = own(self.before, *request).is_some_and(|grant| grant.block.first == *token);
                assert_eq!(*outcome == Outcome::Current, current, "rule s: a fence asks for the very grant");
                assert_eq!(self.before, self.after, "a fence changes nothing");
            }
            (Action::Release { request, .. }, Outcome::NotCurrent { .. }) => {
                // Rule e: its own request it takes along, and nothing of anybody else's.
                let own = |holder, asked| (holder, asked) == (self.operation.holder, *request);
                let places = self.before.queue.iter().any(|waiter| own(waiter.holder, waiter.request));
                let grants = self.before.grants.iter().any(|grant| own(grant.holder, grant.request));
                assert!(self.before == self.after || places || grants, "I9");
            }
            (Action::Renew { .. } | Action::Downgrade { .. }, Outcome::NotCurrent { stolen, .. }) => {
                assert_eq!(self.before, self.after, "I9: who is not current changes nothing");
                let (Action::Renew { token, .. } | Action::Downgrade { token }) = &self.operation.action else {
                    return;
                };
                assert_eq!(*stolen, self.before.stolen.contains(token));
            }
            (Action::Evict { .. }, Outcome::Moved) => assert_eq!(self.before, self.after, "rule g"),
            (Action::Withdraw { request }, Outcome::Withdrawn) => {
                assert!(own(self.after, *request).is_none(), "rule e")
            }
            (Action::Acquire(ask), outcome) => self.answer_to(ask, own(self.before, ask.request), outcome),
            (Action::Renew { token, beat, lease_ms, .. }, Outcome::Renewed { lease_ms: told, .. }) => {
                self.renewed(*token, (*beat, *lease_ms), *told);
            }
            _ => {}
        }
    }

    /// I8, rules a, c and j.
    fn answer_to(&self, ask: &Acquire, held: Option<Grant>, outcome: &Outcome) {
        let place = self
            .after
            .queue
            .iter()
            .find(|waiter| (waiter.holder, waiter.request) == (self.operation.holder, ask.request));
        assert_eq!(place.is_some(), matches!(outcome, Outcome::Waiting { .. }), "who waits has a place: {outcome:?}");
        if let Some(held) = held {
            let granted = self.granted().expect("asking again gives the same grant");
            assert_eq!(granted.block, held.block, "asking again gives the same grant");
            // Unless an upgrade of it, which queued, was granted by the same transaction.
            if let Some(now) = self.after.grants.iter().find(|grant| grant.block == held.block) {
                assert!(
                    granted.lease_ms >= held.lease_ms && granted.lease_ms == now.lease_ms,
                    "adopting never shortens"
                );
                assert_eq!(now.beat, held.beat.max(ask.beat), "an older beat is ignored");
            }
        }
        match outcome {
            Outcome::Waiting { last_token, .. } => assert_eq!(*last_token, self.after.last_token, "rule b"),
            Outcome::Busy { ahead } => assert!(!ahead.is_empty(), "somebody is in the way"),
            _ => {}
        }
        if let Some(granted) = self.granted() {
            assert_eq!(granted.contended, !self.after.queue.is_empty());
        }
    }

    fn renewed(&self, token: Token, (beat, lease_ms): (u64, u64), told: u64) {
        let grant = |record: &Record| record.grants.iter().find(|grant| grant.block.first == token).cloned();
        let (old, new) = (grant(self.before).expect("it stood"), grant(self.after).expect("it stands"));
        assert_eq!(new.beat, old.beat.max(beat));
        assert_eq!(new.lease_ms, if beat > old.beat { lease_ms } else { old.lease_ms }, "rule j");
        assert_eq!(told, new.lease_ms, "nothing but the recorded lease is told");
    }
}
