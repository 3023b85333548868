//! Why entries of a record may come, go and change.

use leasehold::machine::{Acquire, Action, Entry, Outcome, Waiter, Way};

use crate::rules::{Moved, rank, tokens};

impl Moved<'_> {
    /// Design rule 1: who is granted leaves nobody behind who was before it.
    pub(crate) fn nobody_passes(&self) {
        let known = tokens(self.before);
        for grant in self.after.grants.iter().filter(|grant| !known.contains(&grant.block.first)) {
            let is_ask = |ask: &&Acquire| (ask.request, self.operation.holder) == (grant.request, grant.holder);
            let ask = self.ask().filter(is_ask);
            if ask.is_some_and(|ask| ask.way == Way::Steal) {
                continue;
            }
            let place = (self.before.queue.iter())
                .find(|waiter| (waiter.holder, waiter.request) == (grant.holder, grant.request));
            let own = match (place, ask) {
                (Some(place), Some(ask)) if ask.beat > place.beat => {
                    (place.upgrades.is_none(), -i64::from(ask.priority), place.ticket)
                }
                (Some(place), _) => rank(place),
                (None, Some(ask)) => (!matches!(ask.way, Way::Upgrade(_)), -i64::from(ask.priority), u64::MAX),
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
        let me = self.operation.holder;
        for grant in &self.before.grants {
            if self.after.grants.iter().any(|left| left.block.first == grant.block.first && left.holder == grant.holder)
            {
                continue;
            }
            let (token, named) = (grant.block.first, Entry::Grant(grant.block.first));
            let upgraded = self.after.grants.iter().any(|new| {
                let gave = |waiter: &Waiter| {
                    (waiter.holder, waiter.request, waiter.upgrades) == (new.holder, new.request, Some(token))
                };
                new.holder == grant.holder
                    && (self.before.queue.iter().any(gave)
                        || self.ask().is_some_and(|ask| ask.way == Way::Upgrade(token)))
            });
            let meant = match &self.operation.action {
                // With every release the request is withdrawn too.
                Action::Release { token: named, request } => {
                    (*named == token || *request == grant.request) && grant.holder == me
                }
                Action::Withdraw { request } => *request == grant.request && grant.holder == me,
                Action::Evict { target, entry, beat } => (*target, *entry, *beat) == (grant.holder, named, grant.beat),
                // All or nothing: what a part of it was granted earlier goes too.
                Action::AcquireAll(_) => {
                    self.ask().is_some_and(|ask| (me, ask.request) == (grant.holder, grant.request))
                }
                Action::Acquire(ask) => match ask.way {
                    Way::Steal => self.answer.robbed.contains(&(grant.holder, token)),
                    Way::Resume { from, token: resumed, .. } => (from, resumed) == (grant.holder, token),
                    _ => false,
                },
                _ => false,
            };
            let ran_out = self.over.contains(&(grant.holder, named)) && grant.holder != me && self.ask().is_some();
            assert!(
                upgraded || meant || ran_out,
                "a grant goes by release, eviction, time, theft, resumption or upgrade: {grant:?}"
            );
        }
        self.no_place_goes_without_reason();
    }

    fn no_place_goes_without_reason(&self) {
        let me = self.operation.holder;
        for waiter in &self.before.queue {
            let is_it = |holder, request| (holder, request) == (waiter.holder, waiter.request);
            let stays = self.after.queue.iter().any(|left| is_it(left.holder, left.request));
            let granted = self.after.grants.iter().any(|grant| is_it(grant.holder, grant.request));
            if stays || granted {
                continue;
            }
            let meant = match &self.operation.action {
                Action::Release { request, .. } | Action::Withdraw { request } => is_it(me, *request),
                Action::Evict { target, entry, beat } => {
                    *entry == Entry::Waiter(waiter.request) && (*target, *beat) == (waiter.holder, waiter.beat)
                }
                // It is given up, or an older one of the same kind was abandoned.
                Action::Acquire(ask) => is_it(me, ask.request) || (waiter.holder == me && waiter.request < ask.request),
                Action::AcquireAll(_) => waiter.holder == me,
                _ => false,
            };
            let ran_out = self.over.contains(&(waiter.holder, Entry::Waiter(waiter.request))) && waiter.holder != me;
            let token = waiter.upgrades;
            let orphaned = token.is_some_and(|token| !tokens(self.after).contains(&token));
            let handed_over = token.is_some_and(|token| {
                (self.after.grants.iter()).all(|grant| (grant.holder, grant.block.first) != (waiter.holder, token))
            });
            assert!(meant || ran_out || orphaned || handed_over, "a place goes for a reason: {waiter:?}");
        }
    }

    /// Nobody but who asks is changed; and not even they, if they were refused.
    pub(crate) fn bystanders_stay(&self) {
        let me = self.operation.holder;
        let refused = matches!(
            self.answer.outcome,
            Outcome::Busy { .. }
                | Outcome::BusyAll(_)
                | Outcome::UpgradeConflict
                | Outcome::Superseded
                | Outcome::Exhausted
        );
        for new in self.after.grants.iter().filter(|grant| refused || grant.holder != me) {
            let old = self.before.grants.iter().find(|grant| grant.block.first == new.block.first);
            assert!(old.is_none_or(|old| old == new), "a bystander's grant stays as it is: {new:?}");
        }
        for new in self.after.queue.iter().filter(|waiter| waiter.holder != me) {
            let old = self.before.queue.iter().find(|old| (old.holder, old.request) == (new.holder, new.request));
            assert_eq!(old, Some(new), "a bystander's place stays as it is");
        }
    }

    pub(crate) fn the_robbed_are_told(&self) {
        let robbed = &self.answer.robbed;
        let Some(ask) = self.ask().filter(|ask| ask.way == Way::Steal && !robbed.is_empty()) else {
            assert_eq!(robbed.len(), 0, "only a theft robs");
            return assert_eq!(self.after.stolen, self.before.stolen);
        };
        let gone = (self.before.grants.iter())
            .filter(|grant| {
                self.operation.holder == grant.holder
                    || !self.over.contains(&(grant.holder, Entry::Grant(grant.block.first)))
            })
            .map(|grant| (grant.holder, grant.block.first));
        assert!(gone.eq(robbed.iter().copied()), "robbed are those who held: {robbed:?}");
        assert!(self.granted().is_some(), "a thief gets what it robbed: {ask:?} {:?}", self.answer);
        let mut stolen = self.before.stolen.clone();
        stolen.extend(robbed.iter().map(|(_, token)| *token));
        let forgotten = stolen.len().saturating_sub(8);
        assert_eq!(self.after.stolen, stolen[forgotten..]);
    }
}
