//! Holding a lease: pass it from turn to turn, keep it for a while, release it, lose it.

use alloc::{boxed::Box, vec::Vec};
use core::slice;

use super::{
    Machine, Monotonic,
    cohort::{Cohort, Held, Stage, Upgrade},
    cohorts::STAYS,
    detector::Ahead,
    id::{RequestId, SessionId},
    input::{Parcel, Slot, TurnId},
    key::Key,
    message::Body,
    output::{Event, LostReason, Refusal},
    passing::{AfterUse, HandOut},
    pending::{ReleaseFacts, Sent},
    record::{Action, Granted},
    store_queue::is_verification,
    token::Token,
};

impl Machine {
    /// A lease was granted, according to the answer to `sent`, or to a message. It counts as valid for as long as the session does.
    // Protocol: docs/protocol.md#s8.
    pub(super) fn hold(&mut self, slot: &Slot, request: RequestId, granted: &Granted, sent: Sent, now: Monotonic) {
        if self.session.was_robbed(&slot.key, granted.block.first) {
            return self.stolen_unheard(slot, now);
        }
        let Some(cohort) = self.cohorts.change(slot) else { return debug_assert!(false, "{STAYS}") };
        let cursor = cohort.seeking().and_then(|seeking| seeking.cursor);
        let mut held = Held::new(request, slot.mode, granted, now);
        held.contended = cohort.note_contention(sent, granted.contended);
        held.queued_for = cohort.waits();
        held.stolen = cohort.may_have_stolen();
        held.next_token = cursor.unwrap_or(held.next_token).max(held.next_token);
        cohort.stage = Stage::Held(held);
        cohort.ahead = Ahead::default();
        // If this is a lease that this context had taken out of a guard, it has come back.
        self.moved_away(&slot.key, granted.block.first);
        self.last_writers.granted(&slot.key, slot.mode, granted, cursor);
        self.hand_out(slot, now);
        if self.session.belief_left(now) == 0 {
            // No guard is created before the store has confirmed the session.
            self.suspect(now);
            self.session.want_beat();
        }
    }

    /// The lease was stolen before this context heard that it was granted. Those who wait ask again, except a request
    /// for this very lease, or for several keys at once, which fails. If the grant was a theft, its thief does not steal again, because it
    /// would rob the later thief.
    fn stolen_unheard(&mut self, slot: &Slot, now: Monotonic) {
        if self.cohorts.get(slot).is_some_and(Cohort::may_have_stolen) {
            self.refuse_thief(slot, LostReason::Stolen);
        }
        self.seek_anew(slot, LostReason::Stolen, now);
    }

    /// Tells the thief whose lease was lost before it had a guard. Other thieves have not stolen yet.
    fn refuse_thief(&mut self, slot: &Slot, reason: LostReason) {
        if let Some(thief) = self.cohorts.change(slot).and_then(|cohort| cohort.turns.pop_thief()) {
            self.refuse(thief, Refusal::Lost(reason));
        }
    }

    /// The session of a theft that may have been applied has ended. Its thieves do not steal again, because they would rob whoever was
    /// granted the key since.
    pub(super) fn refuse_unsure_thieves(&mut self, slot: &Slot, refusal: &Refusal) {
        let Some(cohort) = self.cohorts.change(slot) else { return };
        let thieves = cohort.take_unsure_thieves();
        thieves.iter().for_each(|thief| self.refuse(*thief, refusal.clone()));
    }

    /// Gives the lease to the next turns for as long as they may have it and it is not in doubt.
    pub(super) fn hand_out(&mut self, slot: &Slot, now: Monotonic) {
        let believed = self.session.belief_left(now) > 0;
        loop {
            let Some(cohort) = self.cohorts.change(slot) else { return };
            match cohort.hand_out(slot, believed, &self.store_queue, &self.config, now) {
                HandOut::Nothing => return,
                HandOut::Robbed => return self.lose(slot, LostReason::Stolen, now),
                HandOut::KeepBack => return self.keep_back(slot),
                HandOut::Refill => return self.refill(slot, now),
                HandOut::Granted { turn, token, is_passed_on, is_last } => {
                    if is_passed_on {
                        self.cohorts.note_passed_on(slot);
                    }
                    self.emit(Event::Granted { turn, token });
                    if is_last {
                        return;
                    }
                }
            }
        }
    }

    /// The next turns may not have the lease now. The tries among them fail, because the key is taken. Tries wait only if nothing but
    /// another queued request is in the way, and the store is being asked whether that request still queues.
    fn keep_back(&mut self, slot: &Slot) {
        if !(self.cohorts.waits_for_queue_only(slot) && self.store_queue.carries(slot, is_verification)) {
            self.refuse_tries(slot);
        }
    }

    /// A turn came that may share the lease unless another request queues for the key. That request may have been given up meanwhile,
    /// without a message, so this asks the store, unless a query is under way already.
    pub(super) fn ask_who_queues(&mut self, slot: &Slot, now: Monotonic) {
        if !self.store_queue.carries(slot, is_verification) {
            self.ask_again_who_queues(slot, now);
        }
    }

    /// Asks the store, even if a query is under way already, after a queued request of this context has ended: the answer to the earlier
    /// query may still count that request.
    // Protocol: docs/protocol.md#rule-5, #p6.
    pub(super) fn ask_again_who_queues(&mut self, slot: &Slot, now: Monotonic) {
        let goes_on = self.cohorts.held(slot).is_some_and(|held| held.may_go_on(&self.config, now));
        if !goes_on && self.cohorts.waits_for_queue_only(slot) {
            self.end_silent(slot, now);
            self.look_at_each(slice::from_ref(slot), now);
        }
    }

    // Protocol: docs/protocol.md#s13.
    pub(super) fn release(&mut self, turn: TurnId, slot: &Slot, now: Monotonic) {
        let upgrading = self.cancel_upgrade_of(turn, slot, now);
        // It is unknown whether the store has already upgraded the lease.
        let may_keep = !upgrading && self.session.belief_left(now) > 0;
        let cohort = self.cohorts.change(slot);
        let Some(after_use) = cohort.and_then(|cohort| cohort.release(turn, slot, may_keep, &self.config, now)) else {
            return self.tell_released(turn, Ok(Some(LostReason::Expired)));
        };
        if !matches!(after_use, AfterUse::Shared) {
            // The extension of one user does not apply to the next one.
            self.session.end_extension(slot);
        }
        match after_use {
            AfterUse::Shared | AfterUse::PassedOn => {
                self.tell_released(turn, Ok(None));
                self.user_left(slot, now);
            }
            AfterUse::Lingers => self.tell_released(turn, Ok(None)),
            AfterUse::GoesBack => {
                let Some(held) = self.cohorts.take_held(slot) else {
                    return debug_assert!(false, "it has just been released");
                };
                let facts = self.give_back(slot, &held, Some(turn), now);
                // If the upgrade was granted, its withdrawal has released the lease by then.
                (facts.maybe_released, facts.maybe_upgraded) = (upgrading, upgrading);
                // The next request goes in the same transaction, so that waiters of other contexts are granted first.
                self.seek(slot, now);
            }
        }
    }

    /// A user has gone, and the lease stays. A single user that is left may be waiting to upgrade. If all users that are left share, the
    /// lease need no longer be exclusive, and the next turns may share it, too.
    fn user_left(&mut self, slot: &Slot, now: Monotonic) {
        self.begin_upgrade(slot, now);
        self.weaken(slot, None, now);
        self.hand_out(slot, now);
    }

    /// Sends the release.
    pub(super) fn give_back(
        &mut self,
        slot: &Slot,
        held: &Held,
        turn: Option<TurnId>,
        now: Monotonic,
    ) -> &mut ReleaseFacts {
        self.drop_questions(slot, held);
        self.withdraw_former(slot, held, now);
        let release = Action::Release { token: held.grant, request: held.request };
        let believed_until = now.plus(self.session.belief_left(now));
        let operation = self.store_queue.push(slot, release, turn, now);
        operation.release.insert(ReleaseFacts { believed_until, contended: held.contended, ..ReleaseFacts::default() })
    }

    /// After a failover, the new server may list the shared lease that was upgraded.
    // Protocol: docs/protocol.md#e.
    fn withdraw_former(&mut self, slot: &Slot, held: &Held, now: Monotonic) {
        if let Some((_, request)) = held.formerly {
            self.note_release(&slot.key, request);
            self.withdraw_request(slot, request, now);
        }
    }

    /// Drops the unsent questions about a lease that ends.
    // Protocol: docs/protocol.md#s13.
    fn drop_questions(&mut self, slot: &Slot, held: &Held) {
        self.session.end_extension(slot);
        // Usually there are none. With a search each time, releasing thousands of leases would take quadratic time.
        if !held.is_asked_about {
            return;
        }
        for operation in self.store_queue.recall(slot, is_verification) {
            if let Some(query) = operation.turn {
                self.tell_verified(query, Ok(false));
            }
        }
    }

    /// Releases an unused lease. A context that tried to acquire it is notified when the store has the release.
    pub(super) fn end_linger(&mut self, slot: &Slot, asker: Option<SessionId>, now: Monotonic) {
        let lingering = self.cohorts.change(slot).filter(|cohort| cohort.held().is_some_and(Held::lingers));
        if let Some(held) = lingering.and_then(Cohort::take_held) {
            self.give_back(slot, &held, None, now).tells = asker;
        }
    }

    pub(super) fn end_all_lingers(&mut self, now: Monotonic) {
        for slot in &self.cohorts.slots() {
            self.end_linger(slot, None, now);
        }
    }

    pub(super) fn end_linger_if_due(&mut self, slot: &Slot, now: Monotonic) {
        let lingers_until = self.cohorts.held(slot).and_then(|held| held.lingers_until);
        if lingers_until.is_some_and(|until| until <= now) {
            self.end_linger(slot, None, now);
        }
    }

    /// Users whose time is over lose the lease. With the last one it is released.
    pub(super) fn end_overdue_users(&mut self, slot: &Slot, now: Monotonic) {
        let Some(held) = self.cohorts.change_held(slot) else { return };
        let mut over = Vec::new();
        held.users.retain(|user| {
            let is_over = [user.ends_at, user.expires_at].into_iter().flatten().any(|end| end <= now);
            if is_over {
                over.push(user.turn);
            }
            !is_over
        });
        if over.is_empty() {
            return;
        }
        let is_unused = held.users.is_empty();
        for turn in over {
            self.cancel_upgrade_of(turn, slot, now);
            self.emit(Event::Lost { turn, reason: LostReason::Expired });
        }
        if !is_unused {
            return self.user_left(slot, now);
        }
        let Some(held) = self.cohorts.take_held(slot) else { return debug_assert!(false, "its users have just gone") };
        self.give_back(slot, &held, None, now);
        self.seek(slot, now);
    }

    /// The lease is lost. Its request is withdrawn, too, and the turns that still wait ask again.
    // Protocol: docs/protocol.md#s11.
    pub(super) fn lose(&mut self, slot: &Slot, reason: LostReason, now: Monotonic) {
        if let Some(held) = self.drop_hold(slot, reason) {
            if held.is_untold_theft() {
                self.refuse_thief(slot, reason);
            }
            self.withdraw_former(slot, &held, now);
            self.withdraw_request(slot, held.request, now);
            self.withdraw_upgrade(slot, held.upgrade, now);
            self.seek_anew(slot, reason, now);
        }
    }

    /// The turns that still wait ask again, except those that want one particular lease, or several at once: they fail.
    pub(super) fn seek_anew(&mut self, slot: &Slot, reason: LostReason, now: Monotonic) {
        if slot.own.is_some() {
            self.fail_turns(slot, &Refusal::Lost(reason));
        } else {
            self.seek(slot, now);
        }
    }

    /// Drops the lease, and reports the loss to all its users.
    pub(super) fn drop_hold(&mut self, slot: &Slot, reason: LostReason) -> Option<Held> {
        let held = self.cohorts.take_held(slot)?;
        self.drop_questions(slot, &held);
        for user in &held.users {
            self.emit(Event::Lost { turn: user.turn, reason });
        }
        if let Some(query) = held.upgrade.as_ref().and_then(|upgrade| upgrade.awaited()) {
            self.refuse(query, Refusal::Lost(reason));
        }
        Some(held)
    }

    pub(super) fn withdraw_upgrade(&mut self, slot: &Slot, upgrade: Option<Box<Upgrade>>, now: Monotonic) {
        if let Some(seeking) = upgrade.and_then(|upgrade| upgrade.seeking) {
            self.withdraw(slot, &seeking, now);
        }
    }

    /// The lease of a guard, for another guard to take over once it is [detached](super::input::Input::Detach). `None` if others use the
    /// lease, too, or if it is lost.
    pub fn parcel(&mut self, turn: TurnId, slot: &Slot) -> Option<Parcel> {
        let held = self.cohorts.held(slot).filter(|held| held.is_used_by_only(turn))?;
        let Held { grant, next_token: next, request, mode, .. } = *held;
        let (origin, from) = (self.session.id(), self.session.draw_id());
        Some(Parcel { from, origin, grant, next, request, mode })
    }

    /// The guard ends. Unless others use the lease, too, it is moved to a separate session, from which another guard may take it over in
    /// time.
    pub(super) fn detach(&mut self, turn: TurnId, slot: &Slot, to: SessionId, now: Monotonic) {
        if !self.cohorts.held(slot).is_some_and(|held| held.is_used_by_only(turn)) {
            return self.release(turn, slot, now);
        }
        let Some(held) = self.cohorts.take_held(slot) else { return debug_assert!(false, "its user detaches it") };
        let (token, request) = (held.grant, held.request);
        self.drop_questions(slot, &held);
        if held.was_exclusive(slot) {
            self.last_writers.detached(&slot.key, held.next_token);
        }
        self.detached.push(Detached { key: slot.key.clone(), token, request });
        if self.detached.len() > DETACHED_LIMIT {
            self.detached.remove(0);
        }
        let lease_ms = self.config.lease_ms;
        self.store_queue.push(slot, Action::Detach { token, request, to, lease_ms }, None, now);
        self.tell_released(turn, Ok(None));
        self.seek(slot, now);
    }

    /// Whether the lease of this request is being moved to its separate session.
    pub(super) fn detaches(&self, key: &Key, request: RequestId) -> bool {
        self.detached.iter().any(|detached| (&detached.key, detached.request) == (key, request))
    }

    /// The lease was moved to its separate session. Any other grant with this token is a stray.
    pub(super) fn moved_away(&mut self, key: &Key, token: Token) {
        if let Some(at) = self.detached_at(key, token) {
            self.detached.remove(at);
        }
    }

    /// Another context wants the key. This releases unused leases, and limits how long the others are passed on here. It answers a try,
    /// even if this context only waits.
    pub(super) fn wanted(&mut self, slot: &Slot, asker: Option<SessionId>, now: Monotonic) {
        let last_transaction = self.store_queue.last_transaction();
        let Some(cohort) = self.cohorts.change_untracked(slot) else { return debug_assert!(false, "{STAYS}") };
        if asker.is_none() {
            cohort.wanted = Some(last_transaction);
        }
        let waits = cohort.waits();
        let Some(held) = cohort.held_mut() else {
            if waits && let Some(asker) = asker {
                self.send(&slot.key, Body::InUse { asker });
            }
            return;
        };
        held.contended |= asker.is_none();
        if held.lingers() {
            self.end_linger(slot, asker, now);
        } else if let Some(asker) = asker {
            self.send(&slot.key, Body::InUse { asker });
        }
    }
}

/// How many detached leases, which another guard may resume, are remembered so that they do not count as strays.
const DETACHED_LIMIT: usize = 64;

/// A lease that was taken out of its guard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Detached {
    pub(super) key: Key,
    pub(super) token: Token,
    pub(super) request: RequestId,
}
