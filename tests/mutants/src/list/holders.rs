//! Whoever meets other holders: tries, nested requests, upgrades, and what a release says of a theft.

use crate::{
    Mutant,
    Suite::{Rule, Scenario},
    edit,
};

const BUSY: &str = "src/machine/context/busy.rs";
const UPGRADE: &str = "src/machine/context/upgrade.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "S9",
        "a try does not look whether a silent holder is dead",
        Scenario("ending::s9_who_only_tries"),
        &[edit(BUSY, "let is_probing = may_be_dead &&", "let is_probing = false && may_be_dead &&")],
    ),
    Mutant::new(
        "P5",
        "work waits for the lease that it runs under",
        Scenario("nested::"),
        &[edit(
            "src/machine/context/passing.rs",
            "Some(0) } else { turns.first_sharer() };",
            "Some(0) } else { None };",
        )],
    ),
    Mutant::new(
        "P5",
        "a context hands its lease on for as long as it likes, while others wait",
        Scenario("answers::a_context_hands"),
        &[edit(
            "src/machine/context/passing.rs",
            "let within_tenure = now.since(self.tenure_since) < config.max_tenure_ms;",
            "let within_tenure = now >= self.tenure_since;",
        )],
    ),
    Mutant::new(
        "P5",
        "a context hands its lease on as often as it likes, while others wait",
        Scenario("answers::a_context_hands"),
        &[edit(
            "src/machine/context/passing.rs",
            "self.handoffs < config.max_local_handoffs && within_tenure",
            "within_tenure",
        )],
    ),
    Mutant::new(
        "renewal",
        "a hand-over renews a lease that only its user renews",
        Scenario("hold::a_hand_over_renews"),
        &[edit(
            "src/machine/context/verify.rs",
            "let Some(query) = operation.turn else { return };\n        if matches!(outcome, Outcome::Current { .. }) {\n            self.renew_users(slot, token, sent);\n        }",
            "if matches!(outcome, Outcome::Current { .. }) {\n            self.renew_users(slot, token, sent);\n        }\n        let Some(query) = operation.turn else { return };",
        )],
    ),
    Mutant::new(
        "rule s",
        "a fence takes a lease that is being upgraded for a lost one",
        Scenario("fence::a_lease_that_is_being_upgraded"),
        &[edit("src/machine/record/transition.rs", ".or_else(|| self.own_grant(upgrade?))", "")],
    ),
    Mutant::new(
        "I5",
        "after a freeze, work goes on while its lease is in doubt",
        Scenario("loss::l6_after_a_freeze"),
        &[edit("src/client/run.rs", "if guard.is_overdue() {", "if false && guard.is_overdue() {")],
    ),
    Mutant::new(
        "I6",
        "a release that finds its lease stolen does not say so",
        Scenario("hold::a_release_that_finds"),
        &[edit("src/machine/context/reply.rs", "true => LostReason::Stolen,", "true => LostReason::Expired,")],
    ),
    Mutant::new(
        "S9",
        "a try for several keys believes that every holder is alive",
        Scenario("probing::a_try_for_several"),
        &[edit("src/client/multi.rs", "!holder.own && (holder.beacon || ", "!holder.own && (false || ")],
    ),
    Mutant::new(
        "S9",
        "a try believes that every waiter is alive",
        Scenario("probing::a_dead_waiter"),
        &[edit(BUSY, "(may_be_unused(ahead, me) || all_may_be_dead)", "may_be_unused(ahead, me)")],
    ),
    Mutant::new(
        "S9",
        "a try that looked whether its holder is dead never ends",
        Rule("ending::s9_a_try_waits_a_moment"),
        &[edit(
            BUSY,
            "probes_until.is_none_or(|until| until > now)",
            "probes_until.is_none_or(|until| until > now || until <= now)",
        )],
    ),
    Mutant::new(
        "P5",
        "a nested request is forgotten while its work upgrades",
        Scenario("nested::a_nested_request_made_during"),
        &[edit(
            UPGRADE,
            "            None => self.weaken(slot, None, now),\n        }\n",
            "            None => self.weaken(slot, None, now),\n        }\n        return;\n",
        )],
    ),
    Mutant::new(
        "P5",
        "a nested request joins only if all who use the lease share it",
        Scenario("nested::a_nested_request_joins_beside"),
        &[edit(
            "src/machine/context/cohort.rs",
            "users.iter().any(|user| user.share)",
            "users.iter().all(|user| user.share)",
        )],
    ),
    Mutant::new(
        "P4",
        "a release that is tried again hides a theft",
        Scenario("hold::a_release_that_is_tried_again"),
        &[edit("src/machine/context/reply.rs", "(maybe_released && !stolen);", "(maybe_released || stolen);")],
    ),
    Mutant::new(
        "P4",
        "a release that is tried again tells of the theft of a later lease",
        Rule("overtaken::a_release_that_is_tried_again_tells_of_no_theft_of_the_next"),
        &[edit("src/machine/context/reply.rs", "(facts.maybe_upgraded && self.session", "(self.session")],
    ),
    Mutant::new(
        "rule s",
        "a fence of an exclusive guard passes after the lease was downgraded",
        Scenario("fence::a_fence_of_an_exclusive_guard"),
        &[edit(
            "src/machine/record/transition.rs",
            "Some(at) if mode == Mode::Exclusive &&",
            "Some(at) if false && mode == Mode::Exclusive &&",
        )],
    ),
    Mutant::new(
        "rule s",
        "a fence that began before an upgrade finds a loss",
        Scenario("fence::a_fence_that_began_before"),
        &[edit("src/machine/context/fence.rs", "Err(if held.is_some_and(", "Err(if false && held.is_some_and(")],
    ),
    Mutant::new(
        "S9",
        "an upgrade believes that its rival is alive",
        Scenario("changes::an_upgrade_finds_out"),
        &[edit(UPGRADE, "seen.beacon && seen.holder != self.session.id()", "seen.beacon && false")],
    ),
    Mutant::new(
        "S9",
        "an upgrade watches its rival for ever",
        Scenario("changes::a_rival_that_does_not_answer"),
        &[edit(UPGRADE, "|| now.plus(GONE_MS)) > now", "|| now.plus(GONE_MS * 9)) > now")],
    ),
];
