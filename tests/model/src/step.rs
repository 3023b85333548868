//! What each action does to the world.

use leasehold::machine::{Action as Act, Batch, Body, Input, Records, SessionStep};

use crate::{
    action::{Action, Deed},
    budget::spend,
    configuration::Flaw,
    context::Stage,
    ledger::Scene,
    model::World,
    port::{self, Ticket, Want},
    rules::Rule,
    state::{Signal, State, Transaction, Write},
    statements::Reading,
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
            Action::TakeOver(who, at) => {
                let parcel = state.parcels.remove(at);
                for ticket in state.contexts[who].change().ask(Want::TakeOver) {
                    self.feed(state, who, port::resume(ticket, parcel.clone()));
                }
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
                let Some(session) = context.standing else { return };
                self.feed(state, who, Input::BeaconStands(session));
            }
            Action::BeaconGone(who, watch) => {
                state.sees_gone(who, watch);
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
            Body::Wanted { holder, .. } => watch::is_freed(state, (to, holder), &key),
            _ => {}
        }
    }

    fn deed(&self, state: &mut State, who: usize, turn: u64, deed: Deed) {
        let Some(ticket) = state.contexts[who].ticket(turn) else { return };
        let Some(guard) = state.contexts[who].change().guard_mut(turn) else { return };
        match deed {
            Deed::Cancel => {
                spend(&mut state.budget.cancels);
                self.cancel(state, who, ticket);
            }
            Deed::Release => {
                guard.stage = Stage::Returning;
                self.feed(state, who, port::release(ticket));
            }
            Deed::Verify => {
                spend(&mut state.budget.verifies);
                self.feed(state, who, port::verify(ticket, 0));
            }
            Deed::Extend => {
                spend(&mut state.budget.extends);
                self.feed(state, who, port::verify(ticket, self.configuration.lease_ms * 3 / 2));
            }
            Deed::Upgrade => {
                guard.upgrading = true;
                spend(&mut state.budget.upgrades);
                state.note_rivals();
                self.feed(state, who, port::upgrade(ticket));
            }
            Deed::StayShared => {
                (guard.upgrading, guard.has_rival) = (false, false);
                spend(&mut state.budget.cancels);
                self.feed(state, who, port::cancel_upgrade(ticket));
            }
            Deed::Downgrade => {
                spend(&mut state.budget.downgrades);
                self.feed(state, who, port::downgrade(ticket));
            }
            Deed::Detach => self.detach(state, who, ticket),
            Deed::Write => {
                let Some(grant) = guard.grant else { return };
                let mode = guard.mode;
                let (own_ms, wall_ms) = state.clocks(who);
                let machine = &mut state.contexts[who].change().machine;
                let is_told = self.configuration.flaw != Some(Flaw::FenceUntold);
                let Some(ticket) = port::begin_fence(machine, ticket, is_told, port::now(own_ms, wall_ms)) else {
                    return;
                };
                spend(&mut state.budget.writes);
                let early = self.configuration.flaw == Some(Flaw::FenceApart);
                let let_through = if early { state.ledger.lets_through(&ticket) } else { None };
                let at = state.writes.partition_point(|write| (write.who, write.turn) <= (who, turn));
                state.writes.insert(at, Write { who, turn, grant, ticket, let_through, mode, overtaken: false });
            }
        }
    }

    /// A user that asked for several keys at once gives up all of them, one after the other.
    fn cancel(&self, state: &mut State, who: usize, ticket: Ticket) {
        let keys = ticket.want.keys();
        let first = ticket.turn - keys.iter().position(|key| *key == ticket.key).unwrap_or_default() as u64;
        for turn in (first..).take(keys.len()) {
            let Some(ticket) = state.contexts[who].ticket(turn) else { return };
            state.contexts[who].change().guard_mut(turn).into_iter().for_each(|guard| guard.stage = Stage::Ended);
            self.feed(state, who, port::cancel(ticket));
        }
    }

    fn detach(&self, state: &mut State, who: usize, ticket: Ticket) {
        let context = state.contexts[who].change();
        let Some((parcel, detach)) = port::detach(&mut context.machine, ticket) else { return };
        context.guard_mut(ticket.turn).into_iter().for_each(|guard| guard.stage = Stage::Returning);
        spend(&mut state.budget.detaches);
        state.parcels.push(parcel);
        self.feed(state, who, detach);
    }

    fn transact(&self, state: &mut State, action: Action) {
        match action {
            Action::Apply(at) => self.apply(state, at),
            Action::Answer(at) => {
                let sent = state.transactions.remove(at);
                let Some(reply) = sent.reply.clone() else { return };
                let now_ms = state.now_ms;
                state.ledger.change().evidence.read(sent.who, &reply, now_ms);
                self.feed(state, sent.who, port::answer(sent.id, reply));
            }
            Action::Refuse(at) => {
                spend(&mut state.budget.refusals);
                let sent = state.transactions.remove(at);
                self.owes(state, sent.who, &sent.batch);
                self.feed(state, sent.who, port::refused(sent.id));
            }
            Action::Doubt(at) => {
                spend(&mut state.budget.doubts);
                let (who, id) = (state.transactions[at].who, state.transactions[at].id);
                let batch = state.transactions[at].batch.clone();
                self.owes(state, who, &batch);
                if state.transactions[at].reply.is_some() {
                    state.transactions.remove(at);
                } else {
                    state.transactions[at].change().heard = false;
                }
                self.feed(state, who, port::doubtful(id));
            }
            Action::Lose(at) => {
                spend(&mut state.budget.losses);
                let lost = state.transactions.remove(at);
                state.contexts[lost.who].change().waits_in_vain = true;
            }
            _ => {}
        }
    }

    /// What failed is tried again after half a heartbeat at the latest.
    fn owes(&self, state: &mut State, who: usize, batch: &Batch) {
        let by_ms = state.clocks(who).0 + self.configuration.heartbeat_ms / 2;
        state.contexts[who].change().owe(batch, by_ms);
    }

    fn apply(&self, state: &mut State, at: usize) {
        let sent = state.transactions.remove(at);
        if let Some(session) = sent.abandons {
            return state.ledger.change().abandon(session);
        }
        if self.configuration.statements && sent.reading.is_none() {
            let reading = self.reading(&sent, state);
            return state.send(Transaction { reading: Some(reading), ..(*sent).clone() });
        }
        let (own_ms, wall_ms) = state.clocks(sent.who);
        let now = port::store_now(self.configuration.clock, state.now_ms, wall_ms);
        let (mut ledger, mut broken) = (state.ledger.clone(), state.broken);
        // Who goes by the record alone keeps the order of what it sends, and decides nothing once it is stopped.
        let context = &state.contexts[sent.who];
        let goes_on = context.runs() && !context.suspended && context.machine.session() == sent.batch.session;
        let since = port::now(sent.sure_since.0, sent.sure_since.1);
        let is_sure = sent.batch.is_sure(since, port::now(own_ms, wall_ms));
        // By a beacon that fell, others end a session that its context still believes in: a release is answered as one then.
        let was_ended = self.configuration.beacons
            && context.standing != Some(sent.batch.session)
            && ledger.records.session(sent.batch.session).is_none();
        let sure = goes_on && sent.heard && sent.id == context.last_sent && is_sure && !was_ended;
        let scene = Scene {
            now_ms: state.now_ms,
            who: sent.who,
            configuration: &self.configuration,
            now,
            sure,
            reading: sent.reading.as_ref(),
            locked: &state.locked(),
        };
        let batch = self.falsified(&sent.batch, &ledger.records);
        let reply = ledger.change().apply(&batch, &scene, &mut broken);
        (state.ledger, state.broken) = (ledger, broken);
        // Without a reply it was rolled back, because others wrote what it was about to write.
        if sent.heard || reply.is_none() {
            state.send(Transaction { reply, reading: None, ..(*sent).clone() });
        }
    }

    /// What a transaction reads when it begins.
    fn reading(&self, sent: &Transaction, state: &State) -> Reading {
        let (records, flaw) = (&state.ledger.records, self.configuration.flaw);
        if flaw == Some(Flaw::ReadsBeforeLock) {
            return Reading::before_the_lock(&state.ledger.evidence.opened, records);
        }
        Reading::of(&sent.batch, records)
    }

    /// What a broken store makes of a batch.
    fn falsified(&self, batch: &Batch, records: &Records) -> Batch {
        let mut batch = batch.clone();
        match self.configuration.flaw {
            Some(Flaw::BeatInserts) if records.session(batch.session).is_none() => {
                if let SessionStep::Beat(beat) = batch.step {
                    batch.step = SessionStep::Open { beat, instance: String::new() };
                }
            }
            Some(Flaw::EndComparesNothing) => {
                for operation in &mut batch.operations {
                    if let Act::End { target, beat } = &mut operation.action {
                        *beat = records.session(*target).map_or(*beat, |row| row.beat);
                    }
                }
            }
            _ => {}
        }
        batch
    }

    fn commit(&self, state: &mut State, at: usize) {
        let write = state.writes.remove(at);
        let early = self.configuration.flaw == Some(Flaw::FenceApart);
        let accepted = if early { write.let_through } else { state.ledger.lets_through(&write.ticket) };
        if let Some(grant) = accepted {
            let mut broken = state.broken;
            state.ledger.change().effect(grant, &mut broken);
            broken.unless(!write.overtaken, Rule::EffectsInOrder);
            state.broken = broken;
        }
        self.report(state, &write);
    }

    /// A writer that is still there hears of the outcome, and reports it.
    fn report(&self, state: &mut State, write: &Write) {
        let Some(ticket) = state.contexts[write.who].ticket(write.turn) else { return };
        let context = state.contexts[write.who].change();
        let waits = context.guard_mut(write.turn).is_some_and(|guard| guard.stage == Stage::Granted);
        if waits {
            port::end_fence(&mut context.machine, ticket, &write.ticket);
        }
    }
}
