//! How long is believed, and how long is watched.

use crate::{
    Mutant,
    Suite::{Histories, Properties, Rule, Scenario},
    edit,
};

const REPLY: &str = "src/machine/reply.rs";
const SIGHT: &str = "src/machine/sight.rs";
const TELLS_SINCE: &str = "since.plus(silence_ms(seen.lease_ms))";
const WAITED: &str = "now.since(*since) >= silence_ms(seen.lease_ms)";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "mutant 3",
        "a holder counts from the answer",
        Histories("with_late_answers"),
        &[edit(
            REPLY,
            "self.errand_answered(errand, &answer.outcome, flight.sent, now);",
            "self.errand_answered(errand, &answer.outcome, Sent { at: now, ..flight.sent }, now);",
        )],
    ),
    Mutant::new(
        "mutant 4",
        "an onlooker counts from before its read",
        Scenario("a_silent_holder_is_watched_from_after"),
        &[edit(
            REPLY,
            "self.observe(slot, ahead, now);\n        let Some(place) = self.places.change(slot) else { return };\n        let Some(seeking)",
            "self.observe(slot, ahead, sent.at);\n        let Some(place) = self.places.change(slot) else { return };\n        let Some(seeking)",
        )],
    ),
    Mutant::new(
        "mutant 8",
        "a lease is over when the wall clock says so",
        Properties,
        &[edit(
            "src/machine/work.rs",
            "goes_on(grant.holder, grant.deadline)",
            "grant.holder == holder || grant.expires_at > now.wall",
        )],
    ),
    Mutant::new(
        "rule i",
        "an onlooker waits a shorter lease than the recorded one",
        Histories("on_a_prompt_store"),
        &[
            edit(SIGHT, TELLS_SINCE, "since.plus(silence_ms(seen.lease_ms.min(5_000)))"),
            edit(SIGHT, WAITED, "now.since(*since) >= silence_ms(seen.lease_ms.min(5_000))"),
        ],
    ),
    Mutant::new(
        "rule i",
        "a change does not start the wait anew",
        Rule("protocol::i_"),
        &[edit(
            "src/machine/record.rs",
            "(self.holder, self.entry, self.beat) == (other.holder, other.entry, other.beat)",
            "(self.holder, self.entry) == (other.holder, other.entry)",
        )],
    ),
    Mutant::new(
        "rule j",
        "a renewal that shortens the lease is believed as long as the one before",
        Scenario("belief_in_a_lease_that_was_shortened"),
        &[edit(
            "src/machine/renew.rs",
            "        held.valid_until = held.valid_until.min(sent.at.plus(belief_ms(lease_ms)));\n",
            "",
        )],
    ),
    Mutant::new(
        "rule k",
        "what was sent before a sleep dispels the doubt",
        Rule("doubt::what_was_sent"),
        &[edit(
            "src/machine/place.rs",
            "self.doubted.is_some_and(|doubted| sent.flight > doubted)",
            "self.doubted.is_some_and(|doubted| sent.flight > 0 || doubted > 0)",
        )],
    ),
    Mutant::new(
        "rule l",
        "a wall clock is trusted",
        Histories("with_late_signals"),
        &[edit(
            "src/machine/operation.rs",
            "(clock == StoreClock::Trusted).then_some(now.monotonic)",
            "Some(if clock == StoreClock::Trusted { now.monotonic } else { Monotonic::from_ms(now.wall.as_ms()) })",
        )],
    )
    .noting(
        "no two believe all the same: a context that sees the clock jump doubts; but a lease is taken over too soon",
    ),
];
