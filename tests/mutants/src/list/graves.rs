//! Tombstones, and the alarm that the store's answer sets.

use crate::{
    Mutant,
    Suite::{Rule, Scenario},
    edit,
};

const LIFE: &str = "src/machine/life.rs";
const RECORDS: &str = "src/machine/records.rs";
const WORK: &str = "src/machine/work.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "rule p",
        "a tombstone goes while a record still names its holder",
        Rule("graves::p_"),
        &[edit(RECORDS, "Some(Ok(record)) => !record.names(|named| named == holder),", "Some(Ok(_)) => true,")],
    ),
    Mutant::new(
        "rule p",
        "a tombstone goes when the first of its keys is clean",
        Rule("graves::p_a_tombstone_goes_with_the_last_key"),
        &[edit(
            "src/machine/tombstone.rs",
            "            grave.changed |= keys.len() < before",
            "            if keys.len() < before {
                keys.clear();
            }
            grave.changed |= keys.len() < before",
        )],
    ),
    Mutant::new(
        "rule o",
        "the tombstone is written before the guards are void",
        Rule("suspension::p_guards_are_void"),
        &[edit(
            LIFE,
            "        let keys = self.keys_in_store();\n",
            "        let keys = self.keys_in_store();
        self.emit(Output::Entomb(Tombstone { holder: self.me, keys: keys.clone() }));\n",
        )],
    ),
    Mutant::new(
        "rule p",
        "what the gone left counts",
        Rule("graves::p_"),
        &[edit(WORK, "if !matches!(action, Action::Inspect | Action::Fence { .. }) {", "if false {")],
    ),
    Mutant::new(
        "rule p",
        "a late request of somebody who is gone is granted",
        Rule("graves::p_the_gone_get_nothing"),
        &[edit(WORK, "            Action::Acquire(_) if self.graves.hold(self.holder) => Outcome::Superseded,\n", "")],
    ),
    Mutant::new(
        "rule o",
        "a suspended context sends something after its tombstone",
        Rule("suspension::p_guards_are_void"),
        &[edit(
            LIFE,
            "        for errand in &self.outbox.drain() {
            match (errand.turn, &errand.action) {",
            "        for errand in &self.outbox.take_unless(|action| matches!(action, Action::Release { .. })) {
            match (errand.turn, &errand.action) {",
        )],
    ),
    Mutant::new(
        "rule p",
        "a tombstone does not name what is in flight",
        Rule("suspension::p_a_tombstone_names"),
        &[
            edit("src/machine/outbox.rs", "        note(self.flying(), true);\n", ""),
            edit(
                "src/machine/outbox.rs",
                "            note(&flight.errands, true);\n",
                "            let _ = flight;\n",
            ),
        ],
    ),
    Mutant::new(
        "liveness",
        "whoever waits does not hear that somebody is gone",
        Scenario("suspension::p_several_waiters"),
        &[edit("src/machine/reply.rs", "            Body::Gone { holder } => self.ask_past(holder, now),\n", "")],
    ),
    Mutant::new(
        "browsers",
        "the alarm is left as a timer set it",
        Scenario("alarm::the_alarm_is_set_by"),
        &[edit("src/driver/pump.rs", "                    this.reset_alarm();\n", "")],
    ),
];
