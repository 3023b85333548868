//! What a store does with a record.

use crate::{
    Mutant,
    Suite::{Properties, Store},
    edit,
};

const TRANSITION: &str = "src/machine/record/transition.rs";
const APPLY: &str = "src/machine/record/apply.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "mutant 1",
        "a release deletes the record that it leaves empty",
        Properties,
        &[edit(
            TRANSITION,
            "self.remove_grant_of(request);\n        if held",
            "self.remove_grant_of(request);
        if self.record.is_idle() {
            *self.record = Record::default();
        }
        if held",
        )],
    ),
    Mutant::new(
        "mutant 5",
        "any token is current",
        Properties,
        &[edit(
            TRANSITION,
            "let Some(at) = self.own_grant_of(request, token) else { return self.not_current(token) };\n        let refill",
            "let Some(at) = self.record.grants.len().checked_sub(1) else { return self.not_current(token) };
        let refill",
        )],
    ),
    Mutant::new(
        "mutant 6",
        "any token releases",
        Properties,
        &[edit(
            TRANSITION,
            "let held = self.own_grant_of(request, token);\n",
            "let held = self.record.grants.len().checked_sub(1);
        held.into_iter().for_each(|at| self.remove_grant(at));\n",
        )],
    ),
    Mutant::new(
        "mutant 13",
        "of several keys, those that are free are granted",
        Properties,
        &[
            edit(APPLY, "let mut taken = false;", "let mut taken = true;"),
            edit(APPLY, "taken |= obstacles.is_some();", "taken &= obstacles.is_some();"),
            edit(APPLY, "                self.give_up(records, promoted);\n", ""),
        ],
    ),
    Mutant::new(
        "mutual exclusion",
        "a grant is made although the key is taken",
        Properties,
        &[edit(
            TRANSITION,
            "let fits = self.fits(head.holder, head.mode, head.upgrades);",
            "let fits = self.record.grants.len() < 2 || self.fits(head.holder, head.mode, head.upgrades);",
        )],
    ),
    Mutant::new(
        "rule a",
        "a request is given a place beside the one that its holder has",
        Properties,
        &[edit(TRANSITION, "let is_common = !ask.alone && ask.upgrades().is_none();", "let is_common = false;")],
    ),
    Mutant::new(
        "S12",
        "a waiting answer tells an old token",
        Properties,
        &[edit(
            TRANSITION,
            "Outcome::Waiting { last_token: self.record.last_token,",
            "Outcome::Waiting { last_token: Token::default(),",
        )],
    ),
    Mutant::new(
        "rule e",
        "a withdrawal leaves the grant",
        Properties,
        &[edit(TRANSITION, "self.remove_grant_of(request);\n        Outcome::Withdrawn", "Outcome::Withdrawn")],
    ),
    Mutant::new(
        "rule e",
        "a withdrawal leaves the place",
        Properties,
        &[edit(
            TRANSITION,
            "self.remove_place(request);\n        self.remove_grant_of(request);\n        Outcome::Withdrawn",
            "self.remove_grant_of(request);\n        Outcome::Withdrawn",
        )],
    ),
    Mutant::new(
        "rule e",
        "a release leaves the place",
        Store("apply_tests::e_"),
        &[edit(
            TRANSITION,
            "self.remove_place(request);\n        // The request must match, too",
            "// The request must match, too",
        )],
    ),
    Mutant::new(
        "rule f",
        "an operation ends without promoting",
        Properties,
        &[edit(
            TRANSITION,
            "        self.promote();\n        let contended = !self.record.queue.is_empty();\n        outcome.note",
            "        let contended = !self.record.queue.is_empty();\n        outcome.note",
        )],
    ),
    Mutant::new(
        "rule f",
        "a theft tells nobody",
        Properties,
        &[edit(TRANSITION, "            self.robbed.push((grant.holder, token));\n", "")],
    ),
    Mutant::new(
        "I3",
        "a request voids the other grants of its holder",
        Properties,
        &[edit(
            TRANSITION,
            "            return refusal;\n        }\n        self.asked = Some(ask.request);\n        if let Some(grant) = self.own_grant(ask.request)",
            "            return refusal;
        }
        let me = self.holder;
        self.record.grants.retain(|grant| grant.holder != me || grant.request == ask.request);
        if let Some(grant) = self.own_grant(ask.request)",
        )],
    ),
    Mutant::new(
        "I9",
        "a release names the token alone",
        Store("apply_tests::i9_"),
        &[edit(
            TRANSITION,
            "let held = self.own_grant_of(request, token);\n",
            "let held = self.grant_of(self.holder, token);
        held.into_iter().for_each(|at| self.remove_grant(at));\n",
        )],
    ),
    Mutant::new(
        "I9",
        "an upgrade names the token alone",
        Store("apply_tests::i9_"),
        &[edit(
            TRANSITION,
            "if self.own_grant_of(request, token).is_none() => {",
            "if self.grant_of(self.holder, token).is_none_or(|_| request == RequestId::default()) => {",
        )],
    ),
    Mutant::new(
        "I9",
        "a downgrade names the token alone",
        Store("apply_tests::i9_"),
        &[edit(
            TRANSITION,
            "let Some(at) = self.own_grant_of(request, token) else { return self.not_current(token) };\n        if self",
            "let Some(at) = self.grant_of(self.holder, token) else { return self.not_current(token) };\n        if self",
        )],
    ),
];
