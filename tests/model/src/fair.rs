//! A world run to rest: from here on nothing goes wrong, everybody who is due is woken, and guards are given back.
//!
//! Signals are lost all the same, since nothing may rest on one.

use crate::{
    action::{Action, Deed},
    context::{Guard, Stage},
    evidence::RowView,
    model::World,
    port,
    rules::Rule,
    state::State,
};

/// The property's name.
pub const NAME: &str = "I8, I11, P6: run to rest, waiters are granted and nothing is left";

/// More steps than any world needs.
const STEP_LIMIT: usize = 2_000;

/// How a world came to rest.
#[derive(Clone, Debug)]
pub struct End {
    /// What was done.
    pub actions: Vec<Action>,
    /// The world at rest.
    pub state: State,
    /// Whether every live waiter was answered in time.
    pub granted: bool,
    /// Whether nothing of a live context is left in the record.
    pub tidy: bool,
}

impl End {
    /// Whether it is as it should be.
    pub fn is_good(&self) -> bool {
        self.granted && self.tidy && !self.state.broken.any()
    }

    /// What is wrong.
    pub fn broken(&self) -> Vec<Rule> {
        let mut rules: Vec<_> = self.state.broken.rules().collect();
        rules.extend((!self.granted).then_some(Rule::WaitersAreGranted));
        rules.extend((!self.tidy).then_some(Rule::NothingIsLeft));
        rules
    }
}

/// Runs a world to rest; then somebody asks once more, since nothing that was left behind may bar the way for long.
pub fn run(world: &World, from: &State) -> End {
    let mut end = End { actions: Vec::new(), state: from.clone(), granted: true, tidy: true };
    end.state.signals.clear();
    end.state.writes.clear();
    end.state.parcels.clear();
    end.settle(world);
    // What was left for another guard, and nobody took, is left until somebody wants it.
    let is_left = world.configuration.budget.detaches > 0;
    end.tidy = !end.granted || is_left || !world.configuration.is_strict() || is_tidy(&end.state);
    let prober = end.state.contexts.iter().rposition(|context| context.alive && !context.closed);
    if let Some(who) = prober.filter(|_| end.is_good()) {
        for want in world.configuration.probes() {
            end.act(world, Action::Ask(who, want));
        }
        end.settle(world);
        end.tidy &= !world.configuration.is_strict() || is_empty(&end.state);
    }
    end
}

impl End {
    fn act(&mut self, world: &World, action: Action) {
        world.step(&mut self.state, action);
        self.state.signals.clear();
        self.actions.push(action);
    }

    fn settle(&mut self, world: &World) {
        let deadline = self.state.now_ms + patience_ms(world, &self.state);
        let limit = self.actions.len() + STEP_LIMIT;
        while self.granted && !self.state.broken.any() {
            let Some(action) = next(&self.state) else { break };
            self.act(world, action);
            let late = self.state.now_ms > deadline;
            self.granted &= self.actions.len() < limit && !(late && anybody_waits(&self.state));
        }
        self.granted &= !anybody_waits(&self.state);
    }
}

/// How long a waiter may have to wait: each entry before it, and each transaction that nobody hears of any more, may
/// stand in its way for as long as it takes to see that it is silent.
fn patience_ms(world: &World, state: &State) -> u64 {
    let configuration = &world.configuration;
    let poll_ms = configuration.heartbeat_ms + 2 * configuration.timeout_ms;
    let obstacles = 2 + state.contexts.len() + state.transactions.len();
    let rows = state.ledger.evidence.rows.iter().map(|row| row.lease_ms);
    let longest_ms = rows.chain([configuration.lease_ms]).max().unwrap_or_default();
    obstacles as u64 * (configuration.silence_ms(longest_ms) + poll_ms)
}

fn anybody_waits(state: &State) -> bool {
    state.contexts.iter().any(|context| context.alive && context.owes())
}

/// Who holds the second key as long as anybody waits for the first keeps its session alive, and all that hangs on it: what
/// belongs to nobody must not be among that.
fn anybody_waits_for_first(state: &State) -> bool {
    let waits = |guard: &Guard| guard.key == 0 && guard.stage == Stage::Waiting;
    state.contexts.iter().any(|context| context.alive && context.guards.iter().any(waits))
}

/// Nobody who lives holds or waits any more, so nothing of theirs may stand in the record, but what the end of its session
/// voids; and no session of theirs is there any more.
fn is_tidy(state: &State) -> bool {
    let dead = |entry: &port::EntryView| !state.contexts[entry.who].alive || state.ledger.has_ended(entry.session);
    let closed = |row: &RowView| !state.contexts[port::number_of(row.session)].alive;
    port::all_records(&state.ledger.records).all(|record| record.grants.iter().chain(&record.queue).all(dead))
        && state.ledger.evidence.rows.iter().all(closed)
}

/// Somebody had every key after the dead, so nothing of theirs stands in the records either.
fn is_empty(state: &State) -> bool {
    is_tidy(state)
        && port::all_records(&state.ledger.records).all(|record| record.grants.is_empty() && record.queue.is_empty())
}

/// The first thing that is to be done, in a fixed order; time passes when there is nothing else.
fn next(state: &State) -> Option<Action> {
    let sleeper = state.contexts.iter().position(|context| context.alive && context.asleep_since.is_some());
    if let Some(who) = sleeper {
        return Some(Action::Resume(who));
    }
    if let Some(who) = state.contexts.iter().position(|context| context.alive && context.suspended) {
        return Some(Action::GoOn(who));
    }
    if let Some(at) = state.first_to_go_on() {
        return Some(if state.transactions[at].reply.is_some() { Action::Answer(at) } else { Action::Apply(at) });
    }
    for (who, context) in state.contexts.iter().enumerate().filter(|(_, context)| context.alive) {
        if context.rising.is_some() {
            return Some(Action::BeaconStands(who));
        }
        // Who waits to be the only one waits for the others, and for them alone.
        let content = |turn: &u64| {
            let guard = context.guards.get(*turn as usize - 1);
            guard.is_some_and(|guard| !guard.upgrading && (guard.key != 1 || !anybody_waits_for_first(state)))
        };
        if let Some(turn) = context.turns(Stage::Granted).find(content) {
            return Some(Action::Do(who, turn, Deed::Release));
        }
        if context.is_due(state.now_ms) {
            return Some(Action::Wake(who));
        }
        let gone = |(_, session): &&(u64, leasehold::machine::SessionId)| !state.stands(*session);
        if let Some((watch, _)) = context.watches.iter().find(gone) {
            return Some(Action::BeaconGone(who, *watch));
        }
    }
    state.next_timer().map(|_| Action::Tick)
}
