//! That answers say what happened.

use std::collections::BTreeSet;

use leasehold::machine::{Acquire, Action, Grant, Mode, Outcome, Record, RequestId, SessionId, Token, Waiter, Way};

use leasehold_invariants::rank;

use crate::ghost::Ghost;
use crate::rules::{Moved, tokens};

impl Moved<'_> {
    pub(crate) fn who_is_granted_is_told_once(&self) {
        let known = tokens(self.before);
        let fresh = |token: &Token| !known.contains(token);
        let mut told: Vec<Token> = self.promoted_anew().map(|promotion| promotion.block.first).collect();
        told.extend(self.granted().map(|granted| granted.block.first).filter(fresh));
        let mut granted: Vec<Token> = tokens(self.after).into_iter().filter(fresh).collect();
        told.sort_unstable();
        granted.sort_unstable();
        assert_eq!(told, granted, "who is granted is told exactly once");
        for promotion in self.promoted() {
            let is_it = |grant: &&Grant| grant.block.first == promotion.block.first;
            let grant = self.after.grants.iter().find(is_it).expect("who is promoted holds the key");
            let as_told = (promotion.holder, promotion.request, promotion.block, promotion.previous);
            assert_eq!(as_told, (grant.holder, grant.request, grant.block, grant.previous));
            if !fresh(&grant.block.first) {
                let own = self.operation.action == Action::Look && grant.holder == self.me;
                assert!(own, "only a look tells of older grants, and of one's own: {grant:?}");
                continue;
            }
            let is_place = |waiter: &&Waiter| (waiter.holder, waiter.request) == (grant.holder, grant.request);
            let place = self.before.queue.iter().find(is_place).expect("who is promoted had a place");
            assert_eq!(grant.mode, place.mode);
        }
        if self.operation.action == Action::Look {
            let own = |holder: SessionId| holder == self.me;
            let held = self.after.grants.iter().filter(|grant| own(grant.holder)).count();
            assert_eq!(self.promoted().filter(|promotion| own(promotion.holder)).count(), held, "a look tells all");
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
            (Outcome::UpgradeConflict { .. }, _) => {
                let upgrades = self.after.queue.iter().any(|waiter| waiter.upgrades.is_some());
                return assert!(upgrades, "somebody else upgrades: {:?}", self.after);
            }
            _ => return,
        };
        if ahead.is_empty() {
            return;
        }
        let upgrades = match ask.way {
            Way::Upgrade { token, .. } => Some(token),
            _ => None,
        };
        let given = |grant: &&Grant| grant.holder == self.me && Some(grant.block.first) == upgrades;
        let mut others = self.after.grants.iter().filter(|grant| !given(grant));
        let blocked = others.any(|grant| ask.mode == Mode::Exclusive || grant.mode == Mode::Exclusive);
        let own = (upgrades.is_none(), -i64::from(ask.priority), u64::MAX);
        let behind = self.after.queue.iter().any(|waiter| rank(waiter) < own);
        assert!(blocked || behind, "who is refused could not be granted: {:?}", self.after);
    }

    pub(crate) fn outcome_is_true(&self) {
        self.requests_go_along();
        match (&self.operation.action, &self.answer.outcome) {
            (Action::Inspect, Outcome::Status { last_token, grants, queue, sessions }) => {
                let row = |holder: SessionId| self.rows.get(holder).is_some();
                assert_eq!(*last_token, self.before.last_token);
                assert!(grants.iter().eq(self.before.grants.iter().filter(|grant| row(grant.holder))));
                assert!(queue.iter().eq(self.before.queue.iter().filter(|waiter| row(waiter.holder))));
                let there = grants.iter().map(|grant| grant.holder).chain(queue.iter().map(|waiter| waiter.holder));
                let told: Vec<_> = sessions.iter().map(|(session, _)| *session).collect();
                assert_eq!(
                    told,
                    there.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>(),
                    "each session is told once"
                );
            }
            (Action::Release { request, .. }, Outcome::NotCurrent { .. }) => {
                // Rule e: its own request it takes along, and nothing of anybody else's.
                let own = self.own(self.before, *request).is_some() || self.place(self.before, *request).is_some();
                assert!(self.before == self.after || own || !self.all_are_alive(), "I9");
            }
            (
                Action::Verify { token, .. } | Action::Downgrade { token, .. } | Action::Detach { token, .. },
                Outcome::NotCurrent { stolen, last_token },
            ) => {
                assert!(self.before == self.after || !self.all_are_alive(), "I9: who is not current changes nothing");
                let robbed = self.rows.get(self.me).map_or(&[][..], |row| &row.robbed);
                assert_eq!(*stolen, robbed.contains(&(self.key.clone(), *token)), "a theft is told as one");
                assert!(*last_token >= self.before.last_token, "and how far the tokens got");
            }
            (Action::Verify { token, request, .. }, Outcome::Current { .. }) => {
                let held = self.own(self.before, *request).filter(|grant| grant.block.first == *token);
                assert!(held.is_some() && self.rows.get(self.me).is_some(), "only what stands is current");
            }
            (Action::End { target, beat }, outcome) => self.ending_is_true(*target, *beat, outcome),
            (Action::Look, Outcome::Looked { requests, .. }) => {
                let own = self.after.queue.iter().filter(|waiter| waiter.holder == self.me);
                assert!(own.map(|waiter| waiter.request).eq(requests.iter().copied()), "the places are told in order");
            }
            (Action::Acquire(ask), outcome) => self.answer_to(ask, self.own(self.before, ask.request), outcome),
            _ => {}
        }
    }

    fn own<'a>(&self, record: &'a Record, request: RequestId) -> Option<&'a Grant> {
        record.grants.iter().find(|grant| (grant.holder, grant.request) == (self.me, request))
    }

    fn place<'a>(&self, record: &'a Record, request: RequestId) -> Option<&'a Waiter> {
        record.queue.iter().find(|waiter| (waiter.holder, waiter.request) == (self.me, request))
    }

    /// Rule e.
    fn requests_go_along(&self) {
        if let Action::Release { request, .. } | Action::Withdraw { request } = &self.operation.action {
            assert!(self.place(self.after, *request).is_none(), "the place goes along");
            assert!(self.own(self.after, *request).is_none(), "and so does the grant");
        }
    }

    /// S3: a session that was heard since is left alone; of one that has ended nothing is left here.
    fn ending_is_true(&self, target: SessionId, beat: u64, outcome: &Outcome) {
        let moved =
            self.beat_of(target).is_some_and(|now| now != beat) && (target == self.me || !self.has_ended(target));
        match outcome {
            Outcome::Moved => {
                assert!(self.beat_of(target).is_some_and(|now| now != beat), "only a beat saves a session");
                assert!(self.before == self.after || !self.all_are_alive(), "a stale End changes nothing");
            }
            Outcome::Ended => {
                assert!(!moved, "who was heard since is not ended");
                let grants = self.after.grants.iter().map(|grant| grant.holder);
                let mut left = grants.chain(self.after.queue.iter().map(|waiter| waiter.holder));
                assert!(left.all(|holder| holder != target), "nothing of it is left");
            }
            other => panic!("an End ends or does not: {other:?}"),
        }
    }

    fn beat_of(&self, session: SessionId) -> Option<u64> {
        self.rows.get(session).map(|row| row.beat)
    }

    /// I2, rule s: a fence asks for exactly this grant, still exclusive if the guard relied on that, and for nothing else.
    pub(crate) fn fence_is_true(&self, ghost: &Ghost) {
        let Action::Fence { token, request, mode, .. } = self.operation.action else { return };
        let found = self.own(self.before, request).filter(|grant| grant.block.first == token);
        let kept = found.filter(|grant| mode == Mode::Shared || grant.mode == Mode::Exclusive);
        let passed = matches!(self.answer.outcome, Outcome::Current { .. });
        assert_eq!(passed, kept.is_some(), "a fence asks for the very grant");
        let was_downgraded = matches!(self.answer.outcome, Outcome::Downgraded);
        assert_eq!(was_downgraded, kept.is_none() && found.is_some(), "a fence tells a downgrade from a loss");
        if let Some(grant) = kept {
            ghost.fence_let_pass(self.key, token, grant.mode);
        }
    }

    /// S1, S11: without a session, or below its floor, nothing is looked at.
    fn is_refused(&self, ask: &Acquire, outcome: &Outcome) -> bool {
        let expected = match self.rows.get(self.me) {
            None => Outcome::NoSession,
            Some(row) if ask.attempt < row.floor => Outcome::TooLate,
            Some(_) => return false,
        };
        assert_eq!(*outcome, expected, "an attempt that comes late is refused");
        assert!(self.before == self.after || !self.all_are_alive(), "and changes nothing");
        true
    }

    /// I8, rules a and c.
    fn answer_to(&self, ask: &Acquire, held: Option<&Grant>, outcome: &Outcome) {
        if self.is_refused(ask, outcome) {
            return;
        }
        assert_ne!(*outcome, Outcome::NoSession, "who has a session is not told otherwise");
        let has_place = self.place(self.after, ask.request).is_some();
        assert_eq!(has_place, matches!(outcome, Outcome::Waiting { .. }), "who waits has a place: {outcome:?}");
        if let Some(held) = held {
            let granted = self.granted().expect("asking again gives the same grant");
            assert_eq!(granted.block, held.block, "asking again gives the same grant");
        }
        match outcome {
            Outcome::Waiting { last_token, .. } => assert_eq!(*last_token, self.after.last_token, "S12"),
            Outcome::Busy { ahead } => assert!(!ahead.is_empty(), "somebody is in the way"),
            _ => {}
        }
        if let Some(granted) = self.granted() {
            assert_eq!(granted.contended, !self.after.queue.is_empty());
        }
    }
}
