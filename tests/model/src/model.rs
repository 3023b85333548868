//! The world as a model that can be searched.

use leasehold::machine::Mode;
use stateright::{Model, Property};

use crate::{
    action::{Action, Deed},
    configuration::{Configuration, Flaw},
    context::{Context, Stage},
    fair, hashed,
    rules::Rule,
    state::State,
};

/// A configuration, ready to be searched.
#[derive(Clone, Debug)]
pub struct World {
    /// Its line of the table.
    pub configuration: Configuration,
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State::new(&self.configuration);
        self.queue_up(&mut state);
        if self.configuration.idle {
            self.idle(&mut state);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.any() {
            return;
        }
        for (who, context) in state.contexts.iter().enumerate().filter(|(_, context)| context.runs()) {
            self.own_actions(state, who, context, actions);
        }
        self.network_actions(state, actions);
        self.outside_actions(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.step(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        macro_rules! noted {
            ($($rule:ident)*) => {
                vec![$(Property::always(Rule::$rule.name(), |_, state: &State| !state.broken.has(Rule::$rule))),*]
            };
        }
        let mut properties = noted![
            AbsenceIsFinal TokensGrow GuardTokensDiffer EffectsInOrder StaleIsHarmless TakeoverNeedsEvidence OneBeliever BeliefIsBacked
            LossIsFinal ReleaseIsNoLoss
            OneGrantPerRequest RecordIsSound HeadIsNotGrantable WaiterIsAwake BatchIsItsParts RowsSuffice
            RecordSuffices RobbedAreTold
            DowngradeLetsIn UnusedIsFreed AskedAsWanted KeptIsWanted AllOrNothing ConflictNeedsRival
        ];
        properties.push(Property::always(fair::NAME, |world: &Self, state| world.rests(state)));
        properties
    }
}

impl World {
    /// What a context and its users may do.
    fn own_actions(&self, state: &State, who: usize, context: &Context, actions: &mut Vec<Action>) {
        let budget = &state.budget;
        let asks = context.may_ask.iter().filter(|(_, left)| *left > 0);
        actions.extend(asks.map(|(want, _)| Action::Ask(who, *want)));
        let takes = (0..state.parcels.len()).filter(|_| !context.closed);
        actions.extend(takes.map(|at| Action::TakeOver(who, at)));
        if budget.cancels > 0 {
            actions.extend(context.turns(Stage::Waiting).map(|turn| Action::Do(who, turn, Deed::Cancel)));
        }
        for turn in context.turns(Stage::Granted) {
            actions.push(Action::Do(who, turn, Deed::Release));
            if budget.verifies > 0 {
                actions.push(Action::Do(who, turn, Deed::Verify));
            }
            if budget.extends > 0 {
                actions.push(Action::Do(who, turn, Deed::Extend));
            }
            if budget.detaches > 0 {
                actions.push(Action::Do(who, turn, Deed::Detach));
            }
            if budget.writes > 0 {
                actions.push(Action::Do(who, turn, Deed::Write));
            }
            self.changes_of_mode(state, (who, turn), context, actions);
        }
        if context.is_due(state.now_ms) {
            actions.push(Action::Wake(who));
        }
        if context.rising.is_some() {
            actions.push(Action::BeaconStands(who));
        }
        for (watch, session) in &context.watches {
            if !state.stands(*session) || self.configuration.flaw == Some(Flaw::FalseBeacons) {
                actions.push(Action::BeaconGone(who, *watch));
            }
        }
    }

    fn changes_of_mode(&self, state: &State, (who, turn): (usize, u64), context: &Context, actions: &mut Vec<Action>) {
        let Some(guard) = usize::try_from(turn).ok().and_then(|turn| context.guards.get(turn - 1)) else { return };
        let budget = &state.budget;
        if guard.upgrading {
            if budget.cancels > 0 {
                actions.push(Action::Do(who, turn, Deed::StayShared));
            }
        } else if guard.mode == Mode::Shared {
            if budget.upgrades > 0 {
                actions.push(Action::Do(who, turn, Deed::Upgrade));
            }
        } else if budget.downgrades > 0 {
            actions.push(Action::Do(who, turn, Deed::Downgrade));
        }
    }

    fn network_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let budget = &state.budget;
        for (at, sent) in state.transactions.iter().enumerate() {
            let hears = sent.heard && state.contexts[sent.who].runs();
            let overtakes = state.transactions[..at].iter().any(|old| old.who == sent.who && old.reply.is_none());
            if sent.reply.is_none() && (self.configuration.overtaking || !overtakes) && state.may_apply(at) {
                actions.push(Action::Apply(at));
            }
            if sent.reply.is_some() && hears {
                actions.push(Action::Answer(at));
            }
            if hears && sent.reply.is_none() && budget.refusals > 0 {
                actions.push(Action::Refuse(at));
            }
            if hears && budget.doubts > 0 {
                actions.push(Action::Doubt(at));
            }
            if sent.heard && budget.losses > 0 {
                actions.push(Action::Lose(at));
            }
        }
        for (at, signal) in state.signals.iter().enumerate() {
            if state.contexts[signal.to].runs() {
                actions.push(Action::Signal(at));
                if budget.doubles > 0 {
                    actions.push(Action::SignalTwice(at));
                }
            }
        }
        actions.extend((0..state.writes.len()).map(Action::Commit));
    }

    fn outside_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let budget = &state.budget;
        let may_wait = budget.delays > 0 || !state.is_busy();
        if budget.ticks > 0 && may_wait && state.next_timer().is_some() {
            actions.push(Action::Tick);
        }
        if budget.leaps > 0 {
            actions.push(Action::Leap);
        }
        if budget.wipes > 0 {
            actions.push(Action::Wipe);
        }
        for (who, context) in state.contexts.iter().enumerate().filter(|(_, context)| context.alive) {
            if budget.falls > 0 && context.standing.is_some() && context.runs() {
                actions.push(Action::BeaconFalls(who));
            }
            if context.asleep_since.is_some() {
                actions.push(Action::Resume(who));
                continue;
            }
            if context.guards.is_empty() {
                // Nothing can go wrong in it yet.
                continue;
            }
            if budget.crashes > 0 {
                actions.push(Action::Crash(who));
            }
            if context.suspended {
                actions.push(Action::GoOn(who));
            } else {
                actions.extend((budget.suspends > 0).then_some(Action::Suspend(who)));
                actions.extend((budget.endings > 0).then_some(Action::End(who)));
            }
            if budget.closes > 0 && !context.closed {
                actions.push(Action::Close(who));
            }
            if budget.sleeps > 0 {
                actions.push(Action::Sleep(who));
            }
            if budget.jumps > 0 {
                actions.extend([Action::JumpAhead(who), Action::JumpBack(who)]);
            }
        }
    }

    /// Whether a state, if it is one of the sample, comes to a good end.
    fn rests(&self, state: &State) -> bool {
        let every = self.configuration.rest_every;
        let sampled = every > 0 && !state.broken.any() && hashed::fingerprint(state).is_multiple_of(every);
        !sampled || fair::run(self, state).is_good()
    }

    /// The first context gets the lease, the others a place.
    fn queue_up(&self, state: &mut State) {
        for who in 0..state.contexts.len().min(self.configuration.queue) {
            let Some((want, _)) = self.configuration.users[who].first() else { continue };
            self.step(state, Action::Ask(who, *want));
            if state.contexts[who].rising.is_some() {
                self.step(state, Action::BeaconStands(who));
            }
            self.exchange(state);
        }
    }

    /// Each context had the lease, and gave it back: its session is open, and has nothing.
    fn idle(&self, state: &mut State) {
        for who in 0..state.contexts.len() {
            let Some((want, _)) = self.configuration.users[who].first() else { continue };
            self.step(state, Action::Ask(who, *want));
            if state.contexts[who].rising.is_some() {
                self.step(state, Action::BeaconStands(who));
            }
            self.exchange(state);
            self.step(state, Action::Do(who, 1, Deed::Release));
            self.exchange(state);
        }
    }

    fn exchange(&self, state: &mut State) {
        while state.transactions.first().is_some_and(|sent| sent.reply.is_none()) {
            self.step(state, Action::Apply(0));
        }
        self.step(state, Action::Answer(0));
    }
}
