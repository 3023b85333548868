//! Requests, what is left of them, and signals.

use crate::{
    Edit, Mutant,
    Suite::{Histories, Model, Rule, Scenario},
    edit,
};

const ROOM: &str = "src/machine/context/store_queue/room.rs";
const REPLY: &str = "src/machine/context/reply.rs";
const SESSION: &str = "src/machine/context/session.rs";
/// A failed attempt is sent again unchanged, even behind a newer attempt of its request.
const AGAIN_AS_IT_WAS: &[Edit] = &[
    edit("src/machine/context/cohorts/operations.rs", "self.renew_ask(&operation.slot, ask);", ""),
    edit(
        "src/machine/context/retry/requests.rs",
        "if !self.store_queue.will_send_for(&operation.slot.key, is_ask_for(request)) {",
        "{",
    ),
];

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "mutant 9",
        "all requests have one number",
        Histories("on_a_prompt_store"),
        &[edit(
            "src/machine/context/mod.rs",
            "self.last_request = self.last_request.next();",
            "self.last_request = RequestId(1);",
        )],
    ),
    Mutant::new(
        "S12",
        "an old signal is believed",
        Rule("protocol::"),
        &[edit(REPLY, "let is_old = seeking.queued && block.first <= seeking.last_token;", "let is_old = false;")],
    ),
    Mutant::new(
        "S11",
        "a signalled grant that nobody wants any more stays",
        Rule("protocol::s11_"),
        &[edit(REPLY, "return self.end_stray(&slot, request, Some(block.first), now);", "return drop(slot);")],
    ),
    Mutant::new(
        "S11",
        "a grant of one's own that nobody knows stays",
        Rule("protocol::s11_"),
        &[edit(
            "src/machine/context/detector.rs",
            "if !self.knows_grant(&slot.key, token) && !self.knows(&slot.key, request) {",
            "if slot.own.is_some() && slot.own.is_none() {",
        )],
    ),
    Mutant::new(
        "S11",
        "after a loss the request is not withdrawn",
        Rule("protocol::s11_after"),
        &[edit(
            "src/machine/context/hold.rs",
            "            self.withdraw_request(slot, held.request, now);\n            self.withdraw_upgrade",
            "            self.withdraw_upgrade",
        )],
    ),
    Mutant::new(
        "S11",
        "what is asked for by an opening under way is not withdrawn",
        Rule("opening::s11_"),
        &[edit(
            "src/machine/context/acquire.rs",
            "if !self.session.is_open() && !self.store_queue.opens() {",
            "if !self.session.is_open() {",
        )],
    ),
    Mutant::new(
        "S11",
        "the floor is never raised",
        Rule("sessions::s11_the_floor"),
        &[edit(
            SESSION,
            "let floor = if self.unanswered.is_some() { sent.transaction } else { 0 };",
            "let floor = 0;",
        )],
    ),
    Mutant::new(
        "S11",
        "an attempt has no number",
        Rule("sessions::s11_every"),
        &[edit("src/machine/context/cohorts/operations.rs", "        ask.attempt = sent.transaction;\n", "")],
    ),
    Mutant::new(
        "S12",
        "a signal for another session is taken",
        Rule("protocol::s12_"),
        &[edit(
            REPLY,
            "Body::Granted { holder, request, block, previous, contended } if holder == me => {",
            "Body::Granted { request, block, previous, contended, .. } => {",
        )],
    ),
    Mutant::new(
        "S12",
        "a signal for another request is taken",
        Rule("protocol::s12_"),
        &[edit(
            REPLY,
            "        let Some(slot) = self.cohorts.slot_of(key, request) else {",
            "        let foremost = self.cohorts.pick(Some(key), &|_, cohort| cohort.waits()).into_iter().next();
        let request = foremost.as_ref().and_then(|slot| Some(self.cohorts.get(slot)?.seeking()?.request)).unwrap_or(request);
        let Some(slot) = foremost.or_else(|| self.cohorts.slot_of(key, request)) else {",
        )],
    ),
    Mutant::new(
        "P1",
        "an attempt that failed goes again as it was, behind a newer one of its request",
        Scenario("stale::"),
        AGAIN_AS_IT_WAS,
    ),
    Mutant::new("P1", "an upgrade that was given up is asked for again", Model("upgrades"), AGAIN_AS_IT_WAS),
    Mutant::new("P1", "a theft that was given up is tried again", Model("thefts"), AGAIN_AS_IT_WAS),
    Mutant::new("P4", "a priority that was given up is asked for again", Model("ranks"), AGAIN_AS_IT_WAS),
    Mutant::new(
        "I8",
        "a release that the store refuses is forgotten",
        Model("places"),
        &[edit(
            "src/machine/context/retry.rs",
            "would keep the lease for ever.\n        self.retry(&again, now);",
            "would keep the lease for ever.\n        _ = again;",
        )],
    ),
    Mutant::new(
        "I8",
        "a try that somebody joined is forgotten with its place",
        Model("places"),
        &[edit("src/machine/context/busy.rs", "if seeking.retried || seeking.wait {", "if seeking.retried {")],
    ),
    Mutant::new(
        "P4",
        "an urgent try leaves its priority to those who keep waiting",
        Model("ranks"),
        &[edit(
            "src/machine/context/busy.rs",
            "        self.stop_if_unwanted(slot, now);\n        self.want_less(slot, now);",
            "        self.stop_if_unwanted(slot, now);",
        )],
    ),
    Mutant::new(
        "I8",
        "a try that somebody joined is forgotten, although its place may be in the store",
        Scenario("stale::a_try_that_somebody_joined"),
        &[edit("src/machine/context/busy.rs", "if seeking.retried || seeking.wait {", "if seeking.retried {")],
    ),
    Mutant::new(
        "I6",
        "a late signal of a grant that is being given back gives it back once more",
        Rule("unheard::a_signal_that_comes_during"),
        &[edit(REPLY, "if self.store_queue.releases(&slot.key, token, request)", "if false")],
    ),
    Mutant::new(
        "I6",
        "a late signal turns a release that the store refuses once into a loss",
        Model("places"),
        &[edit(REPLY, "if self.store_queue.releases(&slot.key, token, request)", "if false")],
    ),
    Mutant::new(
        "S9",
        "an upgrade is refused although the rival's session is just being ended",
        Scenario("stale::an_upgrade_over_a_slow_store"),
        &[edit("src/machine/context/busy.rs", "self.store_queue.is_ending(slot, ATTEMPTS) || self", "self")],
    ),
    Mutant::new(
        "S8",
        "a waiter that was robbed before it heard of its grant does not ask again",
        Scenario("stale::a_waiter_that_was_robbed_unheard"),
        &[edit(
            REPLY,
            "it will report the theft.\n            return self.ask(&slot, now);",
            "it will report the theft.\n            return;",
        )],
    ),
    Mutant::new(
        "S8",
        "a thief that was robbed before it heard of its theft steals again",
        Scenario("stale::a_thief_that_was_robbed_unheard"),
        &[edit("src/machine/context/hold.rs", "return self.stolen_unheard(slot, now);", "return self.seek(slot, now);")],
    ),
    Mutant::new(
        "P5",
        "readers of one context wait for a writer that has given up",
        Scenario("modes::readers_of_one_context"),
        &[edit("src/machine/context/acquire.rs", "                self.ask_who_queues(&slot, now);\n", "")],
    ),
    Mutant::new(
        "P5",
        "no heartbeat asks whether the writer that readers of this context wait for has given up",
        Scenario("modes::a_reader_that_waits"),
        &[edit("src/machine/context/looks.rs", "        self.ask_about(&sharers, now);\n", "")],
    ),
    Mutant::new(
        "X8",
        "an earlier incarnation of the instance that has released the key is in the way",
        Scenario("identity::a_twin_that_gives_the_key_back"),
        &[edit(
            "src/machine/context/busy.rs",
            "TwinLife::Alive => self.ask(slot, now),",
            "TwinLife::Alive => self.refuse_twin(slot, now),",
        )],
    ),
    Mutant::new(
        "S9",
        "a reader's try believes that a writer that queues is alive, because the readers are",
        Scenario("probing::a_dead_writer_in_the_queue"),
        &[edit(
            "src/machine/context/busy.rs",
            "Some(seen) if slot.mode == Mode::Shared && matches!(seen.entry, Entry::Waiter(_)) => {",
            "Some(seen) if slot.mode == Mode::Shared && seen.beat == u64::MAX => {",
        )],
    ),
    Mutant::new(
        "S4",
        "a reader that waits for its own context's lease never judges a writer that queues",
        Scenario("probing::a_reader_waits_no_longer"),
        &[edit(
            "src/machine/context/looks.rs",
            "                self.observe(slot, ahead, now);\n                continue;",
            "                continue;",
        )],
    ),
    Mutant::new(
        "P4",
        "a try leaves its priority to those who wait on",
        Scenario("stale::a_try_lends"),
        &[edit(
            "src/machine/context/busy.rs",
            "        self.stop_if_unwanted(slot, now);\n        self.want_less(slot, now);",
            "        self.stop_if_unwanted(slot, now);",
        )],
    ),
    Mutant::new(
        "P6",
        "what needs a locked key goes together with later requests",
        Scenario("locked::turns::a_key_that_stays_locked"),
        &[edit("src/machine/context/retry.rs", "rest.iter_mut().for_each(|operation| operation.keep_to(Company::SameKey));", "")],
    ),
    Mutant::new(
        "P6",
        "a later request for a locked key goes together with all others",
        Scenario("locked::turns::a_key_that_stays_locked"),
        &[edit(
            "src/machine/context/store_queue/apart.rs",
            "take(pending, &|operation| operation.goes_apart(&locked))",
            "take(pending, &|operation| operation.holds_up())",
        )],
    ),
    Mutant::new(
        "rule e",
        "a request for several keys that was given up is not withdrawn",
        Rule("leftovers::a_request_for_several"),
        &[edit(
            "src/machine/context/retry/requests.rs",
            "            self.withdraw_request(slot, ask.request, now);\n",
            "            let _ = ask;\n",
        )],
    ),
    Mutant::new(
        "rule e",
        "after a failover, the lease that was upgraded stays, because only the upgraded one is withdrawn",
        Rule("leftovers::an_upgrade_that"),
        &[edit(
            "src/machine/context/hold.rs",
            "            self.withdraw_request(slot, request, now);\n        }\n    }\n\n    /// Drops the unsent questions",
            "        }\n    }\n\n    /// Drops the unsent questions",
        )],
    ),
    Mutant::new(
        "rule e",
        "after a failover, the lease that was upgraded stays if the upgraded one was released before",
        Rule("leftovers::an_upgrade_and"),
        &[edit("src/machine/context/hold.rs", "            self.note_release(&slot.key, request);\n", "")],
    ),
    Mutant::new(
        "rule k",
        "a thief whose task is late robs the later thief",
        Scenario("stale::a_thief_whose_lease_was_stolen_before"),
        &[edit("src/client/request.rs", "told if wish.steal =>", "told if false && wish.steal =>")],
    ),
    Mutant::new(
        "rule k",
        "a manager that steals again what it has stolen and released takes itself for robbed",
        Scenario("stale::a_manager_steals_again"),
        // Either place is enough for a thief that comes after a release.
        &[
            edit(
                "src/machine/context/passing.rs",
                "(self.lingers_until, self.stolen) = (None, false);",
                "self.lingers_until = None;",
            ),
            edit("src/machine/context/cohort.rs", "            held.stolen = false;\n", "            let _ = held;\n"),
        ],
    ),
    Mutant::new(
        "S11",
        "a withdrawal that is sent separately leaves the floor where it is",
        Rule("overtaken::an_attempt_that_arrives_after"),
        &[edit(
            "src/machine/context/sending.rs",
            "            && !self.session.has_unanswered()\n",
            "",
        )],
    ),
    Mutant::new(
        "S15",
        "a late answer withdraws a lease on its way to another guard",
        Rule("overtaken::a_lease_on_its_way"),
        &[edit(REPLY, "            None if self.detaches(&slot.key, request) => {}\n", "")],
    ),
    Mutant::new(
        "I11",
        "of a request whose first attempt may have been applied, only the last attempt counts",
        Rule("failing::a_request_whose_first_attempt"),
        &[edit(
            "src/machine/context/cohorts/operations.rs",
            "seeking.may_be_applied = true;",
            "seeking.may_be_applied = false;",
        )],
    ),
    Mutant::new(
        "S11",
        "a request that asks anew in another session forgets its place in the queue of the one before",
        Scenario("attempts::an_error_does_not_deny_the_place_of_a_waiter_whose"),
        &[edit(
            "src/machine/context/cohort.rs",
            "Stage::Seeking(before) => before.queued || before.may_be_applied,",
            "Stage::Seeking(before) => before.may_be_applied,",
        )],
    ),
    Mutant::new(
        "liveness",
        "each release that was refused for good waits for a time of its own",
        Scenario("refused::releases_that_were_refused_for_good"),
        &[edit(REPLY, "            self.store_queue.retry_next();\n", "")],
    ),
    Mutant::new(
        "liveness",
        "what failed for a moment is tried again after each release that was refused for good",
        Scenario("refused::what_was_refused_for_good_uses_up"),
        &[edit(
            "src/machine/context/store_queue/apart.rs",
            "self.waiting.push(self.later.remove(at));",
            "self.waiting.push(self.later.remove(at));
            let others = take(&mut self.later, &|operation| !operation.is_refused());
            self.waiting.extend(others);",
        )],
    ),
    Mutant::new(
        "liveness",
        "each request is refused by itself where the store refuses everything",
        Scenario("refused::a_store_that_refuses_everything"),
        &[edit(ROOM, "const SURE: u8 = 8;", "const SURE: u8 = 255;")],
    ),
    Mutant::new(
        "liveness",
        "heartbeats that are accepted do not count against a store that refuses everything",
        Scenario("refused::refusals_that_are_far_apart"),
        &[edit(ROOM, "        self.blamed = 0;\n        if load > 0", "        if load > 0")],
    ),
    Mutant::new(
        "cost",
        "a transaction stays small after one of its operations was refused for good",
        Scenario("refused::what_was_refused_for_good_makes"),
        &[edit(ROOM, "MOST.min(self.search * 2)", "MOST.min(self.search)")],
    ),
    Mutant::new(
        "S11",
        "an operation that is refused for good fails all others of its transaction",
        Scenario("refused::a_request_that_is_refused_for_good"),
        &[edit(
            "src/machine/failure.rs",
            "self.kind == StoreErrorKind::TooLarge || (KEYS_MAY_BE_LOCKED && !self.retry)",
            "self.kind == StoreErrorKind::TooLarge",
        )],
    ),
    Mutant::new(
        "S11",
        "an operation that is refused for good costs the session the heartbeat that went with it",
        Scenario("refused::a_release_that_is_refused_for_good_costs"),
        &[edit(
            "src/machine/context/retry.rs",
            "let blames_others = !error.retry || matches!(",
            "let blames_others = matches!(",
        )],
    ),
    Mutant::new(
        "rule e",
        "each replaced connection has the latest releases repeated once more, although they were not sent yet",
        Rule("leftovers::releases"),
        &[edit("src/machine/context/released.rs", "if !self.store_queue", "if true || !self.store_queue")],
    ),
    Mutant::new(
        "I11",
        "a dead writer is ended after the query whether anybody queues",
        Rule("busy_store::a_reader"),
        &[edit(
            "src/machine/context/store_queue.rs",
            "        self.put_first(ends);\n",
            "        self.waiting.extend::<Vec<_>>(ends);\n",
        )],
    ),
    Mutant::new(
        "I11",
        "a try for several keys is refused although only one of two idle holders has given its key back so far",
        Rule("soon::a_try_for_several_keys_waits"),
        &[edit(
            "src/machine/context/busy.rs",
            "until.filter(|until| unused && now < *until)",
            "until.filter(|_| unused && operation.second_look == SecondLook::Ahead)",
        )],
    ),
    Mutant::new(
        "I11",
        "a try for several keys looks again for as long as one of them is given back",
        Rule("soon::a_try_for_several_keys_ends"),
        &[edit(
            "src/machine/context/busy.rs",
            "until.filter(|until| unused && now < *until)",
            "until.filter(|_| unused)",
        )],
    ),
    Mutant::new(
        "P5",
        "readers that waited for a writer of their context wait for the next heartbeat when it has given up",
        Rule("soon::a_reader_is_granted"),
        &[edit(
            "src/machine/context/acquire.rs",
            "            self.ask_again_who_queues(&Slot { key: slot.key.clone(), mode: Mode::Shared, own: None }, now);\n",
            "",
        )],
    ),
    Mutant::new(
        "P5",
        "a query that was sent before a writer gave up tells whether the writer still queues",
        Rule("soon::a_reader_is_granted_even_if_the_writer"),
        &[edit("src/machine/context/acquire.rs", "self.ask_again_who_queues(&Slot", "self.ask_who_queues(&Slot")],
    ),
    Mutant::new(
        "P5",
        "readers that wait for an upgrade of their context wait for the next heartbeat after it is given up",
        Rule("soon::a_reader_is_granted_as_soon_as_an_upgrade"),
        &[edit(
            "src/machine/context/upgrade.rs",
            "        self.ask_again_who_queues(slot, now);\n        self.hand_out(slot, now);",
            "        self.hand_out(slot, now);",
        )],
    ),
    Mutant::new(
        "I11",
        "a try for several keys that looked again waits out a lease over a busy store",
        Rule("soon::a_try_for_several_keys_that_looked_again"),
        &[edit(
            "src/machine/context/retry/requests.rs",
            "operation.second_look == SecondLook::Skipped && error",
            "operation.second_look != SecondLook::Ahead && error",
        )],
    ),
    Mutant::new(
        "S8",
        "a thief that joined the request of an earlier one waits until that one has released the lease",
        Scenario("stale::the_last_of_several_thefts"),
        &[edit("src/machine/context/passing.rs", "if turn.steal && !held.users.is_empty() {", "if false {")],
    ),
];
