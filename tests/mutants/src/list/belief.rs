//! How long a context believes, and in what.

use crate::{
    Mutant,
    Suite::{Rule, Scenario},
    edit,
};

const RUN: &str = "src/client/run.rs";
const HOLD: &str = "src/machine/context/hold.rs";
const REPLY: &str = "src/machine/context/reply.rs";
const SESSION: &str = "src/machine/context/session.rs";
const BELIEF: &str = "src/machine/context/belief.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "mutant 3",
        "a holder counts from the answer",
        Rule("opening::s16_nothing"),
        &[edit(
            BELIEF,
            "self.confirm(transaction.sent, lease_ms, now);",
            "self.confirm(Sent { at: now, ..transaction.sent }, lease_ms, now);",
        )],
    ),
    Mutant::new(
        "S5",
        "a request that is granted adds belief",
        Rule("protocol::s5_"),
        &[edit(
            REPLY,
            "Outcome::Granted(granted) => self.hold(slot, request, granted, sent, now),",
            "Outcome::Granted(granted) => {
                self.confirm(sent, self.config.lease_ms, now);
                self.hold(slot, request, granted, sent, now);
            }",
        )],
    ),
    Mutant::new(
        "S5",
        "an adoption adds belief",
        Rule("protocol::s5_"),
        &[edit(
            REPLY,
            "            return self.adopted(slot, outcome, sent, now);",
            "            self.confirm(sent, self.config.lease_ms, now);
            return self.adopted(slot, outcome, sent, now);",
        )],
    ),
    Mutant::new(
        "S6",
        "a signal adds belief",
        Rule("protocol::s6_a_signal"),
        &[edit(
            REPLY,
            "        self.hold(&slot, request, granted, sent, now);\n    }\n",
            "        self.confirm(sent, self.config.lease_ms, now);
        self.hold(&slot, request, granted, sent, now);\n    }\n",
        )],
    ),
    Mutant::new(
        "S6",
        "a guard is handed out while belief is over",
        Rule("protocol::s6_no_guard"),
        &[edit(
            "src/machine/context/passing.rs",
            "        if !believed {\n            return HandOut::Nothing;\n        }\n",
            "",
        )],
    ),
    Mutant::new(
        "S8",
        "a grant that was stolen is believed again when it is answered late",
        Rule("sessions::s8_an_answer"),
        &[edit(HOLD, "if self.session.was_robbed(&slot.key, granted.block.first) {", "if false {")],
    ),
    Mutant::new(
        "S8",
        "a grant that was stolen is believed again when a signal comes late",
        Rule("sessions::s8_an_answer"),
        &[edit(REPLY, "let was_robbed = self.session.was_robbed(key, block.first);", "let was_robbed = false;")],
    ),
    Mutant::new(
        "S8",
        "nobody reads in the answer what was stolen",
        Rule("sessions::s8_the_robbed"),
        &[edit(BELIEF, "for (key, token) in robbed {", "for (key, token) in robbed.iter().take(0) {")],
    ),
    Mutant::new(
        "S8",
        "a guard whose upgrade was stolen unheard is valid again at the next heartbeat",
        Rule("robbed::a_guard_whose_upgrade"),
        &[edit(
            "src/machine/context/cohorts.rs",
            "cohort.held().is_some_and(|held| held.grant <= grant)",
            "cohort.held().is_some_and(|held| held.grant == grant)",
        )],
    ),
    Mutant::new(
        "S8",
        "a fenced write that renews makes what was stolen at another key valid again",
        Rule("robbed::a_guard_whose_upgrade"),
        &[edit(
            "src/machine/context/fence.rs",
            "for (key, token) in robbed {",
            "for (key, token) in robbed.iter().take(0) {",
        )],
    ),
    Mutant::new(
        "liveness",
        "whoever waits is not told that a thief came before it",
        Scenario("takeover::a_thief_that_vanishes"),
        &[edit(REPLY, "        self.send(key, Body::Gone { holder });\n", "")],
    ),
    Mutant::new(
        "I14",
        "every key of a request is blamed for the one whose record cannot be read",
        Rule("overtaken::a_grant_of_several_keys"),
        &[edit(REPLY, "Outcome::UnreadableAt(at, _) if *at != index => self.found_busy(slot, now),", "")],
    ),
    Mutant::new(
        "S13",
        "a lease that was lowered is believed as long as the one before",
        Scenario("belief_in_a_lease_that_was_shortened"),
        &[edit(
            SESSION,
            "            self.valid_until = self.valid_until.min(sent.at.plus(belief_ms(lease_ms)));\n",
            "",
        )],
    ),
    Mutant::new(
        "S16",
        "a session is believed before its opening is confirmed",
        Rule("opening::s16_"),
        &[
            edit(
                SESSION,
                "        if self.asked_ms != lease_ms {\n",
                "        self.valid_until = self.valid_until.max(sent.at.plus(belief_ms(lease_ms)));
        if self.asked_ms != lease_ms {\n",
            ),
            edit(SESSION, "if self.doubted.is_some() || !self.is_open { 0 }", "if self.doubted.is_some() { 0 }"),
        ],
    ),
    Mutant::new(
        "S13",
        "a renewal counts although one that asked for less was sent since",
        Rule("overtaken::s13_"),
        &[edit(SESSION, "self.changed_by <= transaction", "self.changed_by <= transaction || transaction > 0")],
    ),
    Mutant::new(
        "I5",
        "what an attempt that comes too late was granted before is forgotten",
        Rule("overtaken::"),
        &[edit(
            REPLY,
            "Outcome::TooLate | Outcome::NoSession => self.ask(slot, now),",
            "Outcome::NoSession => self.ask(slot, now),\n            Outcome::TooLate => self.seek(slot, now),",
        )],
    ),
    Mutant::new(
        "S16",
        "a heartbeat that finds no row is a heartbeat",
        Rule("sessions::s16_"),
        &[edit(BELIEF, "            if transaction.is_of_session() &&", "            if transaction.opens &&")],
    ),
    Mutant::new(
        "rule k",
        "a release that a failover lost is not repeated",
        Rule("doubt::a_store_that_may_have_lost"),
        &[edit("src/machine/context/verify.rs", "        self.release_again(now);\n", "")],
    ),
    Mutant::new(
        "rule k",
        "what was sent before a sleep dispels the doubt",
        Rule("doubt::what_was_sent"),
        &[edit(SESSION, "self.doubted.is_some_and(|doubted| sent.transaction > doubted)", "self.doubted.is_some()")],
    ),
    Mutant::new(
        "rule k",
        "what ran out by one's own clock is lost",
        Scenario("l6_work_in_doubt_goes_on"),
        &[edit(
            BELIEF,
            "        self.suspect(now);\n        if asked {",
            "        self.suspect(now);
        for slot in &self.cohorts.pick(None, &|_, cohort| cohort.held().is_some()) {
            self.lose(slot, LostReason::Expired, now);
        }
        if asked {",
        )],
    ),
    Mutant::new(
        "work in doubt",
        "work that is to end with its lease goes on while the store does not answer",
        Scenario("loss::"),
        &[edit(RUN, "=> return LostReason::Expired,", "=> LeaseState::Held,")],
    ),
    Mutant::new(
        "work in doubt",
        "a leader campaigns while the store does not answer",
        Scenario("loss::a_leader"),
        &[edit(RUN, "while state == LeaseState::Suspect {", "while false {")],
    ),
    Mutant::new(
        "P4",
        "a context that begins to doubt puts off the heartbeat that was to be tried again",
        Rule("leftovers::a_retry_of_a"),
        &[edit(
            "src/machine/context/belief.rs",
            "        if asked {\n            self.lose_locks(now);",
            "        if asked {\n            self.heartbeat.replaced_by(now);\n            self.lose_locks(now);",
        )],
    ),
    Mutant::new(
        "P5",
        "fences that renew keep a context from asking whether others wait",
        Rule("leftovers::a_lease_that_goes"),
        &[edit("src/machine/context/cohorts.rs", " && self.passed_on.is_empty()", "")],
    ),
    Mutant::new(
        "S13",
        "a lease stays as long as an earlier guard wanted it, if it was handed on",
        Rule("leftovers::an_extension_for"),
        &[edit(
            "src/machine/context/hold.rs",
            "            self.session.end_extension(slot);\n        }\n",
            "        }\n",
        )],
    ),
    Mutant::new(
        "S13",
        "a lease stays as long as an earlier guard wanted it, if that guard ran out",
        Rule("leftovers::an_extension_for"),
        &[edit(
            "src/machine/context/hold.rs",
            "        self.session.end_extension(slot);\n        // Usually",
            "        // Usually",
        )],
    ),
];
