//! What is looked at after every action: who believes, who waits, who was robbed.

use leasehold::machine::{Key, SessionId, Token};

use crate::{
    context::{Guard, Stage},
    model::World,
    port,
    rules::{Broken, Rule},
    state::State,
};

impl World {
    /// What must hold at every instant.
    pub(crate) fn look(&self, state: &mut State) {
        state.note_rivals();
        let mut broken = state.broken;
        let mut believers: Vec<&Guard> = Vec::new();
        for (who, context) in state.contexts.iter().enumerate().filter(|(_, context)| context.runs()) {
            let believes = |stage| context.turns(stage).any(|turn| state.believes(who, turn));
            broken.unless(!believes(Stage::Lost) && !believes(Stage::Ended), Rule::LossIsFinal);
            let granted = (1..).zip(&context.guards).filter(|(_, guard)| guard.stage == Stage::Granted);
            let granted = granted.filter(|(turn, _)| state.believes(who, *turn)).map(|(_, guard)| guard);
            let granted: Vec<_> = granted.filter(|guard| !self.is_robbed(state, guard, &mut broken)).collect();
            broken.unless(granted.iter().all(|guard| is_backed(state, who, guard)), Rule::BeliefIsBacked);
            believers.extend(granted);
            let sent = state.transactions.iter().any(|sent| sent.who == who && sent.heard);
            let awake = context.wake_ms.is_some() || sent || context.rising.is_some() || !context.watches.is_empty();
            broken.unless(self.keeps_what_is_wanted(state, who, context), Rule::KeptIsWanted);
            broken.unless(awake || context.suspended || !context.owes(), Rule::WaiterIsAwake);
        }
        let together =
            |one: &Guard, other: &Guard| one.key != other.key || leasehold_invariants::fit(one.mode, other.mode);
        let all_fit = (believers.iter().enumerate())
            .all(|(at, one)| believers[at + 1..].iter().all(|other| together(one, other)));
        broken.unless(!self.configuration.belief || all_fit, Rule::OneBeliever);
        state.broken = broken;
    }

    /// Whether a guard's grant was stolen: its context believes until it is told, but not longer than its lease.
    fn is_robbed(&self, state: &State, guard: &Guard, broken: &mut Broken) -> bool {
        let Some(since_ms) = guard.grant.and_then(|grant| state.ledger.robbed_at(grant)) else { return false };
        broken.unless(state.now_ms < since_ms + self.configuration.lease_ms, Rule::RobbedAreTold);
        true
    }
}

/// Whether a guard's session holds the key, or has ended without knowing it yet.
fn is_backed(state: &State, who: usize, guard: &Guard) -> bool {
    let session = state.contexts[who].machine.session();
    let records = &state.ledger.records;
    let record = records.peek(&port::key(guard.key));
    state.ledger.has_ended(session)
        || record.is_some_and(|record| record.grants.iter().any(|grant| grant.holder == session))
}

/// Who hears from the thief that it was robbed believes no more.
pub(crate) fn is_told(state: &mut State, who: usize, key: &Key, token: Token) {
    let told = |guard: &Guard| {
        let grant = guard.grant.and_then(|grant| state.ledger.history.get(grant));
        let same = grant.is_some_and(|grant| grant.token == Some(token) && port::key(grant.key) == *key);
        guard.stage == Stage::Granted && same
    };
    let still = state.contexts[who].guards.iter().any(told);
    state.broken.unless(!still, Rule::RobbedAreTold);
}

/// Who hears that somebody wants a key, and does not use it, does not keep it. What was said to an earlier session concerns
/// what has ended with that.
pub(crate) fn is_freed(state: &mut State, (who, holder): (usize, SessionId), key: &Key) {
    let context = &state.contexts[who];
    if context.machine.session() != holder {
        return;
    }
    let at_it = |at: usize| port::key(at) == *key;
    let ended = |guard: &Guard| matches!(guard.stage, Stage::Ended | Stage::Lost);
    let used = context.guards.iter().any(|guard| at_it(guard.key) && !ended(guard));
    let owes = context.owed.iter().any(|owed| at_it(owed.key));
    let busy = owes || state.is_under_way(who);
    let kept = |record: port::RecordView| {
        let own = context.machine.session();
        !state.ledger.has_ended(own) && record.grants.iter().any(|grant| at_it(grant.key) && grant.session == own)
    };
    let keeps = port::all_records(&state.ledger.records).any(kept);
    state.broken.unless(used || busy || !keeps, Rule::UnusedIsFreed);
}
