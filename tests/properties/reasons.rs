//! Why entries of a record may come, go and change.

use leasehold::machine::{Acquire, Action, Grant, Outcome, Waiter, Way};

use leasehold_invariants::rank;

use crate::rules::{Moved, tokens};

impl Moved<'_> {
    /// Design rule 1: who is granted leaves nobody behind who was before it.
    pub(crate) fn nobody_passes(&self) {
        let known = tokens(self.before);
        for grant in self.after.grants.iter().filter(|grant| !known.contains(&grant.block.first)) {
            let is_ask = |ask: &&Acquire| (ask.request, self.me) == (grant.request, grant.holder);
            let ask = self.ask().filter(is_ask);
            if ask.is_some_and(|ask| ask.way == Way::Steal) {
                continue;
            }
            let place = (self.before.queue.iter())
                .find(|waiter| (waiter.holder, waiter.request) == (grant.holder, grant.request));
            let own = match (place, ask) {
                // A place goes where its request wants it now.
                (Some(place), Some(ask)) => (place.upgrades.is_none(), -i64::from(ask.priority), place.ticket),
                (Some(place), None) => rank(place),
                (None, Some(ask)) => (!matches!(ask.way, Way::Upgrade { .. }), -i64::from(ask.priority), u64::MAX),
                (None, None) => panic!("granted without asking: {grant:?}"),
            };
            let queued = |waiter: &Waiter| {
                self.before.queue.iter().any(|old| (old.holder, old.request) == (waiter.holder, waiter.request))
            };
            let passed = self.after.queue.iter().find(|waiter| queued(waiter) && rank(waiter) < own);
            assert_eq!(passed, None, "nobody passes who was before: {grant:?}");
        }
    }

    /// I3, I4, I9: why entries may go.
    pub(crate) fn nobody_goes_without_reason(&self) {
        for grant in &self.before.grants {
            let stays = |left: &Grant| (left.block.first, left.holder) == (grant.block.first, grant.holder);
            if !self.after.grants.iter().any(stays) {
                let ended = self.has_ended(grant.holder) && !self.only_looks();
                let why = "a grant goes with its session, by release, theft, detachment, resumption or upgrade";
                assert!(ended || self.is_upgraded(grant) || self.is_meant(grant), "{why}: {grant:?}");
            }
        }
        self.no_place_goes_without_reason();
    }

    fn is_upgraded(&self, grant: &Grant) -> bool {
        let token = grant.block.first;
        self.after.grants.iter().any(|new| {
            let gave = |waiter: &Waiter| {
                (waiter.holder, waiter.request, waiter.upgrades) == (new.holder, new.request, Some(token))
            };
            let way = Way::Upgrade { token, request: grant.request };
            let asked = || self.ask().is_some_and(|ask| ask.way == way);
            new.holder == grant.holder && (self.before.queue.iter().any(gave) || asked())
        })
    }

    /// Whether the operation takes this grant away.
    fn is_meant(&self, grant: &Grant) -> bool {
        let token = grant.block.first;
        match &self.operation.action {
            // With every release the request is withdrawn too.
            Action::Release { token: named, request } => {
                (*named == token || *request == grant.request) && grant.holder == self.me
            }
            Action::Withdraw { request } => *request == grant.request && grant.holder == self.me,
            Action::End { target, .. } => *target == grant.holder && self.answer.outcome == Outcome::Ended,
            Action::Detach { token: named, to, .. } => {
                let moved = |new: &Grant| (new.block, new.holder) == (grant.block, *to);
                *named == token && grant.holder == self.me && self.after.grants.iter().any(moved)
            }
            // All or nothing: what a part of it was granted earlier goes too.
            Action::AcquireAll(_) => {
                self.ask().is_some_and(|ask| (self.me, ask.request) == (grant.holder, grant.request))
            }
            Action::Acquire(ask) => match ask.way {
                Way::Steal => self.answer.robbed.contains(&(grant.holder, token)),
                Way::Resume { from, origin, token: resumed, request } => {
                    [from, origin].contains(&grant.holder) && (resumed, request) == (token, grant.request)
                }
                Way::Plain | Way::Upgrade { .. } => false,
            },
            _ => false,
        }
    }

    fn no_place_goes_without_reason(&self) {
        let me = self.me;
        for waiter in &self.before.queue {
            let is_it = |holder, request| (holder, request) == (waiter.holder, waiter.request);
            let stays = self.after.queue.iter().any(|left| is_it(left.holder, left.request));
            let granted = self.after.grants.iter().any(|grant| is_it(grant.holder, grant.request));
            if stays || granted {
                continue;
            }
            let meant = match &self.operation.action {
                Action::Release { request, .. } | Action::Withdraw { request } => is_it(me, *request),
                Action::End { target, .. } => *target == waiter.holder && self.answer.outcome == Outcome::Ended,
                // It is given up, or an older one of the same kind was abandoned.
                Action::Acquire(ask) => is_it(me, ask.request) || (waiter.holder == me && waiter.request < ask.request),
                Action::AcquireAll(_) => waiter.holder == me,
                _ => false,
            };
            let ended = self.has_ended(waiter.holder) && !self.only_looks();
            let token = waiter.upgrades;
            let orphaned = token.is_some_and(|token| !tokens(self.after).contains(&token));
            let handed_over = token.is_some_and(|token| {
                (self.after.grants.iter()).all(|grant| (grant.holder, grant.block.first) != (waiter.holder, token))
            });
            assert!(meant || ended || orphaned || handed_over, "a place goes for a reason: {waiter:?}");
        }
    }

    /// Nobody but who asks is changed; and not even they, if they were refused.
    pub(crate) fn bystanders_stay(&self) {
        let me = self.me;
        let refused = matches!(
            self.answer.outcome,
            Outcome::Busy { .. }
                | Outcome::BusyAll(_)
                | Outcome::UpgradeConflict { .. }
                | Outcome::Superseded
                | Outcome::TooLate
                | Outcome::NoSession
                | Outcome::Exhausted
        );
        for new in self.after.grants.iter().filter(|grant| refused || grant.holder != me) {
            let old = self.before.grants.iter().find(|grant| grant.block.first == new.block.first);
            let moves = matches!(self.operation.action, Action::Detach { to, .. } if to == new.holder);
            assert!(moves || old.is_none_or(|old| old == new), "a bystander's grant stays as it is: {new:?}");
        }
        for new in self.after.queue.iter().filter(|waiter| waiter.holder != me) {
            let old = self.before.queue.iter().find(|old| (old.holder, old.request) == (new.holder, new.request));
            assert_eq!(old, Some(new), "a bystander's place stays as it is");
        }
    }

    /// A theft robs all who hold the key, and none but them.
    pub(crate) fn the_robbed_are_told(&self) {
        let known = tokens(self.before);
        let robs = self.ask().is_some_and(|ask| ask.way == Way::Steal)
            && self.granted().is_some_and(|granted| !known.contains(&granted.block.first));
        let held = self.before.grants.iter().filter(|grant| robs && !self.has_ended(grant.holder));
        let held: Vec<_> = held.map(|grant| (grant.holder, grant.block.first)).collect();
        assert_eq!(self.answer.robbed, held, "robbed are those who held, by a theft alone");
    }
}
