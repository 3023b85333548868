//! Tokens, the floor that remembers them, and the fences that ask for them.

use crate::{
    Mutant,
    Suite::{Histories, Properties, Rule, Scenario, Store},
    edit,
};

const TRANSITION: &str = "src/machine/record/transition.rs";
const RECORDS: &str = "src/machine/record/records.rs";
const PARTS: &str = "src/machine/record/transition/parts.rs";
const TOKEN: &str = "src/machine/token.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "mutant 2",
        "a fence lets everybody pass, as one in a transaction of its own does in the end",
        Properties,
        &[edit(
            TRANSITION,
            "return self.fence(*token, *request, *upgrade, *mode).into();",
            "return (Outcome::Current { contended: false, refill: None }).into();",
        )],
    ),
    Mutant::new(
        "mutant 12",
        "tokens have 32 bits",
        Properties,
        &[edit(TOKEN, "last.0.checked_add(1)?.max(clock);", "last.0.checked_add(1)?.max(clock) & 0xffff_ffff;")],
    ),
    Mutant::new(
        "rule q",
        "the last token is the first one of the block",
        Properties,
        &[edit(TRANSITION, "self.record.last_token = block.last;", "self.record.last_token = block.first;")],
    ),
    Mutant::new(
        "rule q",
        "guards of one tenure share a token",
        Histories("on_a_prompt_store"),
        &[edit("src/machine/context/passing.rs", "        self.next_token = token.next();\n", "")],
    ),
    Mutant::new(
        "rule q",
        "a block that ran out is used again",
        Properties,
        &[edit(TRANSITION, "        self.record.last_token = more.last;\n", "")],
    ),
    Mutant::new(
        "rule r",
        "tokens begin again at the end of the range",
        Properties,
        &[edit(
            TOKEN,
            "(end < END).then_some(Self { first: Token(first), last: Token(end) })",
            "Some(Self { first: Token(first % END), last: Token(end % END) })",
        )],
    ),
    Mutant::new(
        "rule r",
        "one wrong clock uses up the tokens",
        Properties,
        &[edit(TOKEN, "now.as_ms().min(CLOCK_CAP_MS) << 10", "now.as_ms().saturating_mul(1 << 10)")],
    ),
    Mutant::new(
        "S7",
        "a fence compares the token alone",
        Store("apply_tests::a_grant_is_current"),
        &[edit(
            TRANSITION,
            "match self.own_grant_of(request, token).or_else(|| self.own_grant(upgrade?)) {\n            Some(at) if mode",
            "match self.record.grants.iter().position(|grant| grant.block.first == token && request >= RequestId(0)) {
            Some(at) if mode",
        )],
    ),
    Mutant::new(
        "S7",
        "a fence passes although its guard was given back",
        Rule("fence::"),
        &[edit(
            "src/machine/context/fence.rs",
            "None if of_ticket.is_some() => return Ok(()),",
            "None => return Ok(()),",
        )],
    ),
    Mutant::new(
        "rule s",
        "a lease is passed on although a transaction that its guard has fenced may be open",
        Rule("fence::s_a_lease_is_not_passed_on"),
        &[edit("src/machine/context/passing.rs", " && !held.may_be_fenced();", ";")],
    ),
    Mutant::new(
        "S15",
        "whoever resumes a downgraded lease is not told that it was exclusive elsewhere",
        Scenario("parts::a_lease_that_another_context_downgraded"),
        &[edit("src/machine/record/transition/parts.rs", "if ask.mode == Mode::Shared {", "if false {")],
    ),
    Mutant::new(
        "I5",
        "a thief that does not know whether it stole steals again",
        Scenario("stale::a_thief_that_does_not_know"),
        &[edit(
            "src/machine/context/retry.rs",
            "                self.refuse_unsure_thieves(slot, &refusal);\n",
            "                _ = (slot, &refusal);\n",
        )],
    ),
    Mutant::new(
        "I5",
        "a thief that was evicted or suspended in doubt steals again",
        Rule("thieves::a_thief_that_was_granted_the_lease_in_doubt"),
        &[edit("src/machine/context/cohort.rs", "self.stolen && self.users.is_empty()", "self.stolen && false")],
    ),
    Mutant::new(
        "rule s",
        "the end of a fence of an earlier lease counts for the present one",
        Rule("fence::s_what_an_earlier_lease"),
        &[edit("src/machine/context/cohort.rs", "if (self.grant, self.request) == grant {", "if grant.1.0 > 0 {")],
    ),
    Mutant::new(
        "rule s",
        "a downgrade lets a reader in before what may be fenced is over",
        Rule("fence::s_a_reader_is_let_in"),
        &[edit(
            "src/machine/context/passing.rs",
            "held.admits(turn) && !weakens;",
            "held.admits(turn) && (!weakens || true);",
        )],
    ),
    Mutant::new(
        "rule s",
        "what a grant that was upgraded twice has fenced counts as open for ever",
        Rule("fence::s_a_transaction_that_was_reported"),
        &[edit(
            "src/machine/context/cohort.rs",
            "self.open_fences = [0, self.open_fences[0]];",
            "self.open_fences[1] += core::mem::take(&mut self.open_fences[0]);",
        )],
    ),
    Mutant::new(
        "rule s",
        "a context does not know of the transactions that its guards have fenced",
        Scenario("fence::a_transaction_that_outlives"),
        &[edit("src/client/fence.rs", "if !T::IN_ORDER {", "if T::IN_ORDER {")],
    ),
    Mutant::new(
        "rule s",
        "a transaction that was committed counts as open for ever",
        Scenario("fence::a_transaction_that_outlives"),
        &[edit(
            "src/client/fence.rs",
            "            driver.end_fence(&self.fate.slot, &self.ticket);\n",
            "            _ = driver;\n",
        )],
    ),
    Mutant::new(
        "S13",
        "a heartbeat that is wanted counts as sent with a fence, which may never be committed",
        Rule("fence::a_heartbeat"),
        &[edit(
            "src/machine/context/fence.rs",
            "            batch.step = SessionStep::Beat(",
            "            self.session.beat_is_sent();
            batch.step = SessionStep::Beat(",
        )],
    ),
    Mutant::new(
        "S15",
        "what was shared is resumed exclusively, if the parts say so",
        Store("mode_tests::s15_what_was_shared"),
        &[edit(PARTS, "ask.mode == Mode::Shared;\n            suits", "true;\n            suits")],
    ),
    Mutant::new(
        "store floor",
        "a record is forgotten, and its tokens with it",
        Store("row_tests::"),
        &[edit(RECORDS, "if last_token > self.store.floor {", "if last_token < self.store.floor {")],
    ),
    Mutant::new(
        "store floor",
        "the floor falls to the tokens of the last record that was forgotten",
        Store("row_tests::the_floor_only_grows"),
        &[edit(RECORDS, "if last_token > self.store.floor {", "if last_token != self.store.floor {")],
    ),
    Mutant::new(
        "store floor",
        "a missing record starts at nothing",
        Properties,
        &[edit(RECORDS, "Record::starting_at(self.store.floor)", "Record::default()")],
    ),
    Mutant::new(
        "store floor",
        "a record is forgotten although it is in use",
        Store("row_tests::"),
        &[edit(RECORDS, "!is_used && !record.last_token.is_near_the_end()", "!record.last_token.is_near_the_end()")],
    ),
];
