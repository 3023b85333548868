//! What a transaction may do that reads no session row.

use crate::{
    Mutant,
    Suite::{Rule, Store},
    edit,
};

const APPLY: &str = "src/machine/record/apply.rs";
const OPERATION: &str = "src/machine/record/operation.rs";
const RECORDS: &str = "src/machine/record/records.rs";
const OF_COHORTS: &str = "src/machine/context/cohorts/operations.rs";
const SENDING: &str = "src/machine/context/sending.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "S17",
        "the record alone is enough although others wait",
        Store("alone_tests::whoever_else"),
        &[edit(RECORDS, "record.queue.iter().all(|waiter| is_own(waiter.holder))", "true")],
    ),
    Mutant::new(
        "S17",
        "the record alone is enough although others hold the key",
        Store("alone_tests::whoever_else"),
        &[edit(RECORDS, "record.grants.iter().all(|grant| is_own(grant.holder))", "true")],
    ),
    Mutant::new(
        "S17",
        "a key without a record begins anywhere",
        Store("alone_tests::a_key_without"),
        &[edit(RECORDS, " && self.len() == batch.keys().len()", "")],
    ),
    Mutant::new(
        "S17",
        "who misses its grant is told without its row that nobody stole it",
        Store("alone_tests::who_misses"),
        &[edit(APPLY, "reply.answers.iter().all(needs_no_row).then_some(reply)", "Some(reply)")],
    ),
    Mutant::new(
        "S17",
        "it is sure of its session after the machine slept",
        Store("alone_tests::clocks"),
        &[edit(
            OPERATION,
            "now.monotonic.since(sent.monotonic).max(by_wall_ms) < self.sure_ms",
            "now.monotonic.since(sent.monotonic) < self.sure_ms.max(by_wall_ms)",
        )],
    ),
    Mutant::new(
        "S17",
        "a request that was sent before is sure of its session",
        Rule("sure::a_request"),
        &[edit(OF_COHORTS, "seeking.is_some_and(|seeking| !seeking.sent)", "seeking.is_some()")],
    ),
    Mutant::new(
        "S17",
        "a thief is sure of its session",
        Rule("sure::a_thief"),
        &[edit(OPERATION, "Action::Acquire(ask) => ask.way == Way::Plain,", "Action::Acquire(_) => true,")],
    ),
    Mutant::new(
        "S17",
        "whoever ends another session reads no row",
        Rule("sure::whoever_ends"),
        &[edit(OPERATION, "            && self.ends.is_empty()\n", "")],
    ),
    Mutant::new(
        "S17",
        "it is sure of its session for a whole lease",
        Rule("sure::whoever_has"),
        &[edit(SENDING, "batch.sure_ms = self.session.belief_left(now);", "batch.sure_ms = self.config.lease_ms;")],
    ),
    Mutant::new(
        "S8",
        "whoever was robbed unheard is granted the key anew beside the guard that it takes for valid",
        Rule("sure::whoever_holds"),
        &[edit(OF_COHORTS, " && self.pick(Some(&operation.slot.key), &is_held).is_empty()", "")],
    ),
    Mutant::new(
        "S2",
        "a heartbeat that is applied alone revives a session",
        Store("alone_tests::what_concerns"),
        &[edit(OPERATION, "self.step == SessionStep::Stay", "self.step != SessionStep::Close")],
    ),
    Mutant::new(
        "store floor",
        "what is forgotten by a transaction that did not read the floor lowers it",
        Store("alone_tests::what_concerns"),
        &[edit(OPERATION, "            && self.forgets.is_empty()\n", "")],
    ),
];
