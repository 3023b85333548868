//! What a context says, done.

use leasehold::machine::{Input, Mode, SessionId};

use crate::{
    context::{Context, Stage},
    model::World,
    port::{self, Addressee, Event, Ticket},
    rules::Rule,
    state::{State, Transaction, Write},
    wanted,
};

impl World {
    /// Brings an input to a context, and does what it says.
    pub(crate) fn feed(&self, state: &mut State, who: usize, input: Input) {
        let (own_ms, wall_ms) = state.clocks(who);
        let context = state.contexts[who].change();
        context.machine.handle(input, port::now(own_ms, wall_ms));
        let (events, wake_ms) = port::drain(&mut context.machine);
        context.wake_ms = wake_ms;
        for event in events {
            self.obey(state, who, event);
        }
        state.contexts[who].change().forgive();
    }

    fn obey(&self, state: &mut State, who: usize, event: Event) {
        match event {
            Event::Store(id, batch) => {
                let context = state.contexts[who].change();
                state.broken.unless(wanted::is_wanted(context, &batch), Rule::AskedAsWanted);
                context.waits_in_vain = false;
                context.pay(&batch);
                context.last_sent = id;
                let sure_since = if batch.sure_ms > 0 { state.clocks(who) } else { (0, 0) };
                state.send(Transaction {
                    who,
                    id,
                    batch,
                    sure_since,
                    reply: None,
                    heard: true,
                    reading: None,
                    abandons: None,
                });
            }
            Event::Abandon(session) => state.abandon(who, session),
            Event::Send(message) => {
                let to_one = port::addressee(&message);
                let hears = |to: &usize| match to_one {
                    Addressee::One(one) => *to == one,
                    Addressee::Others => *to != who && self.configuration.hints,
                };
                for to in (0..state.contexts.len()).filter(hears) {
                    if state.contexts[to].alive && state.contexts[to].listens {
                        state.signal(to, message.clone());
                    }
                }
            }
            Event::Wake(session) => rise(state.contexts[who].change(), session),
            Event::Rest => rest(state.contexts[who].change()),
            Event::Watch(watch, session) => state.contexts[who].change().watches.push((watch, session)),
            Event::Unwatch(watch) => state.contexts[who].change().watches.retain(|(id, _)| *id != watch),
            Event::Granted(turn, token) => self.granted(state, who, turn, token),
            Event::Refused(turn) => end(state, who, turn, &[Stage::Waiting], Stage::Ended),
            Event::Lost(turn) => end(state, who, turn, &[Stage::Granted], Stage::Lost),
            Event::Released(turn, lost) => {
                state.broken.unless(!lost || self.was_lost(state, who, turn), Rule::ReleaseIsNoLoss);
                end(state, who, turn, &[Stage::Returning], Stage::Ended);
            }
            Event::Upgraded(turn, token) => self.upgraded(state, who, turn, token),
            Event::StaysShared(turn) => settle_upgrade(state, who, turn),
            Event::Conflicts(turn) => {
                let had_rival = state.contexts[who].change().guard_mut(turn).is_some_and(|guard| guard.has_rival);
                state.broken.unless(had_rival, Rule::ConflictNeedsRival);
                settle_upgrade(state, who, turn);
            }
            Event::Downgraded(turn) => {
                if let Some(guard) = state.contexts[who].change().guard_mut(turn) {
                    guard.mode = Mode::Shared;
                }
            }
            Event::Other => {}
        }
    }

    /// Whether a release may report that the guard was lost: it was stolen, its session has ended, or its context cannot be sure.
    fn was_lost(&self, state: &State, who: usize, turn: u64) -> bool {
        let guard = usize::try_from(turn).ok().and_then(|turn| state.contexts[who].guards.get(turn - 1));
        let Some(grant) = guard.and_then(|guard| guard.grant) else { return true };
        let has_ended = state.ledger.history.get(grant).is_none_or(|grant| state.ledger.has_ended(grant.session));
        has_ended || state.ledger.robbed_at(grant).is_some() || !self.configuration.knows_what_it_holds()
    }

    fn granted(&self, state: &mut State, who: usize, turn: u64, token: u64) {
        end(state, who, turn, &[Stage::Waiting], Stage::Granted);
        self.stands_on(state, who, turn, token);
    }

    fn upgraded(&self, state: &mut State, who: usize, turn: u64, token: u64) {
        settle_upgrade(state, who, turn);
        if let Some(guard) = state.contexts[who].change().guard_mut(turn) {
            guard.mode = Mode::Exclusive;
        }
        self.stands_on(state, who, turn, token);
    }

    /// A guard gets a token: it was granted, and to nobody before.
    fn stands_on(&self, state: &mut State, who: usize, turn: u64, token: u64) {
        let Some(Ticket { key, .. }) = state.contexts[who].ticket(turn) else { return };
        let grant = state.ledger.grant_of(who, key, token);
        state.broken.unless(grant.is_some(), Rule::OneGrantPerRequest);
        state.broken.unless(!state.ledger.handed_out.contains(&(key, token)), Rule::GuardTokensDiffer);
        state.ledger.change().handed_out.push((key, token));
        let guard = state.contexts[who].change().guard_mut(turn);
        let alone = guard.is_some_and(|guard| {
            guard.grant = grant;
            guard.mode == Mode::Exclusive
        });
        // The fence of a shared grant may let a write pass under the grant that it was upgraded to.
        let ledger = &state.ledger;
        let is_of = |write: &Write| {
            grant.is_some_and(|grant| write.grant == grant || ledger.grown.contains(&(write.grant, grant)))
        };
        let overtaken = |write: &&mut Write| {
            (alone || write.mode == Mode::Exclusive) && write.who == who && is_of(write) && write.turn != turn
        };
        state.writes.iter_mut().filter(overtaken).for_each(|write| write.overtaken = true);
    }
}

fn rise(context: &mut Context, session: Option<SessionId>) {
    context.listens = true;
    context.rising = session;
}

fn rest(context: &mut Context) {
    context.listens = false;
    (context.rising, context.standing) = (None, None);
    context.watches.clear();
}

/// An upgrade is answered, once.
fn settle_upgrade(state: &mut State, who: usize, turn: u64) {
    let guard = state.contexts[who].change().guard_mut(turn);
    let asked = guard.is_some_and(|guard| {
        guard.has_rival = false;
        core::mem::take(&mut guard.upgrading)
    });
    state.broken.unless(asked, Rule::OneGrantPerRequest);
}

/// A turn goes from one of these stages to another, or a rule is broken.
fn end(state: &mut State, who: usize, turn: u64, from: &[Stage], to: Stage) {
    let mut broken = state.broken;
    let guard = state.contexts[who].change().guard_mut(turn);
    let fits = guard.as_ref().is_some_and(|guard| from.contains(&guard.stage));
    broken.unless(fits, if to == Stage::Lost { Rule::LossIsFinal } else { Rule::OneGrantPerRequest });
    if let Some(guard) = guard.filter(|_| fits) {
        guard.stage = to;
    }
    state.broken = broken;
}
