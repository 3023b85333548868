//! How a lease ends, and a context.

use crate::{
    Mutant,
    Suite::{Histories, Rule, Scenario},
    edit,
};

const RENEW: &str = "src/machine/renew.rs";
const LIFE: &str = "src/machine/life.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "mutant 10",
        "a loss is told, and a late renewal revives the guard",
        Histories("on_a_prompt_store"),
        &[edit(
            RENEW,
            "self.outputs.push(Output::Suspect { turn: user.turn });",
            "self.outputs.push(Output::Lost { turn: user.turn, reason: LostReason::Expired });",
        )],
    ),
    Mutant::new(
        "mutant 11",
        "the first error ends the renewals, and nobody is told",
        Scenario("x9_transient_errors_lose_nothing"),
        &[edit(
            "src/machine/setback.rs",
            "            self.renew_later(errand, error, now);",
            "            self.last_heartbeat = now.plus(1 << 40);",
        )],
    )
    .noting("only not to try again would be mended by the next heartbeat: here there is none"),
    Mutant::new(
        "rule e",
        "after a loss the request is not withdrawn",
        Rule("protocol::e_"),
        &[edit(
            "src/machine/hold.rs",
            "            self.withdraw_request(slot, held.request, now);\n            self.withdraw_upgrade",
            "            self.withdraw_upgrade",
        )],
    ),
    Mutant::new(
        "rule k",
        "what ran out by one's own clock is lost",
        Scenario("l6_work_in_doubt_goes_on"),
        &[edit(
            RENEW,
            "        self.tell_suspect(slot);\n        if !self.outbox.carries",
            "        self.lose(slot, LostReason::Expired, now);\n        if !self.outbox.carries",
        )],
    ),
    Mutant::new(
        "rule o",
        "guards outlive a suspension",
        Scenario("life::a_suspension_ends"),
        &[edit(LIFE, "            self.give_up(slot, LostReason::Suspended, now);\n", "")],
    ),
    Mutant::new(
        "rule o",
        "an answer to an earlier incarnation counts",
        Rule("suspension::"),
        &[
            edit(LIFE, "        self.outbox.ground();\n", ""),
            edit(LIFE, "        self.drop_all(SUSPENDED);\n", ""),
            edit(
                LIFE,
                "for errand in &self.outbox.drain() {\n            match (errand.turn",
                "for errand in &self.outbox.take_unless(|_| false) {\n            match (errand.turn",
            ),
            edit(
                LIFE,
                "        self.me = incarnation;\n",
                "        self.me = incarnation;\n        self.last_request = Default::default();\n",
            ),
        ],
    )
    .noting("two rules: an answer names its request, whose number never comes again"),
];
