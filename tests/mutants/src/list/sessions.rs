//! The rows of sessions: who is there may be alive, and who is not has ended.

use crate::{
    Mutant,
    Suite::{Histories, Properties, Rule, Scenario, Store},
    edit,
};

const PARTS: &str = "src/machine/record/transition/parts.rs";
const TRANSITION: &str = "src/machine/record/transition.rs";
const APPLY: &str = "src/machine/record/apply.rs";
const SESSIONS: &str = "src/machine/record/sessions.rs";
const SESSION: &str = "src/machine/record/session.rs";
const OWN_GRANT: &str =
    "        if let Some(grant) = self.own_grant(ask.request) {\n            return self.adopt(grant);";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "mutant 7",
        "a heartbeat leaves the beat as it is",
        Properties,
        &[edit(SESSION, "            self.beat = beat.beat;\n", "")],
    ),
    Mutant::new(
        "mutant 7",
        "a heartbeat leaves the beat as it is, seen from outside",
        Histories("on_a_prompt_store"),
        &[edit(SESSION, "            self.beat = beat.beat;\n", "            self.beat = self.beat.max(1);\n")],
    ),
    Mutant::new(
        "S1",
        "an opening leaves the earlier sessions of its context",
        Store("session_tests::s1_"),
        &[edit(
            APPLY,
            "if !records.sessions.get(ending.session).is_some_and(heard_since) {",
            "if ending.beat.is_some() && !records.sessions.get(ending.session).is_some_and(heard_since) {",
        )],
    ),
    Mutant::new(
        "S2",
        "a request inserts the row of its session",
        Properties,
        &[edit(
            TRANSITION,
            "        if let Some(refusal) = self.comes_too_late(ask) {\n            return refusal;",
            "        if self.sessions.own(self.holder).is_none() {
            let row = super::session::Session { beat: 1, lease_ms: 20_000, ..Default::default() };
            self.sessions.open(self.holder, row);
        }
        if let Some(refusal) = self.comes_too_late(ask) {
            return refusal;",
        )],
    ),
    Mutant::new(
        "S2",
        "a heartbeat inserts the row of its session",
        Properties,
        &[edit(
            SESSIONS,
            "        let row = self.readable_mut(id);\n",
            "        if self.has_ended(id) {
            self.rows.insert(id, Some(Session::default()));
        }
        let row = self.readable_mut(id);\n",
        )],
    ),
    Mutant::new(
        "S3",
        "an end does not look at the beat",
        Properties,
        &[edit(TRANSITION, "Some(row) => row.beat == beat,", "Some(_) => true,")],
    ),
    Mutant::new(
        "S3",
        "an end of a silent peer does not look at the beat",
        Store("session_tests::s3_"),
        &[edit(
            APPLY,
            "ending.beat.is_some_and(|beat| beat != row.beat)",
            "ending.beat.is_some_and(|_| row.beat == 0)",
        )],
    ),
    Mutant::new(
        "S5",
        "adopting a grant is a heartbeat",
        Properties,
        &[edit(
            TRANSITION,
            OWN_GRANT,
            "        if let Some(grant) = self.own_grant(ask.request) {
            if let Some((beat, beacon, lease_ms)) =
                self.sessions.own(self.holder).map(|row| (row.beat + 1, row.beacon, row.lease_ms))
            {
                let beat = super::Beat { beat, beacon, lease_ms, floor: 0 };
                self.sessions.beat(self.holder, &beat, self.now);
            }
            return self.adopt(grant);",
        )],
    ),
    Mutant::new(
        "S8",
        "a theft is not noted in the row of the victim",
        Properties,
        &[edit(
            TRANSITION,
            "            self.sessions.rob(grant.holder, Stolen { key: self.key.clone(), token, request });\n",
            "",
        )],
    ),
    Mutant::new(
        "S8",
        "a heartbeat cuts the list of what was stolen",
        Properties,
        &[edit(
            SESSION,
            "            self.beat = beat.beat;\n",
            "            self.beat = beat.beat;\n            self.robbed.clear();\n",
        )],
    ),
    Mutant::new(
        "S11",
        "an attempt below the floor is taken",
        Store("session_tests::s11_"),
        &[edit(TRANSITION, "            Some(row) if ask.attempt < row.floor => Some(Outcome::TooLate),\n", "")],
    ),
    Mutant::new(
        "S11",
        "the floor falls",
        Properties,
        &[edit(SESSION, "self.floor = self.floor.max(beat.floor);", "self.floor = beat.floor;")],
    ),
    Mutant::new(
        "S11",
        "a heartbeat raises no floor",
        Properties,
        &[edit(SESSION, "        self.floor = self.floor.max(beat.floor);\n", "")],
    ),
    Mutant::new(
        "S13",
        "a heartbeat that comes late is taken",
        Properties,
        &[edit(SESSION, "let is_late = beat.beat <= self.beat;", "let is_late = beat.beat == self.beat;")],
    ),
    Mutant::new(
        "S14",
        "what the absent hold counts",
        Properties,
        &[edit(TRANSITION, "if !matches!(action, Action::Inspect | Action::Fence { .. }) {", "if false {")],
    ),
    Mutant::new(
        "S14",
        "a head that has ended is granted",
        Properties,
        &[edit(TRANSITION, "_ if orphaned || ended => {", "_ if orphaned || (ended && !fits) => {")],
    ),
    Mutant::new(
        "S14",
        "the dead before a place are not swept",
        Store("session_tests::s14_an_absent_head"),
        &[edit(TRANSITION, "while at > 0 && seen < NEAREST {", "while at > 0 && seen > NEAREST {")],
    ),
    Mutant::new(
        "S15",
        "a lease is resumed by its token alone",
        Properties,
        &[edit(
            PARTS,
            "givers.contains(&grant.holder) && (grant.block.first, grant.request) == (token, request)",
            "!givers.is_empty() && (grant.block.first, request) == (token, request)",
        )],
    ),
    Mutant::new(
        "S15",
        "a lease that is resumed keeps its request",
        Properties,
        &[edit(
            PARTS,
            "(grant.request, grant.mode, grant.info) = (ask.request, ask.mode, ask.info.clone());",
            "(grant.mode, grant.info) = (ask.mode, ask.info.clone());",
        )],
    ),
    Mutant::new(
        "S15",
        "the session that a lease was detached to goes on",
        Properties,
        &[edit(PARTS, "if giver == givers[0] {", "if giver == givers[0] && false {")],
    ),
    Mutant::new(
        "S15",
        "a detachment that comes late moves what was resumed since",
        Properties,
        &[edit(
            PARTS,
            "let Some(at) = self.own_grant_of(request, token) else { return self.not_current(token) };\n        let instance",
            "let Some(at) = self.grant_of(self.holder, token) else { return self.not_current(token) };\n        let instance",
        )],
    ),
    Mutant::new(
        "S16",
        "whoever was not looked for is taken for absent",
        Store("session_tests::s16_nobody"),
        &[edit(SESSIONS, "None => self.complete,", "None => true,")],
    ),
    Mutant::new(
        "mutant 8",
        "a session is over when a wall clock says so (S16)",
        Store("apply_tests::a_wall_clock"),
        &[edit(SESSIONS, "now.is_over(row.deadline)", "row.expires_at() <= now.wall")],
    ),
    Mutant::new(
        "rule l",
        "a wall clock is trusted (S16)",
        Histories("with_late_signals"),
        &[edit(
            "src/machine/record/operation.rs",
            "(clock == StoreClock::Trusted).then_some(now.monotonic)",
            "Some(if clock == StoreClock::Trusted { now.monotonic } else { Monotonic::from_ms(now.wall.as_ms()) })",
        )],
    )
    .noting(
        "no two believe all the same: a context that sees the clock jump doubts; but a lease is taken over too soon",
    ),
    Mutant::new(
        "S8",
        "a request whose grant was stolen gets another one (I8)",
        Store("sweep_tests::i8_"),
        &[edit(TRANSITION, "if self.sessions.was_robbed_of(self.holder, self.key, ask.request) {", "if false {")],
    ),
    Mutant::new(
        "S8",
        "whoever cannot be told is robbed all the same",
        Store("session_tests::a_row_that_cannot_be_read"),
        &[edit(TRANSITION, "find_map(|grant| self.sessions.unreadable(grant.holder))", "find_map(|_| None)")],
    ),
    Mutant::new(
        "S4",
        "a row that cannot be read beats with its length alone",
        Store("text_tests::any_change"),
        &[edit("src/machine/record/session.rs", "beat: fingerprint(text),", "beat: text.len() as u64,")],
    ),
    Mutant::new(
        "S3",
        "the first sessions alone are named to those that open",
        Store("sweep_tests::every_session"),
        &[edit(SESSIONS, "self.rows.from(|session| *session <= id)", "self.rows.from(|_| false)")],
    ),
    Mutant::new(
        "store floor",
        "what only the dead use is kept for ever",
        Store("sweep_tests::a_record_that_only"),
        &[edit(
            "src/machine/record/records.rs",
            "let has_ended = |session| self.sessions.has_ended(session);",
            "let has_ended = |_| false;",
        )],
    ),
    Mutant::new(
        "store floor",
        "one record spends the tokens of all keys",
        Store("sweep_tests::a_record_at_the_end"),
        &[edit("src/machine/record/records.rs", "!is_used && !record.last_token.is_near_the_end()", "!is_used")],
    ),
    Mutant::new(
        "S16",
        "a release that waits while its context finds the store wiped is told an expiry",
        Rule("doubt::who_releases_while_the_context_finds_out"),
        &[edit(
            "src/machine/context/lifecycle.rs",
            "false if self.session.was_wiped() =>",
            "false if false && self.session.was_wiped() =>",
        )],
    ),
    Mutant::new(
        "S15",
        "a lease whose downgrade was not sent is exclusive where it is resumed",
        Scenario("parts::parts_of_a_lease_whose_downgrade"),
        &[edit(
            PARTS,
            "(grant.request, grant.mode, grant.info) = (ask.request, ask.mode, ask.info.clone());",
            "(grant.request, grant.info) = (ask.request, ask.info.clone());",
        )],
    ),
    Mutant::new(
        "S16",
        "a release that finds the store wiped is told an expiry if the key was granted there since",
        Rule("doubt::a_release_that_finds_the_store_wiped"),
        &[edit(
            "src/machine/context/reply.rs",
            "false if self.session.was_wiped() =>",
            "false if false && self.session.was_wiped() =>",
        )],
    ),
];
