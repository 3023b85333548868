//! What the outside world does to contexts, clocks and the store.

use leasehold::machine::Input;

use crate::{action::Action, budget::spend, model::World, state::State};

impl World {
    /// What the outside world does.
    pub(crate) fn disturb(&self, state: &mut State, action: Action) {
        match action {
            Action::Tick => {
                if state.is_busy() {
                    spend(&mut state.budget.delays);
                }
                spend(&mut state.budget.ticks);
                state.note_unseen();
                state.now_ms = state.next_timer().unwrap_or(state.now_ms);
            }
            Action::Leap => {
                spend(&mut state.budget.leaps);
                state.note_unseen();
                state.now_ms += self.configuration.leap_ms;
            }
            Action::Crash(who) => self.crash(state, who),
            Action::Wipe => {
                spend(&mut state.budget.wipes);
                // The clock's part of the tokens makes them grow all the same, if a moment passes.
                state.now_ms += 1;
                state.ledger.change().wipe();
            }
            Action::BeaconFalls(who) => {
                spend(&mut state.budget.falls);
                let fallen = state.contexts[who].change().standing.take();
                fallen.into_iter().for_each(|session| self.feed(state, who, Input::BeaconLost(session)));
            }
            Action::Suspend(who) => {
                spend(&mut state.budget.suspends);
                state.contexts[who].change().suspended = true;
                self.feed(state, who, Input::Suspend { abandons: self.configuration.abandons });
            }
            Action::End(who) => {
                spend(&mut state.budget.endings);
                state.contexts[who].change().suspended = true;
                self.feed(state, who, Input::Ending { abandons: self.configuration.abandons });
            }
            Action::GoOn(who) => {
                let context = state.contexts[who].change();
                context.suspended = false;
                self.feed(state, who, Input::Wake);
            }
            Action::Close(who) => {
                spend(&mut state.budget.closes);
                let context = state.contexts[who].change();
                context.closed = true;
                context.may_ask.clear();
                self.feed(state, who, Input::Close);
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

    /// What it sent may still be applied, but for a blind deletion; nobody hears the answers.
    fn crash(&self, state: &mut State, who: usize) {
        spend(&mut state.budget.crashes);
        state.contexts[who].change().vanish(self.configuration.machine(who));
        state.signals.retain(|signal| signal.to != who);
        state.transactions.retain(|sent| sent.who != who || (sent.reply.is_none() && sent.abandons.is_none()));
        for sent in state.transactions.iter_mut().filter(|sent| sent.who == who) {
            sent.change().heard = false;
        }
    }
}
