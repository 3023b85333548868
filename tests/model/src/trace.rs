//! A counter-example that can be read.

use std::fmt::Write as _;

use crate::{
    action::{Action, Name},
    context::Stage,
    port::{self, EntryView, RecordView},
    state::State,
};

/// One line: what happened, and what the world looks like then.
pub(crate) fn line(out: &mut String, step: usize, action: Action, before: &State, after: &State) {
    let what = match action {
        Action::Apply(at) | Action::Answer(at) | Action::Refuse(at) | Action::Doubt(at) | Action::Lose(at) => {
            transaction(action, before, at)
        }
        Action::Signal(at) | Action::SignalTwice(at) => {
            let signal = &before.signals[at];
            format!("{action} to {}: {:?}", Name(signal.to), signal.message.body)
        }
        _ => action.to_string(),
    };
    let _ = writeln!(out, "{step:3}. t={:<6} {what}", after.now_ms);
    let _ = writeln!(out, "     {}", summary(after));
}

fn transaction(action: Action, before: &State, at: usize) -> String {
    let sent = &before.transactions[at];
    let deals: Vec<_> = sent.batch.operations.iter().map(|operation| format!("{:?}", port::deal(operation))).collect();
    let answers: Vec<_> = sent.reply.iter().flat_map(|reply| &reply.answers).map(port::describe).collect();
    let verb = format!("{action:?}");
    let verb = verb.split('(').next().unwrap_or_default();
    let mut what = format!("{verb} {}#{} {}", Name(sent.who), sent.id, port::step(&sent.batch));
    for ending in &sent.batch.ends {
        let _ = write!(what, " ends {}@{:?}", port::short(ending.session), ending.beat);
    }
    if let Some(session) = sent.abandons {
        let _ = write!(what, " abandons {}", port::short(session));
    }
    format!("{what} {} {}", deals.join(" + "), answers.join(" + "))
}

fn summary(state: &State) -> String {
    let entries = |entries: &[EntryView]| {
        let names = entries.iter().map(|entry| {
            let token = entry.block.map_or(String::new(), |block| format!(" token {}", block.0));
            let (name, mode) = (port::short(entry.session), entry.mode.name());
            format!("{name} {mode} request {}{token}", entry.request)
        });
        names.collect::<Vec<_>>().join("; ")
    };
    let mut out = String::new();
    for record in port::all_records(&state.ledger.records).filter(|record| *record != RecordView::default()) {
        let _ = write!(out, "held by [{}], queue [{}]", entries(&record.grants), entries(&record.queue));
    }
    for row in &state.ledger.evidence.rows {
        let beacon = if row.beacon { ", beacon" } else { "" };
        let _ = write!(out, ", {}: beat {}{beacon}", port::short(row.session), row.beat);
    }
    for (who, context) in state.contexts.iter().enumerate() {
        let granted = context.turns(Stage::Granted).any(|turn| state.believes(who, turn));
        if granted && context.runs() {
            let _ = write!(out, ", {} believes", Name(who));
        }
    }
    out
}
