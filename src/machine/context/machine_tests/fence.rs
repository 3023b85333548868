//! Fences in transactions of the user's: what they must find, and what a renewal in one counts for.

use alloc::vec::Vec;

use super::{BELIEF_MS, LEASE_MS, ME, OTHER, STORE, Script, current, granted, named, said};
use crate::machine::{
    Acquire, Action, Batch, Beat, Body, Config, Event, FenceRefusal, Input, Key, LostReason, Machine, Mode, Operation,
    Options, Outcome, Output, Records, Reply, RequestId, SessionId, SessionStep, Slot, StoreClock, StoreError,
    StoreErrorKind, StoreId, StoreNow, Ticket, Token, Turn, TurnId, Way,
};

impl Script {
    fn ticket(&mut self, turn: u64, renew: bool) -> Option<Ticket> {
        let (slot, now) = (self.slot(), self.now());
        let ticket = self.machine.ticket(TurnId(turn), &slot, renew, now);
        // As its driver does.
        self.input(Input::Tick);
        ticket
    }

    fn judge(&self, turn: u64, ticket: &Ticket, store: StoreId, outcome: Outcome) -> Result<(), FenceRefusal> {
        let found = (Some(store), &said([outcome]));
        self.machine.judge_fence(TurnId(turn), &self.slot(), ticket, found, self.now())
    }

    /// The transaction was committed, and wrote the heartbeat that it carried.
    fn fenced(&mut self, ticket: Ticket) -> Vec<Output> {
        self.found(ticket, said([current()]))
    }

    fn found(&mut self, ticket: Ticket, reply: Reply) -> Vec<Output> {
        let slot = self.slot();
        self.input(Input::Fenced { slot, ticket: ticket.into(), reply }).to_vec()
    }

    fn is_lost(&self) -> bool {
        super::is_lost(&self.outputs)
    }
}

#[test]
fn s_a_ticket_names_store_holder_first_token_and_request() {
    let mut script = Script::holding();
    let ticket = script.ticket(1, false).unwrap();
    let [Operation { key, action }] = &ticket.batch.operations[..] else { panic!("{ticket:?}") };
    assert_eq!((key, ticket.batch.session), (&script.key, ME));
    assert_eq!(ticket.batch.step, SessionStep::Stay, "no row of a session is read");
    assert_eq!(
        *action,
        Action::Fence { token: Token(64), request: RequestId(1), upgrade: None, mode: Mode::Exclusive }
    );
    assert_eq!(script.judge(1, &ticket, STORE, current()), Ok(()));
    assert_eq!(script.judge(1, &ticket, StoreId(10), current()), Err(FenceRefusal::Lost(LostReason::StoreCleared)));
    for (last_token, stolen, reason) in
        [(63, false, LostReason::StoreCleared), (200, true, LostReason::Stolen), (200, false, LostReason::Evicted)]
    {
        let outcome = Outcome::NotCurrent { last_token: Token(last_token), stolen };
        assert_eq!(script.judge(1, &ticket, STORE, outcome), Err(FenceRefusal::Lost(reason)));
    }
    script.now_ms += LEASE_MS;
    let outcome = Outcome::NotCurrent { last_token: Token(200), stolen: false };
    assert_eq!(script.judge(1, &ticket, STORE, outcome), Err(FenceRefusal::Lost(LostReason::Expired)));
    assert_eq!(script.judge(1, &ticket, STORE, current()), Ok(()), "it ran out, and nobody took it");
}

/// The record says the same of all guards of one grant.
#[test]
fn s_a_guard_that_was_given_back_or_handed_on_has_no_ticket_and_its_old_one_is_void() {
    let mut script = Script::holding();
    script.acquire(2, true);
    let ticket = script.ticket(1, false).unwrap();
    let slot = script.slot();
    script.input(Input::Release { turn: TurnId(1), slot });
    assert!(
        script.outputs.iter().any(|output| matches!(output, Output::Event(Event::Granted { turn: TurnId(2), .. })))
    );
    assert_eq!(script.ticket(1, false), None);
    assert!(script.judge(1, &ticket, STORE, current()).is_err());
    let next = script.ticket(2, false).unwrap();
    assert_eq!(next.batch, ticket.batch, "one grant");
    assert_eq!(script.judge(2, &next, STORE, current()), Ok(()));
}

#[test]
fn k_a_lost_guard_has_no_ticket_and_no_commit_revives_it() {
    let mut script = Script::holding();
    let ticket = script.ticket(1, true).unwrap();
    script.signal(Body::Stolen { holder: ME, token: Token(64) });
    assert!(script.is_lost());
    assert_eq!(script.ticket(1, false), None);
    assert!(script.judge(1, &ticket, STORE, current()).is_err());
    script.fenced(ticket);
    assert_eq!(script.remaining_ms(1), 0);
}

#[test]
fn j_a_renewal_counts_from_before_it_was_asked_for_and_only_once_it_is_committed() {
    let mut script = Script::holding();
    script.now_ms += 2_000;
    let ticket = script.ticket(1, true).unwrap();
    assert_eq!(script.remaining_ms(1), 16_000, "nothing is known of it yet");
    script.now_ms += 1_000;
    script.fenced(ticket);
    assert_eq!(script.remaining_ms(1), 17_000);
    // Judged, and not committed.
    script.now_ms += 1_000;
    let ticket = script.ticket(1, true).unwrap();
    script.found(ticket, Reply { robbed: None, ..said([current()]) });
    assert_eq!(script.remaining_ms(1), 16_000);
}

/// Otherwise whoever extends a lease would be answered without a heartbeat.
#[test]
fn a_heartbeat_that_is_wanted_is_sent_although_a_fence_carries_one_which_may_never_be_committed() {
    let mut script = Script::holding();
    let slot = script.slot();
    script.input(Input::Verify { query: TurnId(7), turn: TurnId(1), slot: slot.clone(), span_ms: 0 });
    let (under_way, _) = script.sent();
    script.input(Input::Verify { query: TurnId(8), turn: TurnId(1), slot, span_ms: 60_000 });
    drop(script.ticket(1, true).unwrap());
    script.reply(under_way, [current()]);
    assert_eq!(script.beat().lease_ms, 66_667);
}

#[test]
fn a_renewal_that_was_sent_before_a_doubt_does_not_dispel_it_and_one_that_was_sent_after_it_does() {
    let mut script = Script::holding();
    let before = script.ticket(1, true).unwrap();
    script.signal(Body::Ended { holder: ME });
    assert_eq!(script.remaining_ms(1), 0);
    script.fenced(before);
    assert_eq!(script.remaining_ms(1), 0);
    let after = script.ticket(1, true).unwrap();
    let outputs = script.fenced(after);
    assert!(outputs.contains(&Output::Event(Event::Certain { turn: TurnId(1) })));
    assert_eq!(script.remaining_ms(1), 18_000);
}

#[test]
fn what_a_fence_found_is_asked_of_the_store_before_it_is_a_loss() {
    let mut script = Script::holding();
    let ticket = script.ticket(1, false).unwrap();
    let gone = Outcome::NotCurrent { last_token: Token(200), stolen: false };
    script.found(ticket, said([gone.clone()]));
    assert!(!script.is_lost());
    assert_eq!(script.remaining_ms(1), 0);
    script.answer([gone]);
    assert!(script.is_lost());
}

/// Whoever writes often and renews with it sends nothing else.
#[test]
fn a_busy_writer_sends_no_heartbeats() {
    let mut script = Script::holding();
    for _ in 0..100 {
        let ticket = script.ticket(1, true).unwrap();
        assert!(!script.is_sent());
        script.now_ms += 50;
        script.fenced(ticket);
        assert!(!script.is_sent());
        script.tick(1_000);
        assert!(!script.is_sent(), "a heartbeat");
    }
    assert!(script.remaining_ms(1) > 16_000);
    // It stops, and the heartbeat is back.
    script.tick(5_000);
    assert!(script.is_sent());
}

/// One heartbeat serves all keys.
#[test]
fn a_busy_writer_renews_its_other_keys_by_heartbeats_as_ever() {
    let mut script = Script::holding();
    let other = Key::new("other").unwrap();
    script.input(Input::Acquire(Turn::new(TurnId(2), other)));
    script.answer([granted(64)]);
    let mut heartbeats = 0;
    for _ in 0..10 {
        let ticket = script.ticket(1, true).unwrap();
        script.fenced(ticket);
        script.tick(1_000);
        if script.is_sent() {
            heartbeats += 1;
            script.answer([]);
        }
    }
    assert!((1..=3).contains(&heartbeats), "{heartbeats}");
}

/// A renewal in a user's transaction goes beside the context's own ones, and may be answered before or after them.
#[test]
fn j_of_two_renewals_on_their_way_neither_extends_what_the_other_shortened() {
    let mut script = Script::holding();
    let slot = script.slot();
    script.input(Input::Verify { query: TurnId(9), turn: TurnId(1), slot: slot.clone(), span_ms: 60_000 });
    let (long, _) = script.sent();
    script.acquire(2, true);
    script.input(Input::Release { turn: TurnId(1), slot });
    script.now_ms += 100;
    let ticket = script.ticket(2, true).unwrap();
    let lease_ms = ticket.batch.beat().unwrap().lease_ms;
    assert!(lease_ms - lease_ms / 10 >= 59_900, "no less than the one that is under way: {lease_ms}");
    script.reply(long, [current()]);
    // Nobody has asked for that long a time.
    let verify = Input::Verify { query: TurnId(10), turn: TurnId(2), slot: script.slot(), span_ms: 0 };
    script.input(verify);
    assert_eq!(script.remaining_ms(2), BELIEF_MS, "shortened when it was sent");
    script.fenced(ticket);
    assert!(script.remaining_ms(2) <= BELIEF_MS, "{}", script.remaining_ms(2));
}

/// The records, and a transaction of the user's that applies the ticket to them.
#[test]
fn s7_a_fence_passes_as_long_as_the_grant_stands_and_never_after() {
    let mut script = Script::new();
    let now = StoreNow::new(StoreClock::Observed, script.now());
    let steals = |session: SessionId, request| {
        let ask = Acquire { way: Way::Steal, ..Acquire::new(RequestId(request), 99) };
        let operation = Operation { key: Key::new("k").unwrap(), action: Action::Acquire(ask) };
        Batch::new(session, [operation].into())
    };
    let mut records = Records::whole(STORE);
    script.acquire(1, true);
    let (id, opens) = script.sent();
    let result = Ok(opens.apply(&mut records, now));
    script.input(Input::Reply { id, result });
    let beat = Beat { beat: 1, lease_ms: LEASE_MS, ..Beat::default() };
    let other = Batch { step: SessionStep::Open { beat, instance: "".into() }, ..Batch::new(OTHER, Vec::new()) };
    other.apply(&mut records, now);
    let ticket = script.ticket(1, true).unwrap();
    let mut standing = records.clone();
    let reply = ticket.batch.apply(&mut standing, now);
    assert!(matches!(reply.answers[0].outcome, Outcome::Current { .. }));
    assert!(standing.session(ME).unwrap().beat > records.session(ME).unwrap().beat);
    // Stolen by another context; and by a later request of the same one, whose grant this is not.
    for thief in [steals(OTHER, 1), steals(ME, 2)] {
        let mut records = records.clone();
        thief.apply(&mut records, now);
        let before = records.peek(&script.key).cloned();
        let found = ticket.batch.apply(&mut records, now).answers.remove(0).outcome;
        assert!(matches!(found, Outcome::NotCurrent { stolen: true, .. }), "{found:?}");
        assert_eq!(records.peek(&script.key), before.as_ref());
        assert_eq!(script.judge(1, &ticket, STORE, found), Err(FenceRefusal::Lost(LostReason::Stolen)));
    }
}

impl Script {
    /// Whether the lease passes from the first turn to the second one, which waits, without the store. If not, it is given back, and the
    /// second turn's request goes with that.
    fn passes_on(&mut self) -> bool {
        self.acquire(2, true);
        self.input(Input::Release { turn: TurnId(1), slot: self.slot() });
        let is_passed_on = super::is_granted(&self.outputs);
        if !is_passed_on {
            let actions = self.actions();
            let given_back = matches!(actions[..], [Action::Release { .. }, Action::Acquire(_)]);
            assert!(given_back, "{actions:?}");
        }
        is_passed_on
    }
}

/// The record changes with the lease, so that what was fenced before comes before, or is refused.
#[test]
fn s_a_lease_is_not_passed_on_while_a_fenced_transaction_may_be_open() {
    for (begun, ended) in [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2)] {
        let mut script = Script::holding();
        let (slot, ticket) = (script.slot(), script.ticket(1, false).unwrap());
        (0..begun).for_each(|_| script.machine.begin_fence(&slot, &ticket));
        (0..ended).for_each(|_| script.machine.end_fence(&slot, &ticket));
        assert_eq!(script.passes_on(), begun == ended, "{begun} begun, {ended} ended");
    }
}

#[test]
fn s_a_lease_does_not_linger_while_a_fenced_transaction_may_be_open() {
    let config = Config::parse(&Options { beacon: false, ..Options::default() }).unwrap();
    for is_open in [true, false] {
        let mut script = Script::new();
        script.machine = Machine::new(config.clone(), ME);
        script.acquire(1, true);
        script.answer([granted(64)]);
        let (slot, ticket) = (script.slot(), script.ticket(1, false).unwrap());
        script.machine.begin_fence(&slot, &ticket);
        if !is_open {
            script.machine.end_fence(&slot, &ticket);
        }
        script.input(Input::Release { turn: TurnId(1), slot });
        assert_eq!(script.is_sent(), is_open);
    }
}

/// The first one fences. The other joins, and goes last.
#[test]
fn s_what_a_guard_that_shared_the_lease_has_fenced_counts_when_the_last_one_goes() {
    for is_open in [true, false] {
        let mut script = Script::new();
        let sharer = |turn| Turn { share: true, ..Turn::new(TurnId(turn), named("k")) };
        script.ask_for(sharer(1));
        script.answer([granted(64)]);
        script.ask_for(sharer(3));
        let (slot, ticket) = (script.slot(), script.ticket(3, false).unwrap());
        script.machine.begin_fence(&slot, &ticket);
        script.input(Input::Release { turn: TurnId(3), slot: slot.clone() });
        if !is_open {
            script.machine.end_fence(&slot, &ticket);
        }
        assert_eq!(script.passes_on(), !is_open);
    }
}

/// A fence of an earlier lease says nothing of the present one.
#[test]
fn s_what_an_earlier_lease_has_fenced_does_not_count_for_the_next_one() {
    let mut script = Script::holding();
    let (slot, old) = (script.slot(), script.ticket(1, false).unwrap());
    script.machine.begin_fence(&slot, &old);
    assert!(!script.passes_on());
    script.answer([Outcome::Released, granted(128)]);
    let ticket = script.ticket(2, false).unwrap();
    script.machine.begin_fence(&slot, &ticket);
    script.machine.end_fence(&slot, &old);
    script.acquire(3, true);
    script.input(Input::Release { turn: TurnId(2), slot });
    assert!(!super::is_granted(&script.outputs), "the end of the old one is not the end of the new one");
}

/// A script whose lease was upgraded, and the slot of its guard.
fn upgraded() -> (Script, Slot) {
    let mut script = Script::new();
    let slot = script.shares();
    upgrade(&mut script, &slot, 128);
    (script, slot)
}

fn upgrade(script: &mut Script, slot: &Slot, token: u64) {
    script.input(Input::Upgrade { query: TurnId(10), turn: TurnId(1), slot: slot.clone() });
    script.answer([granted(token)]);
}

fn fence(script: &mut Script, slot: &Slot) -> Ticket {
    let now = script.now();
    let ticket = script.machine.ticket(TurnId(1), slot, false, now).expect("it holds the lease");
    script.machine.begin_fence(slot, &ticket);
    ticket
}

/// The store downgrades the lease after the transaction, or the transaction is refused.
#[test]
fn s_a_reader_is_let_in_when_the_store_has_downgraded_what_may_be_fenced() {
    for is_open in [true, false] {
        let (mut script, slot) = upgraded();
        let ticket = fence(&mut script, &slot);
        if !is_open {
            script.machine.end_fence(&slot, &ticket);
        }
        script.input(Input::Downgrade { query: TurnId(11), turn: TurnId(1), slot });
        let (downgrade, _) = script.sent();
        let reader = Turn { mode: Mode::Shared, ..Turn::new(TurnId(2), named("k")) };
        let told = script.ask_for(reader);
        assert_eq!(super::is_granted(&told), !is_open, "before the store has answered: {told:?}");
        let told = script.reply(downgrade, [Outcome::Downgraded]);
        assert_eq!(super::is_granted(told), is_open, "{told:?}");
    }
}

/// Whatever comes of the downgrade, the reader does not wait for ever.
#[test]
fn s_a_reader_is_let_in_although_the_downgrade_of_what_may_be_fenced_failed() {
    let refusals = [
        StoreError::transient("busy"),
        StoreError::unknown("no answer"),
        StoreError::permanent(StoreErrorKind::Unsupported, "no"),
    ];
    for refusal in refusals {
        let (mut script, slot) = upgraded();
        fence(&mut script, &slot);
        script.input(Input::Downgrade { query: TurnId(11), turn: TurnId(1), slot });
        let (downgrade, _) = script.sent();
        script.ask_for(Turn { mode: Mode::Shared, ..Turn::new(TurnId(2), named("k")) });
        let mut told = script.result(downgrade, Err(refusal.clone()));
        for _ in 0..100 {
            if super::is_granted(&told) {
                break;
            }
            let is_answered = script.is_sent();
            told = if is_answered { script.answer([Outcome::Downgraded]).to_vec() } else { script.tick(100).to_vec() };
        }
        assert!(super::is_granted(&told), "after {refusal}: {told:?}");
    }
}

/// A downgrade of a lease that was never exclusive changes nothing.
#[test]
fn s_a_downgrade_of_a_shared_lease_keeps_no_reader_out() {
    let mut script = Script::new();
    let slot = script.shares();
    fence(&mut script, &slot);
    script.input(Input::Downgrade { query: TurnId(11), turn: TurnId(1), slot });
    let told = script.ask_for(Turn { mode: Mode::Shared, wait: false, ..Turn::new(TurnId(2), named("k")) });
    assert!(super::is_granted(&told), "{told:?}");
}

#[test]
fn s_a_transaction_that_was_reported_two_upgrades_later_does_not_count_as_open() {
    for names in 1..=2 {
        let mut script = Script::new();
        let slot = script.shares();
        let ticket = fence(&mut script, &slot);
        for upgrades in 0..names {
            assert!(script.machine.cohorts.held(&slot).unwrap().may_be_fenced());
            upgrade(&mut script, &slot, 128 + 64 * upgrades);
            script.input(Input::Downgrade { query: TurnId(11), turn: TurnId(1), slot: slot.clone() });
            script.answer([Outcome::Downgraded]);
        }
        script.machine.end_fence(&slot, &ticket);
        assert!(!script.machine.cohorts.held(&slot).unwrap().may_be_fenced(), "after {names} upgrades");
    }
}
