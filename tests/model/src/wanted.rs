//! Whether the users of a context still want what it asks for and what it keeps.

use leasehold::machine::Batch;

use crate::{
    context::{Context, Guard, Stage},
    model::World,
    port::{self, Ask, Deal, EntryView, Want},
    state::State,
};

/// Whether a batch asks for what users want when it is sent. A request that nobody wants any more may still be sent, but then it takes no
/// place in the queue and steals nothing.
pub(crate) fn is_wanted(context: &Context, batch: &Batch) -> bool {
    port::asks(batch).all(|ask| match ask.deal {
        Deal::Upgrade(_) => !ask.waits || context.guards.iter().any(|guard| guard.key == ask.key && guard.upgrading),
        Deal::Steal => waiting(context, &ask).any(|guard| guard.want == Want::Steal),
        Deal::Acquire => waiting(context, &ask).any(|guard| guard.want.priority() >= ask.priority),
        _ => true,
    })
}

/// The turns that wait for what the batch asks for.
fn waiting<'a>(context: &'a Context, ask: &Ask) -> impl Iterator<Item = &'a Guard> {
    let Ask { key, mode, .. } = *ask;
    context.guards.iter().filter(move |guard| {
        let is_one = (guard.key, guard.want.mode()) == (key, mode);
        is_one && guard.stage == Stage::Waiting
    })
}

impl World {
    /// Whether a context that has nothing to send has only entries that its users want, as they want them. Where answers are lost or
    /// doubtful, it may not know what was applied.
    pub(crate) fn keeps_what_is_wanted(&self, state: &State, who: usize, context: &Context) -> bool {
        let is_at_rest = !state.is_under_way(who) && context.owed.is_empty() && !context.suspended;
        if !is_at_rest || !self.configuration.is_strict() {
            return true;
        }
        let session = context.machine.session();
        port::all_records(&state.ledger.records).all(|record| {
            let mut grants = record.grants.iter().filter(|grant| grant.session == session);
            let mut places = record.queue.iter().filter(|place| place.session == session);
            let lingers = self.configuration.linger_ms > 0;
            places.all(|place| is_place_wanted(context, place))
                && (lingers || grants.all(|grant| is_used(context, grant)))
        })
    }
}

fn is_used(context: &Context, grant: &EntryView) -> bool {
    let ended = |guard: &Guard| matches!(guard.stage, Stage::Ended | Stage::Lost);
    context.guards.iter().any(|guard| guard.key == grant.key && !ended(guard))
}

/// Whether a user waits at a place, and wants the priority that it has.
fn is_place_wanted(context: &Context, place: &EntryView) -> bool {
    if place.upgrades.is_some() {
        return context.guards.iter().any(|guard| guard.key == place.key && guard.upgrading);
    }
    let waits = |guard: &&Guard| guard.key == place.key && guard.stage == Stage::Waiting;
    let in_its_mode = |guard: &&Guard| guard.want.mode() == place.mode;
    let waiting = context.guards.iter().filter(waits).filter(in_its_mode);
    waiting.map(|guard| guard.want.priority()).max() == Some(place.priority)
}
