//! Requests, upgrades and renewals that something overtakes on their way, or whose answer is lost: what the store did counts.

use alloc::{vec, vec::Vec};

use super::{
    LEASE_MS, ME, OTHER, Script, named,
    served::{Served, slot},
};
use crate::machine::{
    Acquire, Action, Batch, Beat, Config, Ending, Event, Input, LostReason, Machine, Mode, Operation, Options, Outcome,
    Refusal, RequestId, Row, SessionStep, Slot, StoreError, Turn, TurnId,
};

impl Served {
    /// It holds "z", and shares the key by its first turn. That was upgraded, and the answer is lost.
    pub(super) fn upgraded_unheard(key: &str) -> (Self, Slot) {
        let mut served = Self::new();
        served.ask(Turn::new(TurnId(9), named("z")));
        served.serve();
        served.ask(Turn { mode: Mode::Shared, ..Turn::new(TurnId(1), named(key)) });
        served.serve();
        let shared = slot(key, Mode::Shared);
        served.input(Input::Upgrade { query: TurnId(10), turn: TurnId(1), slot: shared.clone() });
        served.lose_reply();
        (served, shared)
    }

    /// A fenced write under "z", which renews, is committed before what is sent next.
    fn overtake_by_a_fence(&mut self) {
        let (id, retry) = self.until_sent();
        self.fence_and_renew(9, &slot("z", Mode::Exclusive));
        let reply = self.apply(&retry);
        self.input(Input::Reply { id, result: Ok(reply) });
        self.serve();
    }
}

/// I8, S11. A request is granted unheard, and its retry is overtaken by a fenced write, whose heartbeat raises the floor above it.
/// Asked once more, it adopts its grant.
#[test]
fn a_shared_lease_granted_unheard_is_not_forgotten_when_a_fence_overtakes_the_retry() {
    let mut served = Served::new();
    served.ask(Turn::new(TurnId(9), named("z")));
    served.serve();
    served.ask(Turn { mode: Mode::Shared, ..Turn::new(TurnId(1), named("a")) });
    served.lose_reply();
    served.overtake_by_a_fence();
    assert!(served.is_granted(1));
    served.input(Input::Release { turn: TurnId(1), slot: slot("a", Mode::Shared) });
    served.serve();
    served.pass(120_000);
    assert!(served.script.machine.session() == ME, "its session lives");
    assert_eq!(served.grants("a"), [], "nobody here holds \"a\", and no writer elsewhere ever gets it");
}

/// The same with an upgrade.
#[test]
fn an_upgrade_granted_unheard_is_not_forgotten_when_a_fence_overtakes_the_retry() {
    let (mut served, shared) = Served::upgraded_unheard("a");
    served.overtake_by_a_fence();
    let failed: Vec<_> =
        served.told.iter().filter(|event| matches!(event, Event::Failed { turn: TurnId(10), .. })).cloned().collect();
    served.input(Input::Release { turn: TurnId(1), slot: shared });
    served.serve();
    served.pass(120_000);
    assert!(served.script.machine.session() == ME, "its session lives");
    assert_eq!((failed, served.grants("a")), (vec![], vec![]), "told, and left behind");
}

/// I5, P4. Whatever became of the upgrade, its guard does not believe by a grant that is no longer there.
#[test]
fn i5_a_guard_whose_upgrade_was_overtaken_by_a_fence_does_not_believe_beside_a_writer() {
    let (mut served, shared) = Served::upgraded_unheard("a");
    served.overtake_by_a_fence();
    // Somebody here tries the key.
    served.ask(Turn { wait: false, ..Turn::new(TurnId(2), named("a")) });
    served.serve();
    served.pass(1_000);
    // Somebody elsewhere gets it.
    let beat = Beat { beat: 1, lease_ms: LEASE_MS, ..Beat::default() };
    let ask = Operation { key: named("a"), action: Action::Acquire(Acquire::new(RequestId(1), 1)) };
    let reply =
        served.apply(&Batch { step: SessionStep::Open { beat, instance: "".into() }, ..Batch::new(OTHER, vec![ask]) });
    let is_theirs = matches!(reply.answers[0].outcome, Outcome::Granted(_));
    served.pass(10_000);
    let left = served.script.machine.remaining_ms(TurnId(1), &shared, served.script.now());
    assert!(!is_theirs || left == 0, "another context holds it exclusively, and this one believes for {left} ms more");
}

/// S13, I5. A fenced write renews with the long lease that another guard wanted, and commits late, after a heartbeat with the usual
/// one: the store ignores it. The context counts it all the same, if by then it has asked for a long lease once more, in a transaction
/// that is never applied.
#[test]
fn s13_a_renewal_that_the_store_ignored_because_it_came_late_is_not_believed() {
    let mut served = Served::new();
    let own = |key: &str| slot(key, Mode::Exclusive);
    for (turn, key) in [(7, "x"), (8, "y"), (9, "z")] {
        served.ask(Turn::new(TurnId(turn), named(key)));
        served.serve();
    }
    served.input(Input::Verify { query: TurnId(20), turn: TurnId(8), slot: own("y"), span_ms: 60_000 });
    served.serve();
    // A transaction of the user's with a fence in it, that takes five seconds.
    let ticket = served.script.machine.ticket(TurnId(9), &own("z"), true, served.script.now()).unwrap();
    served.input(Input::Tick);
    served.input(Input::Release { turn: TurnId(8), slot: own("y") });
    served.serve();
    served.pass(5_000);
    let row = served.records.session(ME).unwrap().clone();
    assert_eq!(row.lease_ms, LEASE_MS, "a usual heartbeat came meanwhile");
    // From now on the store takes nothing from this context but the transaction that is open already.
    served.input(Input::Verify { query: TurnId(21), turn: TurnId(7), slot: own("x"), span_ms: 60_000 });
    assert!(served.script.is_sent());
    let reply = served.apply(&ticket.batch);
    served.input(Input::Fenced { slot: own("z"), ticket: ticket.into(), reply });
    let read = served.records.session(ME).unwrap().clone();
    assert_eq!((read.beat, read.lease_ms), (row.beat, LEASE_MS), "it came late");
    // Another context watches the row stand still for the lease that it says and its margin, and takes over.
    for _ in 0..2_200 {
        served.script.tick(10);
        served.hear();
    }
    let open = Batch {
        step: SessionStep::Open { beat: Beat { beat: 1, lease_ms: LEASE_MS, ..Beat::default() }, instance: "".into() },
        ..Batch::new(
            OTHER,
            vec![
                Operation { key: named("z"), action: Action::End { target: ME, beat: read.beat } },
                Operation { key: named("z"), action: Action::Acquire(Acquire::new(RequestId(1), 1)) },
            ],
        )
    };
    let reply = served.apply(&open);
    assert!(matches!(reply.answers[1].outcome, Outcome::Granted(_)), "{reply:?}");
    let left = served.script.machine.remaining_ms(TurnId(9), &own("z"), served.script.now());
    assert_eq!(left, 0, "two believe for {left} ms");
}

/// Rule 6. The first attempt was granted unheard. A second request joins, and asks anew before the retry: that counts as the
/// first attempt, is certainly not applied, and so nothing is withdrawn.
#[test]
fn a_request_granted_unheard_is_withdrawn_although_a_later_question_was_refused() {
    let mut served = Served::new();
    served.ask(Turn::new(TurnId(9), named("z")));
    served.serve();
    served.ask(Turn::new(TurnId(1), named("k")));
    served.lose_reply();
    // Something else is answered before the retry.
    served.ask(Turn::new(TurnId(5), named("m")));
    assert_eq!(served.script.actions().len(), 1);
    let (id, batch) = served.script.sent();
    let reply = served.apply(&batch);
    served.input(Input::Reply { id, result: Ok(reply) });
    assert!(!served.script.is_sent());
    served.ask(Turn { priority: 5, ..Turn::new(TurnId(2), named("k")) });
    assert!(matches!(served.script.actions()[..], [Action::Acquire(_)]));
    served.refuse_for_good();
    let failed = served.told.iter().filter(|event| matches!(event, Event::Failed { .. })).count();
    assert_eq!(failed, 2, "{:?}", served.told);
    served.serve();
    served.pass(120_000);
    assert!(served.script.machine.session() == ME, "its session lives");
    assert_eq!(served.grants("k"), [], "nobody here holds it");
}

/// The same with an upgrade, which is asked for anew because a downgrade found the lease gone.
#[test]
fn an_upgrade_granted_unheard_is_no_orphan_although_a_later_question_was_refused() {
    let (mut served, shared) = Served::upgraded_unheard("k");
    // Verified before the retry: not current, and so the upgrade is asked for anew.
    served.input(Input::Verify { query: TurnId(11), turn: TurnId(1), slot: shared.clone(), span_ms: 0 });
    let (id, batch) = served.script.sent();
    assert_eq!(batch.operations.len(), 1);
    let reply = served.apply(&batch);
    served.input(Input::Reply { id, result: Ok(reply) });
    assert!(
        served.script.actions().iter().any(|action| matches!(action, Action::Acquire(_))),
        "{:?}",
        served.script.actions()
    );
    served.refuse_for_good();
    served.serve();
    served.input(Input::Release { turn: TurnId(1), slot: shared });
    served.serve();
    served.pass(120_000);
    assert!(served.script.machine.session() == ME, "its session lives");
    assert_eq!(served.grants("k"), [], "nobody here holds it: {:?}", served.told);
}

/// I14, I8: both keys were granted unheard; then one of the records is in a format of a newer version. The other one's grant
/// stays.
#[test]
fn a_grant_of_several_keys_is_given_back_when_another_of_them_cannot_be_read() {
    let mut served = Served::new();
    served.ask(Turn::new(TurnId(9), named("z")));
    served.serve();
    let turns =
        [(1, "a"), (2, "b")].map(|(id, name)| Turn { alone: true, wait: false, ..Turn::new(TurnId(id), named(name)) });
    served.input(Input::AcquireAll(turns.into()));
    served.lose_reply();
    let text = served.records.text(&Row::Record(named("b"))).unwrap();
    let newer = text.replacen("\"format\":1", "\"format\":2", 1);
    assert_ne!(text, newer, "{text}");
    served.records.load(named("b"), Some(&newer));
    served.pass(120_000);
    // The user is told only of the unreadable key, because its record may have to be deleted.
    let blamed = |event: &&Event| matches!(event, Event::Failed { .. });
    let blamed: Vec<_> = served.told.iter().filter(blamed).collect();
    let [Event::Failed { turn: TurnId(2), refusal: Refusal::Unreadable(_) }] = blamed[..] else { panic!("{blamed:?}") };
    assert!(served.told.contains(&Event::Busy { turn: TurnId(1) }), "{:?}", served.told);
    assert_eq!(served.grants("a"), [], "\"a\" can be read, and nobody holds it");
}

/// S11: what a store refuses for good is sent again, alone, for as long as the session lives; also where two tasks take turns,
/// so that there is always something else to be sent.
#[test]
fn a_release_that_was_refused_once_goes_again_although_the_context_is_busy() {
    let mut served = Served::new();
    served.ask(Turn::new(TurnId(1), named("k")));
    served.serve();
    served.input(Input::Release { turn: TurnId(1), slot: slot("k", Mode::Exclusive) });
    served.refuse_for_good();
    assert!(!served.grants("k").is_empty());
    // While the store answers the one, the other asks or releases.
    let mut tasks = [("x", None), ("y", None)];
    let mut flying: Option<(u64, Batch)> = None;
    for turn in 10..6_000 {
        let (key, held) = &mut tasks[turn as usize % 2];
        match held.take() {
            Some(held) => served.input(Input::Release { turn: TurnId(held), slot: slot(key, Mode::Exclusive) }),
            None => {
                *held = Some(turn);
                served.ask(Turn::new(TurnId(turn), named(key)));
            }
        }
        if let Some((id, batch)) = flying.take() {
            let reply = served.apply(&batch);
            served.script.now_ms += 1;
            served.input(Input::Reply { id, result: Ok(reply) });
        }
        flying = served.script.is_sent().then(|| served.script.sent());
    }
    assert!(served.script.now_ms > 5_000);
    assert_eq!(served.grants("k"), [], "seconds later nobody has given \"k\" back");
}

/// How the releases of the first turn ended.
fn released(served: &Served) -> Vec<Result<Option<LostReason>, StoreError>> {
    let released = |event: &Event| match event {
        Event::Released { turn: TurnId(1), result } => Some(result.clone()),
        _ => None,
    };
    served.told.iter().filter_map(released).collect()
}

impl Served {
    /// The first turn releases its lease while all leases are in doubt.
    fn releases_in_doubt(&mut self, slot: Slot) -> (u64, Batch) {
        self.input(Input::Doubt);
        let beat = self.until_sent();
        self.input(Input::Release { turn: TurnId(1), slot });
        beat
    }

    fn answer(&mut self, (id, batch): (u64, Batch)) {
        let reply = self.apply(&batch);
        self.input(Input::Reply { id, result: Ok(reply) });
        self.serve();
    }
}

/// The withdrawal of the upgrade has already released the lease when the release arrives. The session lives, so nobody else ended the
/// lease.
#[test]
fn a_release_in_doubt_loses_nothing_if_its_upgrade_was_granted_unheard() {
    let (mut served, shared) = Served::upgraded_unheard("a");
    let beat = served.releases_in_doubt(shared);
    served.answer(beat);
    served.pass(1_000);
    assert_eq!(released(&served), [Ok(None)]);
}

/// The first attempt to release the lease was applied, and its answer was lost.
#[test]
fn a_release_in_doubt_that_is_tried_again_loses_nothing() {
    let mut served = Served::new();
    served.ask(Turn::new(TurnId(9), named("z")));
    served.serve();
    served.ask(Turn::new(TurnId(1), named("a")));
    served.serve();
    let (id, _) = served.releases_in_doubt(slot("a", Mode::Exclusive));
    served.input(Input::Reply { id, result: Err(StoreError::unknown("no answer")) });
    while !served.grants("a").is_empty() {
        served.until_sent();
        served.lose_reply();
    }
    served.pass(1_000);
    assert_eq!(released(&served), [Ok(None)]);
}

/// Somebody ended the session while it was in doubt: nobody knows whether that was before the release.
#[test]
fn a_release_in_doubt_whose_session_has_ended_finds_a_loss() {
    let (mut served, shared) = Served::upgraded_unheard("a");
    let beat = served.releases_in_doubt(shared);
    let ends = vec![Ending { session: ME, beat: None }];
    let (session, step) = (OTHER, SessionStep::Stay);
    served.apply(&Batch { session, step, ends, operations: vec![], forgets: vec![], sure_ms: 0 });
    served.answer(beat);
    served.pass(1_000);
    assert_eq!(released(&served), [Ok(Some(LostReason::Expired))]);
}

impl Served {
    /// Another context steals "a".
    fn robbed_of_a(&mut self) {
        let mut thief = Script::new();
        thief.machine = Machine::new(Config::parse(&Options { beacon: false, ..Options::default() }).unwrap(), OTHER);
        thief.ask_for(Turn { steal: true, ..Turn::new(TurnId(1), named("a")) });
        self.apply(&thief.sent().1);
    }
}

/// The lease is stolen from a context that has not heard yet that it holds the lease exclusively.
#[test]
fn a_release_tells_of_the_theft_of_an_upgrade_that_was_granted_unheard() {
    let (mut served, shared) = Served::upgraded_unheard("a");
    served.robbed_of_a();
    served.input(Input::Release { turn: TurnId(1), slot: shared });
    served.serve();
    served.pass(1_000);
    assert_eq!(released(&served), [Ok(Some(LostReason::Stolen))]);
}

/// The first attempt gave the lease back, and then the next request of the same context was granted one. What was stolen is that one.
#[test]
fn a_release_that_is_tried_again_tells_of_no_theft_of_the_next_lease() {
    let mut served = Served::new();
    served.ask(Turn::new(TurnId(1), named("a")));
    served.serve();
    served.input(Input::Release { turn: TurnId(1), slot: slot("a", Mode::Exclusive) });
    served.ask(Turn::new(TurnId(2), named("a")));
    for _ in 0..2 {
        served.until_sent();
        served.lose_reply();
    }
    assert_eq!(served.grants("a").len(), 1);
    served.robbed_of_a();
    served.pass(1_000);
    assert_eq!(released(&served), [Ok(None)]);
}

/// Two requests of the same context share the key, each by a lease of its own.
#[test]
fn a_release_that_is_tried_again_tells_of_no_theft_of_a_lease_beside_it() {
    let mut served = Served::new();
    let sharing = |turn| Turn { mode: Mode::Shared, alone: true, ..Turn::new(TurnId(turn), named("a")) };
    for turn in [1, 2] {
        served.ask(sharing(turn));
        served.serve();
    }
    assert_eq!(served.grants("a").len(), 2);
    served.input(Input::Release { turn: TurnId(1), slot: sharing(1).slot() });
    served.lose_reply();
    assert_eq!(served.grants("a").len(), 1);
    served.robbed_of_a();
    served.pass(1_000);
    assert_eq!(released(&served), [Ok(None)]);
}

/// S11, I8. Somebody keeps the record locked, so the withdrawal of an attempt that got no answer is sent separately. The attempt arrives
/// after it.
#[test]
fn an_attempt_that_arrives_after_its_withdrawal_was_sent_separately_is_refused() {
    let mut served = Served::new();
    served.ask(Turn::new(TurnId(9), named("z")));
    served.serve();
    served.ask(Turn::new(TurnId(1), named("a")));
    let (_, late) = served.script.sent();
    served.input(Input::Cancel { turn: TurnId(1), slot: slot("a", Mode::Exclusive) });
    for error in [StoreError::locked("a is locked"), StoreError::transient("the heartbeat by itself")] {
        let (id, _) = served.until_sent();
        served.input(Input::Reply { id, result: Err(error) });
    }
    let (id, withdrawal) = served.until_sent();
    assert!(matches!(withdrawal.operations[..], [Operation { action: Action::Withdraw { .. }, .. }]), "{withdrawal:?}");
    let reply = served.apply(&withdrawal);
    served.apply(&late);
    served.input(Input::Reply { id, result: Ok(reply) });
    served.serve();
    served.pass(120_000);
    assert!(served.script.machine.session() == ME, "the session of the request has ended");
    assert_eq!(
        served.grants("a"),
        [],
        "a grant of \"a\" is left that nobody here holds, so nobody elsewhere ever gets the key"
    );
}

/// S15. A request was granted by its second attempt, and its lease is on its way to another guard when the first attempt is answered.
#[test]
fn a_lease_on_its_way_to_another_guard_is_not_withdrawn_by_a_late_answer() {
    for late in [StoreError::unknown("late"), StoreError::transient("late")] {
        let mut served = Served::new();
        served.ask(Turn::new(TurnId(9), named("z")));
        served.serve();
        let key = slot("a", Mode::Exclusive);
        served.ask(Turn::new(TurnId(1), named("a")));
        let (first, _) = served.script.sent();
        while !served.is_granted(1) {
            served.script.tick(10);
            served.hear();
            if served.script.is_sent() {
                served.serve();
            }
        }
        let parcel = served.script.machine.parcel(TurnId(1), &key).unwrap();
        served.input(Input::Detach { turn: TurnId(1), slot: key, to: parcel.from });
        let (detaches, _) = served.script.sent();
        served.input(Input::Reply { id: first, result: Err(late) });
        served.input(Input::Reply { id: detaches, result: Err(StoreError::transient("a moment")) });
        served.serve();
        served.pass(5_000);
        assert_eq!(served.grants("a"), [(parcel.from, parcel.request)], "another context can resume it");
    }
}
