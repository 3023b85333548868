//! Tokens, and the fences that ask for them.

use crate::{
    Mutant,
    Suite::{Histories, Properties},
    edit,
};

const WORK: &str = "src/machine/work.rs";
const TOKEN: &str = "src/machine/token.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "mutant 2",
        "a fence lets everybody pass, as one in a transaction of its own does in the end",
        Properties,
        &[edit(
            WORK,
            "return self.fence(*token, *request).into(),",
            "return (Outcome::Current, token, request).0.into(),",
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
        &[edit(
            WORK,
            "        self.record.last_token = block.last;\n        if mode",
            "        self.record.last_token = block.first;\n        if mode",
        )],
    ),
    Mutant::new(
        "rule q",
        "an answer that comes again resets what is handed out next",
        Histories("on_a_prompt_store"),
        &[edit(
            "src/machine/reply.rs",
            "            self.confirm(slot, block.first, Confirmed { sent, lease_ms, contended }, now);\n        }\n    }",
            "            if let Some(held) = self.places.change_held(slot) {
                held.next_token = block.first;
            }
            self.confirm(slot, block.first, Confirmed { sent, lease_ms, contended }, now);
        }
    }",
        )],
    ),
    Mutant::new(
        "rule q",
        "guards of one tenure share a token",
        Histories("on_a_prompt_store"),
        &[edit("src/machine/hold.rs", "        self.next_token = token.next();\n", "")],
    ),
    Mutant::new(
        "rule q",
        "a block that ran out is used again",
        Properties,
        &[edit(WORK, "        self.record.last_token = more.last;\n", "")],
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
        "rule s",
        "a fence compares the token alone",
        Properties,
        &[edit(
            WORK,
            "match self.own_grant(request) {
            Some(at) if self.record.grants[at].block.first == token && !self.graves.hold(self.holder) => {",
            "match self.record.grants.iter().position(|grant| grant.block.first == token) {
            Some(at) if self.record.grants[at].request >= RequestId(0).min(request) => {",
        )],
    ),
];
