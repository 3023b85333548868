//! Changes the mode of a lease that is held.

use alloc::{boxed::Box, vec::Vec};

use super::{
    Machine, RequestId, Sighting,
    busy::{GONE_MS, LOOK_MS},
    cohort::{Cohort, Held, Seeking, Upgrade},
    input::{Slot, TurnId},
    mode::Mode,
    output::{Event, LostReason, Refusal},
    pending::PendingOperation,
    record::{Action, Granted, Outcome, Way},
    store_queue::is_ask_for,
    time::Monotonic,
    token::Token,
};

impl Machine {
    /// Upgrades the lease of a shared guard: ahead of everybody in the queue, once no other guard shares the key.
    pub(super) fn upgrade(&mut self, query: TurnId, turn: TurnId, slot: &Slot, now: Monotonic) {
        let held = self.cohorts.change_held(slot);
        let Some((held, user)) = held.and_then(|held| {
            let user = held.users.iter().find(|user| user.turn == turn)?.clone();
            Some((held, user))
        }) else {
            return self.refuse(query, Refusal::Lost(LostReason::Expired));
        };
        if held.mode == Mode::Exclusive && held.users.len() == 1 {
            return self.emit(Event::Upgraded { query, turn, token: user.token });
        }
        if let Some(upgrade) = held.upgrade.as_mut().filter(|upgrade| upgrade.may_go_again(turn)) {
            // It waits until the store has answered the previous one.
            upgrade.again = Some(query);
            return;
        }
        if held.upgrade.is_some() || held.mode == Mode::Exclusive {
            return self.refuse(query, Refusal::UpgradeConflict);
        }
        held.upgrade = Some(Box::new(Upgrade { query, turn, seeking: None, cancelled: false, again: None }));
        self.begin_upgrade(slot, now);
    }

    /// Asks the store, once no other guard of this context shares the lease.
    pub(super) fn begin_upgrade(&mut self, slot: &Slot, now: Monotonic) {
        let request = self.last_request.next();
        let Some(held) = self.cohorts.change_held(slot) else {
            return debug_assert!(false, "an upgrade begins at a lease");
        };
        let (sole, way) = (held.users.len() == 1, Way::Upgrade { token: held.grant, request: held.request });
        let Some(upgrade) = held.upgrade.as_mut().filter(|upgrade| sole && upgrade.seeking.is_none()) else { return };
        upgrade.seeking = Some(Seeking::new(request, way, true, now));
        self.last_request = request;
        self.end_silent(slot, now);
        self.ask(slot, now);
    }

    pub(super) fn cancel_upgrade(&mut self, query: TurnId, slot: &Slot, now: Monotonic) {
        let Some(held) = self.cohorts.change_held(slot) else { return };
        let Some(upgrade) = held.upgrade.as_mut() else { return };
        upgrade.again = upgrade.again.filter(|again| *again != query);
        if upgrade.query != query {
            return;
        }
        let Some(seeking) = upgrade.seeking.as_mut() else {
            held.upgrade = None;
            return self.share_on(slot, now);
        };
        // A repetition that does not wait gives up the place, unless the upgrade was granted already.
        upgrade.cancelled = true;
        seeking.wait = false;
        self.ask(slot, now);
    }

    /// The upgrades whose callers still wait: each with its query, and the slot of its guard.
    pub(crate) fn awaited_upgrades(&self) -> Vec<(TurnId, Slot)> {
        let awaited = |slot: &Slot| self.cohorts.held(slot)?.upgrade.as_ref()?.awaited();
        self.cohorts.slots().into_iter().filter_map(|slot| Some((awaited(&slot)?, slot))).collect()
    }

    /// Cancels the upgrade of a guard that ends. Returns whether the store was asked: then it is unknown whether the lease was upgraded.
    pub(super) fn cancel_upgrade_of(&mut self, turn: TurnId, slot: &Slot, now: Monotonic) -> bool {
        let Some(held) = self.cohorts.change_held(slot) else { return false };
        let Some(upgrade) = held.upgrade.take_if(|upgrade| upgrade.turn == turn) else { return false };
        if let Some(query) = upgrade.awaited() {
            self.refuse(query, Refusal::Lost(LostReason::Expired));
        }
        let asked = upgrade.seeking.as_ref().is_some_and(|seeking| seeking.sent);
        self.withdraw_upgrade(slot, Some(upgrade), now);
        self.ask_again_who_queues(slot, now);
        asked
    }

    /// Handles the answer to the request of an upgrade.
    // Protocol: docs/protocol.md#rule-5.
    pub(super) fn upgrade_answered(&mut self, slot: &Slot, outcome: &Outcome, now: Monotonic) {
        match outcome {
            Outcome::Granted(granted) => self.upgraded(slot, granted, now),
            Outcome::Waiting { last_token, position, ahead } => {
                // The rival, if there was one, no longer upgrades. Its further messages do not count.
                if let Some(seeking) = self.cohorts.change_seeking(slot) {
                    (seeking.look_until, seeking.probes_until) = (None, None);
                }
                self.queued(slot, *last_token, *position, ahead, now);
            }
            Outcome::UpgradeConflict { ahead } => {
                // If the rival has fallen silent, the next attempt ends its session.
                self.observe(slot, ahead, now);
                if !self.wait_for_rival(slot, ahead, now) {
                    self.end_upgrade(slot, Refusal::UpgradeConflict, now);
                }
            }
            Outcome::TooLate => self.ask(slot, now),
            Outcome::Exhausted => self.end_upgrade(slot, Refusal::Exhausted, now),
            Outcome::Unreadable(unreadable) => self.end_upgrade(slot, Refusal::Unreadable(*unreadable), now),
            Outcome::NotCurrent { .. } => {
                let Some(token) = self.cohorts.held(slot).map(|held| held.grant) else {
                    return debug_assert!(false, "an upgrade belongs to a lease");
                };
                self.judge_loss(slot, token, outcome, now);
            }
            // It was cancelled.
            _ => self.end_upgrade(slot, Refusal::Timeout, now),
        }
    }

    /// Gives a rival time to show that it is alive: asks it whether it uses the key, and, if it does not answer, watches its beacon,
    /// although the upgrade has no place in the queue. Returns whether it is too early to refuse the upgrade because of this rival.
    // Protocol: docs/protocol.md#s9.
    fn wait_for_rival(&mut self, slot: &Slot, ahead: &[Sighting], now: Monotonic) -> bool {
        let may_be_dead = |seen: &&Sighting| seen.beacon && seen.holder != self.session.id();
        let Some(rival) = ahead.last().filter(may_be_dead) else { return false };
        let upgrade =
            self.cohorts.change_held(slot).and_then(|held| held.upgrade.as_mut()).filter(|upgrade| !upgrade.cancelled);
        let Some(seeking) = upgrade.and_then(|upgrade| upgrade.seeking.as_mut()).filter(|seeking| !seeking.is_in_use)
        else {
            return false;
        };
        if seeking.look_until.is_none() {
            let until = Some(now.plus(LOOK_MS));
            (seeking.look_at, seeking.look_until) = (until, until);
            self.ask_for_life(&slot.key, rival.holder);
            return true;
        }
        *seeking.probes_until.get_or_insert_with(|| now.plus(GONE_MS)) > now
    }

    /// The rival is alive, so the upgrade is refused, unless the store is being asked at this moment.
    pub(super) fn conclude_upgrade(&mut self, slot: &Slot, now: Monotonic) {
        let Some(seeking) = self.cohorts.change_seeking(slot) else { return };
        (seeking.is_in_use, seeking.look_at, seeking.probes_until) = (true, None, None);
        let request = seeking.request;
        // If it is, its answer says whether the rival still upgrades.
        if !self.store_queue.carries(slot, is_ask_for(request)) {
            self.end_upgrade(slot, Refusal::UpgradeConflict, now);
        }
    }

    /// The upgrade failed, and the guard stays shared.
    pub(super) fn end_upgrade(&mut self, slot: &Slot, refusal: Refusal, now: Monotonic) {
        let Some(upgrade) = self.cohorts.change_held(slot).and_then(|held| held.upgrade.take()) else { return };
        match upgrade.again {
            Some(query) => self.upgrade(query, upgrade.turn, slot, now),
            None if !upgrade.cancelled => self.refuse(upgrade.query, refusal),
            None => {}
        }
        self.share_on(slot, now);
    }

    /// No guard here wants to upgrade any more, so others may share the lease again. This asks the store who queues: an earlier answer may
    /// count the upgrade itself, and the context did not ask while the upgrade waited.
    // Protocol: docs/protocol.md#p5.
    fn share_on(&mut self, slot: &Slot, now: Monotonic) {
        self.ask_again_who_queues(slot, now);
        self.hand_out(slot, now);
    }

    // Protocol: docs/protocol.md#p5.
    pub(super) fn upgraded(&mut self, slot: &Slot, granted: &Granted, now: Monotonic) {
        if self.session.was_robbed(&slot.key, granted.block.first) {
            return self.lose(slot, LostReason::Stolen, now);
        }
        let Some(held) = self.cohorts.change_held(slot) else {
            return debug_assert!(false, "an upgrade belongs to a lease");
        };
        let Some(upgrade) = held.upgrade.take() else { return debug_assert!(false, "the answer is for its request") };
        let awaited = upgrade.awaited();
        let Upgrade { turn, seeking: Some(seeking), .. } = *upgrade else {
            return debug_assert!(false, "the answer is for this request");
        };
        held.upgraded(seeking.request, granted);
        let token = held.next_token;
        held.next_token = token.next();
        if let Some(user) = held.users.iter_mut().find(|user| user.turn == turn) {
            user.token = token;
            user.mode = if awaited.is_some() { Mode::Exclusive } else { Mode::Shared };
        }
        self.last_writers.granted(&slot.key, Mode::Exclusive, granted, None);
        match awaited {
            Some(query) => self.emit(Event::Upgraded { query, turn, token }),
            None => self.weaken(slot, None, now),
        }
        // Until its new tokens were known, requests that share could not join the lease.
        self.hand_out(slot, now);
    }

    pub(super) fn downgrade(&mut self, query: TurnId, turn: TurnId, slot: &Slot, now: Monotonic) {
        let held = self.cohorts.change_held(slot);
        let Some(user) = held.and_then(|held| held.users.iter_mut().find(|user| user.turn == turn)) else {
            return self.tell_verified(query, Ok(false));
        };
        user.mode = Mode::Shared;
        self.emit(Event::Downgraded { turn });
        self.weaken(slot, Some(query), now);
    }

    /// Downgrades an exclusive lease, once no guard here needs it exclusively.
    pub(super) fn weaken(&mut self, slot: &Slot, query: Option<TurnId>, now: Monotonic) {
        let Some(held) = self.cohorts.change_held(slot) else {
            return debug_assert!(false, "its user has just spoken");
        };
        let (token, request) = (held.grant, held.request);
        match query {
            // Other guards here hold it exclusively, too. It is downgraded when they are gone.
            Some(query) if held.mode == Mode::Exclusive && !held.is_too_strong() => {
                self.tell_verified(query, Ok(true));
            }
            None if !held.is_too_strong() => {}
            _ => {
                // The context no longer considers it exclusive, whenever the store applies the downgrade.
                held.mode = Mode::Shared;
                self.store_queue.push(slot, Action::Downgrade { token, request }, query, now);
            }
        }
    }

    /// Handles the answer to a downgrade.
    pub(super) fn downgraded(&mut self, operation: &PendingOperation, outcome: &Outcome, now: Monotonic) {
        let Action::Downgrade { token, .. } = operation.action else {
            return debug_assert!(false, "it is called for a downgrade only");
        };
        let slot = &operation.slot;
        let done = matches!(outcome, Outcome::Downgraded);
        let held = self.cohorts.change(slot).and_then(Cohort::held_mut);
        let is_upgraded = held.as_ref().is_some_and(|held| held.may_have_grown_out_of(token));
        match held.filter(|held| held.grant == token) {
            Some(held) if done => {
                held.mode = Mode::Shared;
                self.hand_out(slot, now);
            }
            // It may have been upgraded since, which the answer to its request will tell.
            Some(held) if held.asks_for_upgrade() => self.ask(slot, now),
            Some(_) => self.judge_loss(slot, token, outcome, now),
            None => {}
        }
        match operation.turn {
            // The downgrade was sent before the lease got new tokens, so the store is asked about the new grant. If nobody awaits the
            // upgrade any more, its answer downgrades the lease.
            Some(query) if !done && is_upgraded && self.cohorts.held(slot).is_some() => {
                self.ask_whether_current(slot, Some(query), now);
            }
            Some(query) => self.tell_verified(query, Ok(done)),
            None => {}
        }
    }

    /// A request failed.
    pub(super) fn refuse(&mut self, turn: TurnId, refusal: Refusal) {
        self.emit(Event::Failed { turn, refusal });
    }
}

impl Upgrade {
    /// Whether this guard gave the upgrade up, and no second call waits to upgrade again.
    fn may_go_again(&self, turn: TurnId) -> bool {
        self.cancelled && self.turn == turn && self.again.is_none()
    }

    /// The query that waits for the outcome.
    pub(super) fn awaited(&self) -> Option<TurnId> {
        self.again.or_else(|| (!self.cancelled).then_some(self.query))
    }
}

impl Held {
    /// The request by which the lease is upgraded, if one is under way.
    pub(super) fn upgrade_seeking(&self) -> Option<&Seeking> {
        self.upgrade.as_ref()?.seeking.as_ref()
    }

    /// Whether the store was asked for an upgrade.
    pub(super) fn asks_for_upgrade(&self) -> bool {
        self.upgrade_seeking().is_some_and(|seeking| seeking.sent)
    }

    /// Whether the lease was upgraded from the shared grant with this token, or the store may have upgraded that grant already.
    pub(super) fn may_have_grown_out_of(&self, token: Token) -> bool {
        self.formerly.is_some_and(|(shared, _)| shared == token) || (self.grant == token && self.asks_for_upgrade())
    }

    /// Whether this is the request by which the lease is upgraded.
    pub(super) fn upgrades_by(&self, request: RequestId) -> bool {
        self.upgrade_seeking().is_some_and(|seeking| seeking.request == request)
    }
}
