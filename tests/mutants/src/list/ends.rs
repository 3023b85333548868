//! How a lease ends, a session, and a context.

use crate::{
    Mutant,
    Suite::{Histories, Rule, Scenario},
    edit,
};

const SESSION: &str = "src/machine/context/session.rs";
const BELIEF: &str = "src/machine/context/belief.rs";
const LIFE: &str = "src/machine/context/lifecycle.rs";
const REPLY: &str = "src/machine/context/reply.rs";
const RETRY: &str = "src/machine/context/retry.rs";
const REQUESTS: &str = "src/machine/context/retry/requests.rs";
const NEXT: &str = "src/machine/context/store_queue/next.rs";
const SENDING: &str = "src/machine/context/sending.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "mutant 10",
        "a loss is told, and a late heartbeat revives the guard",
        Histories("on_a_prompt_store"),
        &[edit(
            BELIEF,
            "self.outputs.push(Output::Event(Event::Suspect { turn: user.turn }));",
            "self.outputs.push(Output::Event(Event::Lost { turn: user.turn, reason: LostReason::Expired }));",
        )],
    ),
    Mutant::new(
        "mutant 11",
        "the first error ends the heartbeats, and nobody is told",
        Scenario("x9_transient_errors_lose_nothing"),
        &[edit(
            "src/machine/context/heartbeat.rs",
            "self.heartbeat.plan(now.plus(delay_ms));",
            "self.heartbeat.plan(now.plus(delay_ms << 40));",
        )],
    ),
    Mutant::new(
        "S1",
        "an opening of which nobody knows is repeated under its id",
        Rule("opening::s1_an_opening_of_which"),
        &[edit(
            RETRY,
            "            self.session.end_unsure(now);\n            self.leave_session(now);\n",
            "            self.leave_session(now);\n",
        )],
    ),
    Mutant::new(
        "S1",
        "the id of an opening of which nobody knows is not ended",
        Rule("opening::s1_the_earlier_id"),
        &[edit(SESSION, "= Some(now);\n        self.stale.push(self.id);\n", "= Some(now);\n")],
    ),
    Mutant::new(
        "S9",
        "guards outlive a suspension",
        Scenario("life::a_suspension_ends"),
        &[edit(LIFE, "            self.void(slot, reason);\n            if slot", "            if slot")],
    ),
    Mutant::new(
        "S9",
        "the row is deleted before the guards are void",
        Rule("suspension::s9_guards_are_void"),
        &[edit(
            LIFE,
            "        for slot in &self.cohorts.slots() {\n            self.refuse_unsure_thieves",
            "        self.emit(Command::Abandon(self.session.id()));
        for slot in &self.cohorts.slots() {
            self.refuse_unsure_thieves",
        )],
    ),
    Mutant::new(
        "S9",
        "what was not sent yet is sent after the delete",
        Rule("suspension::"),
        &[
            edit(LIFE, "        self.drop_unanswered(now);\n        match farewell", "        match farewell"),
            edit(
                LIFE,
                "            self.life = Life::Suspended;\n",
                "            self.life = Life::Suspended;\n            self.send_now(now);\n",
            ),
        ],
    ),
    Mutant::new(
        "S9",
        "a page that ends gives its lease up before its code has stopped",
        Scenario("ending::s9_who_ends_while"),
        &[edit(LIFE, "true => Farewell::Beacon,", "true => Farewell::by_store(abandons),")],
    ),
    Mutant::new(
        "S9",
        "a page that ends relies on a beacon that its row does not name",
        Rule("ending::s9_a_beacon_that"),
        &[edit(
            LIFE,
            "self.presence.beacon_stands() && self.session.has_shown_beacon();",
            "self.presence.beacon_stands();",
        )],
    ),
    Mutant::new(
        "S9",
        "the beacon of a page that goes on after its end stays",
        Rule("ending::s9_who_goes_on"),
        &[edit(LIFE, "so that the end of the beacon would end its session.\n        self.fall();\n", "\n")],
    ),
    Mutant::new(
        "S9",
        "a page that ends leaves its transactions open",
        Scenario("fence::the_end_of_a_page"),
        &[edit("src/driver/pump.rs", " | Input::Ending { .. }", "")],
    ),
    Mutant::new(
        "S9",
        "an answer to an earlier session counts",
        Rule("suspension::"),
        &[
            edit(BELIEF, "if transaction.session != self.session.id() {", "if false {"),
            edit(LIFE, "        self.drop_unanswered(now);\n        match farewell", "        match farewell"),
            edit(LIFE, "        self.drop_all(SUSPENDED, now);\n", ""),
        ],
    )
    .noting("two rules: an answer names its request, whose number never comes again"),
    Mutant::new(
        "S10",
        "an id is used again although its delete was sent",
        Rule("sessions::s10_"),
        &[edit(SENDING, "        if closes {\n", "        if closes && sent.transaction == 0 {\n")],
    ),
    Mutant::new(
        "S10",
        "all sessions of a context have one id",
        Rule("sessions::s10_"),
        &[edit(SESSION, "Self::new(id.next())", "Self::new(id)")],
    ),
    Mutant::new(
        "S10",
        "a session is closed although a request is to be sent",
        Rule("sessions::s10_"),
        &[edit(
            SENDING,
            "let closes = self.session.wants_close() && operations.iter().all(PendingOperation::is_done_by_session_end);",
            "let closes = self.session.wants_close();",
        )],
    ),
    Mutant::new(
        "S10",
        "a row that no transaction could delete is left to a lease of silence",
        Rule("sessions::s10_a_session_that_no_transaction"),
        &[edit(RETRY, "if !tries_again || self.life.is_suspended() {", "if false {")],
    ),
    Mutant::new(
        "S10",
        "a context that must close leaves its row to a lease of silence",
        Rule("sessions::s10_a_forced_close_abandons"),
        &[edit(LIFE, "            self.abandon(&unended);\n", "            _ = unended;\n")],
    ),
    Mutant::new(
        "S10",
        "the first part of what is divided closes the session",
        Scenario("row_limits::what_is_asked_for"),
        &[edit(SENDING, "if closes && is_last {", "if closes {")],
    ),
    Mutant::new(
        "etcd",
        "what goes along with a transaction that is divided is lost",
        Scenario("row_limits::what_goes_along"),
        &[edit(RETRY, "        self.last_writers.forget_later(&transaction.forgets);\n", "")],
    ),
    Mutant::new(
        "etcd",
        "keys are forgotten only where nothing else needs the room",
        Scenario("row_limits::records_are_forgotten"),
        &[edit(SENDING, ".max(room.beside(0) / 3)", "")],
    ),
    Mutant::new(
        "etcd",
        "an operation that a store refused for good is sent with keys to be forgotten",
        Rule("divided::what_a_store_refused"),
        &[edit(
            SENDING,
            "LoadKind::Apart | LoadKind::Heartbeat => 0,\n            LoadKind::Usual =>",
            "LoadKind::Heartbeat => 0,\n            LoadKind::Apart | LoadKind::Usual =>",
        )],
    ),
    Mutant::new(
        "etcd",
        "a session that was never opened is lost",
        Rule("divided::sessions_that_end"),
        &[edit(BELIEF, " && (transaction.opens || self.session.is_open()) {", " {")],
    ),
    Mutant::new(
        "etcd",
        "a heartbeat that is sent alone goes with keys to be forgotten",
        Rule("divided::a_heartbeat_that_is_sent_alone"),
        &[edit(
            SENDING,
            "LoadKind::Apart | LoadKind::Heartbeat => 0,\n            LoadKind::Usual =>",
            "LoadKind::Apart => 0,\n            LoadKind::Heartbeat | LoadKind::Usual =>",
        )],
    ),
    Mutant::new(
        "etcd",
        "a theft that was too large counts as tried",
        Rule("divided::a_theft_that_was_too_large"),
        &[edit(
            REPLY,
            "            transaction.operations.iter().for_each(|operation| self.cohorts.uncount_theft(operation));\n",
            "",
        )],
    ),
    Mutant::new(
        "rule o",
        "what a closing session released is released once more",
        Rule("divided::what_a_closing_session"),
        &[edit(RETRY, "partition(|operation| is_own || !operation.needs_this_session());", "partition(|_| true);")],
    ),
    Mutant::new(
        "etcd",
        "the largest transaction that a store takes never grows again",
        Rule("divided::what_a_store_takes"),
        &[edit("src/machine/context/store_queue/room.rs", "MOST.min(self.size + 1)", "MOST.min(self.size)")],
    ),
    Mutant::new(
        "etcd",
        "a transaction carries whatever waits",
        Scenario("row_limits::thousands_of_leases"),
        &[edit(
            "src/machine/context/store_queue/room.rs",
            "const MOST: usize = 1_024;",
            "const MOST: usize = 1_000_000;",
        )],
    ),
    Mutant::new(
        "etcd",
        "a suspension forgets the largest transaction that a store takes",
        Rule("divided::a_suspension"),
        &[edit("src/machine/context/store_queue.rs", "overdue, room: self.room, ..Self", "overdue, ..Self")],
    ),
    Mutant::new(
        "etcd",
        "a transaction that may have been applied is divided",
        Rule("divided::what_may_have_been"),
        &[edit(
            RETRY,
            "if error.applied == Applied::Unknown {\n            return false;",
            "if false {\n            return false;",
        )],
    ),
    Mutant::new(
        "rule o",
        "a request of an earlier session is sent beside the one that took its place",
        Rule("sessions::a_request_that_waited"),
        &[edit(
            NEXT,
            "let stays = (most == 0 && !goes_apart) || cohorts.still_want(operation);",
            "let stays = most > 0;",
        )],
    ),
    Mutant::new(
        "P6",
        "a heartbeat is sent again with what was too large",
        Rule("divided::a_heartbeat_that_went_along"),
        &[edit(SESSION, "        self.note_failure();\n        self.want_beat();\n", "        self.want_beat();\n")],
    ),
    Mutant::new(
        "P2",
        "a key that is remembered again is forgotten",
        Rule("divided::a_key_that_is_remembered"),
        &[edit(
            "src/machine/context/last_writer.rs",
            "if self.by_key.contains_key(&key) {\n                continue;",
            "if false {\n                continue;",
        )],
    ),
    Mutant::new(
        "P4",
        "a panic of a store leaves what was to be done, and the alarm, to an input that may never come",
        Scenario("faults::a_store_that_panics_once_stops"),
        &[edit(
            "src/driver/baton.rs",
            "let is_left = core.pumping.is_none() && !core.deeds.is_empty();",
            "let is_left = core.pumping.is_none() && core.deeds.is_empty();",
        )],
    ),
    Mutant::new(
        "liveness",
        "a request that is given up after its grant keeps the lease",
        Rule("unheard::a_request_that_is_given_up"),
        &[edit(
            "src/machine/context/acquire.rs",
            "            return self.release(turn, slot, now);\n        }\n        self.stop_if_unwanted",
            "            return;\n        }\n        self.stop_if_unwanted",
        )],
    ),
    Mutant::new(
        "liveness",
        "the timer is set in the runtime of the call only",
        Scenario("alarm::"),
        &[edit(
            "src/driver/alarm.rs",
            "elsewhere = self.executor.elsewhere();",
            "elsewhere = self.executor.elsewhere().filter(|_| false);",
        )],
    ),
    Mutant::new(
        "P7",
        "a store that answers at once is told another time than its caller's",
        Scenario("lease_ends::l12_the_lease"),
        &[edit("src/driver/pump.rs", "transact_at_once(&batch, now)", "transact_at_once(&batch, Now::default())")],
    ),
    Mutant::new(
        "browsers",
        "the alarm is left as a timer set it",
        Scenario("alarm::the_alarm_is_set_by"),
        &[edit("src/driver/flight.rs", "            self.driver.reset_alarm();\n", "")],
    ),
    Mutant::new(
        "S11",
        "what a store refuses for good is never given back",
        Rule("failing::a_release_that_fails"),
        &[edit(
            RETRY,
            "would keep the lease for ever.\n        self.retry(&again, now);",
            "would keep the lease for ever.\n        if error.retry {\n            self.retry(&again, now);\n        }",
        )],
    ),
    Mutant::new(
        "I11",
        "nobody waits out a silent store",
        Scenario("who_said_for_how_long"),
        &[edit(REQUESTS, "upgrades && self.keep_turns_with_limit(&operation.slot, &told)", "upgrades && false")],
    ),
    Mutant::new(
        "I11",
        "a store that refuses ends every wait",
        Scenario("who_said_for_how_long"),
        &[edit(REQUESTS, "if !error.may_pass() {", "if !error.is_slowness() {")],
    ),
    Mutant::new(
        "I11",
        "a look that is not answered ends the wait",
        Scenario("who_said_for_how_long"),
        &[edit(
            REQUESTS,
            "} else if self.keep_turns_with_limit(slot, &told) {",
            "} else if !error.retry && self.keep_turns_with_limit(slot, &told) {",
        )],
    ),
    Mutant::new(
        "I11",
        "a waiter that was frozen blames the store without asking it again",
        Scenario("a_waiter_that_was_frozen"),
        &[edit(REQUESTS, "(self.has_hardly_asked() || now.since", "(false || now.since")],
    ),
    Mutant::new(
        "I11",
        "a look that fails at one key takes a request for several keys along",
        Rule("busy_store::a_request_for_several_keys_fails_at_all"),
        &[edit(REQUESTS, "&|_, cohort| cohort.waits()", "&|_, _| true")],
    ),
    Mutant::new(
        "I11",
        "whoever waits behind a guard of its own fails by a freeze",
        Scenario("survives_a_freeze"),
        &[edit("src/machine/context/heartbeat.rs", "if !self.has_hardly_asked() {", "if true {")],
    ),
    Mutant::new(
        "I11",
        "whoever waits behind a guard of its own waits for a silent store for ever",
        Rule("busy_store::whoever_waits_behind"),
        &[edit("src/machine/context/heartbeat.rs", "if !self.has_hardly_asked() {", "if false {")],
    ),
    Mutant::new(
        "I11",
        "errors from before a freeze count after it",
        Rule("busy_store::errors_from_before"),
        &[edit(
            BELIEF,
            "self.failures_since_doubt.get_or_insert_default();",
            "self.failures_since_doubt.get_or_insert(u32::MAX - 1);",
        )],
    ),
    Mutant::new(
        "I11",
        "one error after a lost connection ends a wait",
        Rule("busy_store::one_error_after"),
        &[edit(BELIEF, "self.failures_since_doubt.get_or_insert_default();", "")],
    ),
    Mutant::new(
        "I11",
        "each late timer begins a new count of errors",
        Rule("busy_store::whoever_waits_where"),
        &[edit(BELIEF, "self.failures_since_doubt.get_or_insert_default();", "self.failures_since_doubt = Some(0);")],
    ),
    Mutant::new(
        "I11",
        "whoever says that the session has ended excuses errors of the store",
        Rule("busy_store::whoever_is_told_of_its_end"),
        &[edit(REPLY, "holder == me => self.disbelieve(now)", "holder == me => self.doubt(now)")],
    ),
    Mutant::new(
        "I11",
        "a time-out blames a failure of long ago",
        Scenario("an_old_failure"),
        &[edit("src/driver/registry/noting.rs", "*at >= then && ", "")],
    ),
    Mutant::new(
        "S10",
        "a context that closes rests before it has told of the grant",
        Rule("presence::s10_a_context_that_closes"),
        &[edit(BELIEF, "self.rest_after(transaction);", "self.rest();")],
    ),
    Mutant::new(
        "S10",
        "a context whose session has ended rests before it has told of the grant",
        Rule("presence::s10_a_context_whose_session_has_ended"),
        &[edit(
            BELIEF,
            "        self.end_session_by(transaction, now);\n        self.lose_all(",
            "        self.session.end();\n        self.leave_session(now);\n        self.lose_all(",
        )],
    ),
    Mutant::new(
        "S11",
        "what a store refused once waits until nothing else is to be sent",
        Rule("overtaken::a_release_that_was_refused"),
        &[edit(
            NEXT,
            "first.is_some() && (pending.is_empty() || !self.went_alone);",
            "first.is_some() && pending.is_empty();",
        )],
    ),
    Mutant::new(
        "I14",
        "a request for several keys that goes apart overtakes what its context gives back",
        Rule("given_back::a_try_for_several_keys_of_which"),
        &[edit(
            "src/machine/context/store_queue/apart.rs",
            "operation.all.is_empty() || !operation.keys().any(returned)",
            "operation.all.is_empty() || operation.keys().count() > 0",
        )],
    ),
    Mutant::new(
        "S1",
        "an earlier session is forgotten because a key stays locked",
        Rule("given_back::an_earlier_session_is_not_forgotten"),
        &[edit(
            RETRY,
            "if is_locked && !transaction.operations.is_empty() {",
            "if is_locked && transaction.operations.is_empty() {",
        )],
    ),
    Mutant::new(
        "P3",
        "a theft that was told to have failed goes on",
        Rule("failing::a_theft_that_was_told"),
        &[edit(REQUESTS, "            cohort.rob_no_more();\n", "")],
    ),
    Mutant::new(
        "rule 6",
        "who asks anew was never asked before",
        Rule("overtaken::"),
        &[edit(
            REQUESTS,
            "error.applied == Applied::No && !seeking.retried && !seeking.queued;",
            "error.applied == Applied::No && operation.attempts == 0 && !seeking.queued;",
        )],
    ),
    Mutant::new(
        "I8",
        "who waits for tokens that never come is not told",
        Rule("failing::who_waits_for_tokens"),
        &[edit(RETRY, "self.refill_failed(&operation.slot, error, now);", "")],
    ),
    Mutant::new(
        "S3",
        "whom a session saw standing still is forgotten with it",
        Rule("failing::s3_"),
        &[edit(SESSION, "doubted, peers, was_wiped, ..next", "doubted, was_wiped, ..next")],
    ),
    Mutant::new(
        "principle 5",
        "who is in the way of an upgrade is not watched",
        Rule("failing::an_upgrade"),
        &[edit("src/machine/context/upgrade.rs", "                self.observe(slot, ahead, now);\n", "")],
    ),
];
