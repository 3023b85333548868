//! What a store does with a record.

use crate::{
    Mutant,
    Suite::{Histories, Properties},
    edit,
};

const WORK: &str = "src/machine/work.rs";
const APPLY: &str = "src/machine/apply.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "mutant 1",
        "a release deletes the record that it leaves empty",
        Properties,
        &[edit(
            WORK,
            "self.remove_grant(at);\n                Outcome::Released",
            "self.remove_grant(at);
                if self.record.grants.is_empty() && self.record.queue.is_empty() {
                    *self.record = Record::default();
                }
                Outcome::Released",
        )],
    ),
    Mutant::new(
        "mutant 5",
        "any token renews",
        Properties,
        &[edit(
            WORK,
            "let Some(at) = self.grant_of(self.holder, token) else { return self.not_current(token) };
        self.renew_grant(",
            "let Some(at) = self.record.grants.len().checked_sub(1) else { return self.not_current(token) };
        self.renew_grant(",
        )],
    ),
    Mutant::new(
        "mutant 6",
        "any token releases",
        Properties,
        &[edit(
            WORK,
            "self.remove_place(request);\n        match self.grant_of(self.holder, token) {",
            "self.remove_place(request);\n        match self.record.grants.len().checked_sub(1) {",
        )],
    ),
    Mutant::new(
        "mutant 7",
        "a renewal leaves the beat as it is",
        Properties,
        &[edit(WORK, "grant.beat = beat;\n            grant.beacon", "grant.beacon")],
    ),
    Mutant::new(
        "mutant 7",
        "a renewal leaves the beat as it is, seen from outside",
        Histories("on_a_prompt_store"),
        &[edit(WORK, "grant.beat = beat;\n            grant.beacon", "grant.beacon")],
    ),
    Mutant::new(
        "mutant 13",
        "of several keys, those that are free are granted",
        Properties,
        &[
            edit(APPLY, "let mut taken = false;", "let mut taken = true;"),
            edit(APPLY, "taken |= obstacles.is_some();", "taken &= obstacles.is_some();"),
            edit(APPLY, "                self.give_up(asks, false, records, now, promoted);\n", ""),
        ],
    ),
    Mutant::new(
        "rule a",
        "a request is given a place beside the one that its holder has",
        Properties,
        &[edit(WORK, "let is_common = !ask.alone && ask.upgrades().is_none();", "let is_common = false;")],
    ),
    Mutant::new(
        "rule b",
        "a waiting answer tells an old token",
        Properties,
        &[edit(
            WORK,
            "None => Outcome::Waiting { last_token: self.record.last_token,",
            "None => Outcome::Waiting { last_token: Token::default(),",
        )],
    ),
    Mutant::new(
        "rule c",
        "adopting a grant does not renew it",
        Properties,
        &[edit(
            WORK,
            "        self.renew_grant(at, ask.beat, ask.beacon, lease_ms);\n        let Grant",
            "        let Grant",
        )],
    ),
    Mutant::new(
        "rule d",
        "an heir is granted its full lease",
        Properties,
        &[edit(WORK, "if waiter.holder == self.holder { waiter.lease_ms } else { waiter.heir_ms }", "waiter.lease_ms")],
    ),
    Mutant::new(
        "rule d",
        "an heir is told a longer lease than the recorded one",
        Properties,
        &[edit(
            WORK,
            "Promotion { key: self.key.clone(), holder, request, block, lease_ms, previous }",
            "Promotion { key: self.key.clone(), holder, request, block, lease_ms: lease_ms * 2, previous }",
        )],
    ),
    Mutant::new(
        "rule e",
        "a withdrawal leaves the grant",
        Properties,
        &[edit(WORK, "self.remove_grant_of(request);\n        Outcome::Withdrawn", "Outcome::Withdrawn")],
    ),
    Mutant::new(
        "rule e",
        "a withdrawal leaves the place",
        Properties,
        &[edit(
            WORK,
            "self.remove_place(request);\n        self.remove_grant_of(request);\n        Outcome::Withdrawn",
            "self.remove_grant_of(request);\n        Outcome::Withdrawn",
        )],
    ),
    Mutant::new(
        "rule e",
        "a release leaves the place",
        Properties,
        &[edit(WORK, "self.remove_place(request);\n        match", "match")],
    ),
    Mutant::new(
        "rule f",
        "an operation ends without promoting",
        Properties,
        &[edit(WORK, "        self.promote();\n        outcome.note", "        outcome.note")],
    ),
    Mutant::new(
        "rule g",
        "an eviction of a grant does not look at the beat",
        Properties,
        &[edit(WORK, ".filter(|&at| self.record.grants[at].beat == beat)", "")],
    ),
    Mutant::new(
        "rule g",
        "an eviction of a waiter does not look at the beat",
        Properties,
        &[edit(
            WORK,
            "(waiter.holder, waiter.request, waiter.beat) == (target, request, beat)",
            "(waiter.holder, waiter.request) == (target, request)",
        )],
    ),
    Mutant::new(
        "rule h",
        "a request voids the other grants of its holder",
        Properties,
        &[edit(
            WORK,
            "        self.expire();\n        if let Some(grant) = self.own_grant(ask.request)",
            "        self.expire();
        let me = self.holder;
        self.record.grants.retain(|grant| grant.holder != me || grant.request == ask.request);
        if let Some(grant) = self.own_grant(ask.request)",
        )],
    ),
    Mutant::new(
        "rule j",
        "a renewal with an older beat counts",
        Properties,
        &[edit(WORK, "if beat > grant.beat {", "if beat != grant.beat {")],
    ),
    Mutant::new(
        "rule j",
        "adopting may shorten the lease",
        Properties,
        &[edit(
            WORK,
            "let lease_ms = self.record.grants[at].lease_ms.max(ask.lease_ms);",
            "let lease_ms = ask.lease_ms;",
        )],
    ),
];
