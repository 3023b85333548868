//! What proves that somebody else is dead: silence, and beacons.

use crate::{
    Mutant,
    Suite::{Histories, Rule, Scenario},
    edit,
};

const DETECTOR: &str = "src/machine/context/detector.rs";
const WATCHES: &str = "src/machine/context/watches.rs";
const RESTARTS: &str =
    "if watch.id == 0 || watch.beat != neighbour.beat {\n                watch.beat = neighbour.beat;";
const REPLY: &str = "src/machine/context/reply.rs";
const PRESENCE: &str = "src/machine/context/presence.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "mutant 4",
        "an onlooker counts from before its read (S4)",
        Scenario("a_silent_holder_is_watched_from_after"),
        &[
            edit(
                REPLY,
                "self.queued(slot, *last_token, *position, ahead, now),",
                "self.queued(slot, *last_token, *position, ahead, sent.at),",
            ),
            edit(
                REPLY,
                "Action::Look => self.looked(&slot.key, outcome, now),",
                "Action::Look => self.looked(&slot.key, outcome, sent.at),",
            ),
        ],
    ),
    Mutant::new(
        "S4",
        "who opens counts the silence of the others from before its read",
        Rule("sessions::s3_peers"),
        &[edit(
            "src/machine/context/belief.rs",
            "opened(&reply.peers, now)",
            "opened(&reply.peers, transaction.sent.at)",
        )],
    ),
    Mutant::new(
        "S4",
        "an onlooker waits a shorter lease than the recorded one",
        Histories("on_a_prompt_store"),
        &[edit(
            DETECTOR,
            "self.since.plus(silence_ms(self.lease_ms))",
            "self.since.plus(silence_ms(self.lease_ms.min(5_000)))",
        )],
    ),
    Mutant::new(
        "S4",
        "a new beat does not start the wait anew",
        Rule("protocol::s4_silence"),
        &[edit(
            DETECTOR,
            "Some(known) if known.beat == beat => {",
            "Some(known) => {\n                known.beat = beat;",
        )],
    ),
    Mutant::new(
        "S4",
        "a new beat does not restart the watch of its beacon",
        Rule("protocol::s4_a_beacons"),
        &[edit(WATCHES, RESTARTS, "if watch.id == 0 {\n                watch.beat = neighbour.beat;")],
    )
    .noting("harmless alone: an end names the beat that was read before"),
    Mutant::new(
        "S4",
        "absence condemns what was read after it was seen",
        Rule("protocol::s4_a_beacons"),
        &[edit(WATCHES, RESTARTS, "watch.beat = neighbour.beat;\n            if watch.id == 0 {")],
    ),
    Mutant::new(
        "S4",
        "a beacon is watched that did not stand",
        Rule("protocol::s4_no_beacon"),
        &[edit(WATCHES, "if neighbour.beacon && neighbour.session != own {", "if neighbour.session != own {")],
    ),
    Mutant::new(
        "S4",
        "the row names a beacon that does not stand",
        Rule("presence::s4_"),
        &[edit(PRESENCE, "        self.state == State::Standing\n", "        self.state != State::Resting\n")],
    ),
    Mutant::new(
        "S10",
        "a context rests while something is held or awaited",
        Rule("sessions::s10_"),
        &[edit(
            PRESENCE,
            "(true, _) => self.presence.rest_at = None,",
            "(true, _) => _ = self.presence.rest_at.get_or_insert_with(|| now.plus(IDLE_LIMIT_MS)),",
        )],
    ),
    Mutant::new(
        "liveness",
        "whoever waits does not hear that somebody is gone",
        Scenario("suspension::p_several_waiters"),
        &[edit(REPLY, "                    self.look_past(&[holder], now);\n", "")],
    ),
    Mutant::new(
        "S14",
        "an answer from before a session left is the last word about it",
        Scenario("suspension::p_whoever_asks_while"),
        &[edit(REPLY, "        self.look_past(&transaction.gone, now);\n", "")],
    ),
    Mutant::new(
        "liveness",
        "a context that crashed in a simulation leaves its queues in good order",
        Scenario("takeover::a_waiter_that_crashed"),
        &[edit("src/driver/alarm.rs", "            && !driver.executor.has_crashed()\n", "")],
    ),
    Mutant::new(
        "P6",
        "a reader that waits for its own context's lease watches no beacon before the next heartbeat",
        Scenario("probing::a_reader_is_granted_as_soon"),
        &[edit(
            "src/machine/context/hold.rs",
            "            self.look_at_each(slice::from_ref(slot), now);",
            "            self.ask_whether_current(slot, None, now);",
        )],
    ),
    Mutant::new(
        "rule 5",
        "a reader's try ends no session that has been silent for long enough",
        Scenario("probing::tries_of_a_reader"),
        &[edit(
            "src/machine/context/hold.rs",
            "            self.end_silent(slot, now);\n            self.look_at_each",
            "            self.look_at_each",
        )],
    ),
    Mutant::new(
        "rule 5",
        "a reader's try remembers nothing of the writer that it waits for",
        Scenario("probing::tries_of_a_reader"),
        &[edit("src/machine/context/looks.rs", "cohort.waits() || cohort.seeking().is_none()", "cohort.waits()")],
    ),
];
