//! Requests, what is left of them, and heirs.

use crate::{
    Mutant,
    Suite::{Histories, Rule},
    edit,
};

const REPLY: &str = "src/machine/reply.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "mutant 9",
        "all requests have one number",
        Histories("on_a_prompt_store"),
        &[edit(
            "src/machine/mod.rs",
            "self.last_request = self.last_request.next();",
            "self.last_request = RequestId(1);",
        )],
    ),
    Mutant::new(
        "rule b",
        "an old signal is believed",
        Rule("protocol::b_"),
        &[edit(REPLY, "            Some(_) if block.first <= seeking.last_token => None,\n", "")],
    ),
    Mutant::new(
        "rule d",
        "an heir counts from the signal",
        Rule("protocol::d_"),
        &[edit(
            REPLY,
            "self.hold(&slot, request, granted, sent, now);\n        self.settle_heir",
            "self.hold(&slot, request, granted, Sent { at: now, ..sent }, now);\n        self.settle_heir",
        )],
    ),
    Mutant::new(
        "rule d",
        "an heir believes its own lease, not the recorded one",
        Rule("protocol::d_"),
        &[edit(
            REPLY,
            "        self.hold(&slot, request, granted, sent, now);\n",
            "        let lease_ms = self.config.lease_ms.max(granted.lease_ms);
        self.hold(&slot, request, &Granted { lease_ms, ..*granted }, sent, now);\n",
        )],
    ),
    Mutant::new(
        "rule h",
        "a signalled grant that nobody wants any more stays",
        Rule("protocol::h_"),
        &[edit(REPLY, "return self.end_stray(&slot, request, Some(block.first), now);", "return drop(slot);")],
    ),
    Mutant::new(
        "rule h",
        "a grant of one's own that nobody knows stays",
        Rule("protocol::h_"),
        &[edit(
            "src/machine/sight.rs",
            "if !self.knows_grant(&slot.key, token) && !self.knows(&slot.key, request) {",
            "if slot.own.is_some() && slot.own.is_none() {",
        )],
    ),
];
