//! What each action does to the world.

use leasehold::machine::{Beacon, Body, Input, Mode};

use crate::{
    action::{Action, Deed},
    budget::spend,
    configuration::Flaw,
    context::{Context, Stage},
    ledger::Scene,
    model::World,
    port::{self, Addressee, Event, Ticket},
    rules::Rule,
    state::{Signal, State, Transaction, Write},
    watch,
};

impl World {
    /// Does what an action says, and notes the rules that it breaks.
    pub fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::Ask(who, want) => {
                let context = state.contexts[who].change();
                let tickets = context.ask(want);
                self.feed(state, who, port::acquire(&tickets));
            }
            Action::Do(who, turn, deed) => self.deed(state, who, turn, deed),
            Action::Apply(_) | Action::Answer(_) | Action::Refuse(_) | Action::Doubt(_) | Action::Lose(_) => {
                self.transact(state, action);
            }
            Action::Commit(at) => self.commit(state, at),
            Action::Signal(at) => {
                let signal = state.signals.remove(at);
                self.hear(state, signal);
            }
            Action::SignalTwice(at) => {
                spend(&mut state.budget.doubles);
                let signal = state.signals[at].clone();
                self.hear(state, signal);
            }
            Action::BeaconStands(who) => {
                let context = state.contexts[who].change();
                context.standing = context.rising.take();
                let Some(beacon) = context.standing else { return };
                self.feed(state, who, Input::BeaconStands(beacon));
            }
            Action::BeaconGone(who, watch) => {
                state.contexts[who].change().watches.retain(|(id, _)| *id != watch);
                self.feed(state, who, Input::BeaconGone { watch });
            }
            Action::Wake(who) => self.feed(state, who, Input::Tick),
            _ => self.disturb(state, action),
        }
        self.look(state);
    }

    fn hear(&self, state: &mut State, signal: Signal) {
        let Signal { to, message } = signal;
        let (key, body) = (message.key.clone(), message.body);
        self.feed(state, to, Input::Message(message));
        match body {
            Body::Stolen { token, .. } => watch::is_told(state, to, &key, token),
            Body::Wanted { .. } => watch::is_freed(state, to, &key),
            _ => {}
        }
    }

    fn deed(&self, state: &mut State, who: usize, turn: u64, deed: Deed) {
        let Some(ticket) = state.contexts[who].ticket(turn) else { return };
        let Some(guard) = state.contexts[who].change().guard_mut(turn) else { return };
        match deed {
            Deed::Cancel => {
                guard.stage = Stage::Ended;
                spend(&mut state.budget.cancels);
                self.feed(state, who, port::cancel(ticket));
            }
            Deed::Release => {
                guard.stage = Stage::Returning;
                self.feed(state, who, port::release(ticket));
            }
            Deed::Verify => {
                spend(&mut state.budget.verifies);
                self.feed(state, who, port::verify(ticket));
            }
            Deed::Upgrade => {
                guard.upgrading = true;
                spend(&mut state.budget.upgrades);
                self.feed(state, who, port::upgrade(ticket));
            }
            Deed::StayShared => {
                guard.upgrading = false;
                spend(&mut state.budget.cancels);
                self.feed(state, who, port::cancel_upgrade(ticket));
            }
            Deed::Downgrade => {
                spend(&mut state.budget.downgrades);
                self.feed(state, who, port::downgrade(ticket));
            }
            Deed::Write => {
                let Some(grant) = guard.grant else { return };
                spend(&mut state.budget.writes);
                let early = self.configuration.flaw == Some(Flaw::FenceApart);
                let let_through = early && state.ledger.lets_through(grant);
                state.writes.push(Write { who, grant, let_through });
                state.writes.sort_unstable();
            }
        }
    }

    fn transact(&self, state: &mut State, action: Action) {
        match action {
            Action::Apply(at) => self.apply(state, at),
            Action::Answer(at) => {
                let sent = state.transactions.remove(at);
                let answers = sent.answers.clone().unwrap_or_default();
                self.feed(state, sent.who, port::answer(sent.id, answers));
            }
            Action::Refuse(at) => {
                spend(&mut state.budget.refusals);
                let sent = state.transactions.remove(at);
                self.feed(state, sent.who, port::refused(sent.id));
            }
            Action::Doubt(at) => {
                spend(&mut state.budget.doubts);
                let (who, id) = (state.transactions[at].who, state.transactions[at].id);
                if state.transactions[at].answers.is_some() {
                    state.transactions.remove(at);
                } else {
                    state.transactions[at].change().heard = false;
                }
                self.feed(state, who, port::doubtful(id));
            }
            Action::Lose(at) => {
                spend(&mut state.budget.losses);
                state.transactions.remove(at);
            }
            _ => {}
        }
    }

    fn apply(&self, state: &mut State, at: usize) {
        let sent = state.transactions.remove(at);
        if let Some(tombstone) = sent.tombstone.clone() {
            return state.ledger.change().entomb(tombstone);
        }
        let (_, wall_ms) = state.clocks(sent.who);
        let now = port::store_now(self.configuration.clock, state.now_ms, wall_ms);
        let (mut ledger, mut broken) = (state.ledger.clone(), state.broken);
        let scene = Scene { state, configuration: &self.configuration, now };
        let answers = ledger.change().apply(&sent.batch, &scene, &mut broken);
        (state.ledger, state.broken) = (ledger, broken);
        if sent.heard {
            let sent = (*sent).clone();
            state.send(Transaction { answers: Some(answers), ..sent });
        }
    }

    fn commit(&self, state: &mut State, at: usize) {
        let write = state.writes.remove(at);
        let early = self.configuration.flaw == Some(Flaw::FenceApart);
        let accepted = if early { write.let_through } else { state.ledger.lets_through(write.grant) };
        if accepted {
            let mut broken = state.broken;
            state.ledger.change().effect(write.grant, &mut broken);
            state.broken = broken;
        }
    }

    /// What the outside world does.
    fn disturb(&self, state: &mut State, action: Action) {
        match action {
            Action::Tick => {
                if state.is_busy() {
                    spend(&mut state.budget.delays);
                }
                spend(&mut state.budget.ticks);
                state.now_ms = state.next_timer().unwrap_or(state.now_ms);
            }
            Action::Leap => {
                spend(&mut state.budget.leaps);
                state.now_ms += self.configuration.leap_ms;
            }
            Action::Crash(who) => self.crash(state, who),
            Action::Suspend(who) => {
                spend(&mut state.budget.suspends);
                state.contexts[who].change().suspended = true;
                self.feed(state, who, Input::Suspend { entombs: self.configuration.tombstones });
            }
            Action::GoOn(who) => {
                let context = state.contexts[who].change();
                context.suspended = false;
                context.names += 1;
                let times = context.names;
                self.feed(state, who, port::go_on(who, times));
            }
            Action::Sleep(who) => {
                spend(&mut state.budget.sleeps);
                state.contexts[who].change().asleep_since = Some(state.now_ms);
            }
            Action::Resume(who) => {
                let context = state.contexts[who].change();
                let since = context.asleep_since.take().unwrap_or(state.now_ms);
                context.slept_ms += state.now_ms - since;
            }
            Action::JumpAhead(who) | Action::JumpBack(who) => {
                spend(&mut state.budget.jumps);
                let leap_ms = i64::try_from(self.configuration.leap_ms).unwrap_or_default();
                let sign = if matches!(action, Action::JumpAhead(_)) { 1 } else { -1 };
                state.contexts[who].change().wall_ahead_ms += sign * leap_ms;
            }
            _ => {}
        }
    }

    /// What it sent may still be applied, but for a tombstone; nobody hears the answers.
    fn crash(&self, state: &mut State, who: usize) {
        spend(&mut state.budget.crashes);
        state.contexts[who].change().vanish(self.configuration.machine(who));
        state.signals.retain(|signal| signal.to != who);
        state.transactions.retain(|sent| sent.who != who || (sent.answers.is_none() && sent.tombstone.is_none()));
        for sent in state.transactions.iter_mut().filter(|sent| sent.who == who) {
            sent.change().heard = false;
        }
    }

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
    }

    fn obey(&self, state: &mut State, who: usize, event: Event) {
        match event {
            Event::Store(id, batch) => {
                state.send(Transaction { who, id, batch, answers: None, heard: true, tombstone: None });
            }
            Event::Entomb(tombstone) => state.entomb(who, tombstone),
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
            Event::Wake(beacon) => rise(state.contexts[who].change(), beacon),
            Event::Rest => rest(state.contexts[who].change()),
            Event::Watch(watch, beacon) => state.contexts[who].change().watches.push((watch, beacon)),
            Event::Unwatch(watch) => state.contexts[who].change().watches.retain(|(id, _)| *id != watch),
            Event::Granted(turn, token) => self.granted(state, who, turn, token),
            Event::Refused(turn) => end(state, who, turn, &[Stage::Waiting], Stage::Ended),
            Event::Lost(turn) => end(state, who, turn, &[Stage::Granted], Stage::Lost),
            Event::Released(turn) => end(state, who, turn, &[Stage::Returning], Stage::Ended),
            Event::Upgraded(turn, token) => self.upgraded(state, who, turn, token),
            Event::StaysShared(turn) => settle_upgrade(state, who, turn),
            Event::Downgraded(turn) => {
                if let Some(guard) = state.contexts[who].change().guard_mut(turn) {
                    guard.mode = Mode::Shared;
                }
            }
            Event::Other => {}
        }
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
        if let Some(guard) = state.contexts[who].change().guard_mut(turn) {
            guard.grant = grant;
        }
    }
}

fn rise(context: &mut Context, beacon: Option<Beacon>) {
    context.listens = true;
    context.rising = beacon;
}

fn rest(context: &mut Context) {
    context.listens = false;
    (context.rising, context.standing) = (None, None);
}

/// An upgrade is answered, once.
fn settle_upgrade(state: &mut State, who: usize, turn: u64) {
    let guard = state.contexts[who].change().guard_mut(turn);
    let asked = guard.is_some_and(|guard| core::mem::take(&mut guard.upgrading));
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
