//! What stores that read only some of the sessions may rely on.
//!
//! A transaction reads the sessions that [`Records::sessions_of`] names. Of the rest it knows neither the beat nor
//! whether the row is there: they are *strangers*. What it does is exactly what a store with all rows would do if each
//! stranger's row stood there, empty, with beat 0 and the longest lease. So it differs from the truth only so:
//!
//! * A stranger is sighted with beat 0, the longest lease and no beacon, and never as a twin. Nobody ends it on that
//!   evidence: its beat is none that it ever sent.
//! * A stranger that has ended is granted what it queued for, or stays in the queue. As a holder it is named, so the
//!   next operation on the key drops the grant.
//! * Who opens a session is told of those peers only that were read.
//!
//! If no stranger has ended, every row of the store comes out the same.

use std::collections::BTreeSet;

use leasehold::machine::{
    Action, Batch, LONGEST_SILENCE_MS, Operation, Outcome, Record, Reply, Row, Session, SessionId, Sighting, StoreNow,
};
use proptest::prelude::*;

use crate::history::{Life, Passing, Step, Verb, WayWish, Wish, steps};
use crate::shop::{self, Kind, Texts, number_after, transact};
use crate::world::World;

/// Panics unless a batch does the same for a store that reads some sessions as for one that has them all.
pub(crate) fn holds(texts: &Texts, batch: &Batch, now: StoreNow) {
    let strangers = strangers(texts, batch);
    let (told, rows) = outcome(texts, Kind::NamedSessions, batch, now);
    peers_are_true(&told, &rows);
    let robbed = told.answers.iter().flat_map(|answer| &answer.robbed);
    let unnoted = robbed.filter(|(victim, _)| strangers.contains(victim)).count();
    assert_eq!(unnoted, 0, "S8: who is robbed is named, so that its row says so: {batch:?}");

    let (as_if, as_if_rows) = outcome(&with_empty_rows(texts, &strangers), Kind::AllSessions, batch, now);
    assert_eq!(without_peers(&told), without_peers(&as_if), "as if strangers' rows were empty: {batch:?}");
    let apart = |rows: &Texts| {
        let known = |row: &Row| !matches!(row, Row::Session(id) if strangers.contains(id));
        rows.iter().filter(|(row, _)| known(row)).map(|(row, text)| (row.clone(), text.clone())).collect::<Texts>()
    };
    assert_eq!(apart(&rows), apart(&as_if_rows), "as if strangers' rows were empty: {batch:?}");

    if strangers.iter().all(|stranger| is_alive(texts, *stranger, now)) {
        let (truth, true_rows) = outcome(texts, Kind::AllSessions, batch, now);
        assert_eq!(rows, true_rows, "if all strangers are alive, what is written is the truth: {batch:?}");
        assert_eq!(without_peers(&told), blurred(without_peers(&truth), &strangers), "{batch:?}");
    }
}

fn outcome(texts: &Texts, kind: Kind, batch: &Batch, now: StoreNow) -> (Reply, Texts) {
    let mut rows = texts.clone();
    let reply = transact(&mut rows, kind, batch, now);
    (reply, rows)
}

/// Who stands in a record of the batch without being read. Only waiters may.
fn strangers(texts: &Texts, batch: &Batch) -> BTreeSet<SessionId> {
    let named: BTreeSet<_> = shop::named(texts, batch).into_iter().collect();
    let mut strangers = BTreeSet::new();
    for key in batch.keys() {
        let Some(Ok(record)) = texts.get(&Row::Record(key.clone())).map(|text| Record::decode(text)) else { continue };
        let unread = record.grants.iter().find(|grant| !named.contains(&grant.holder));
        assert_eq!(unread, None, "whoever holds a key is read");
        let waiters = record.queue.iter().map(|waiter| waiter.holder);
        let unread: BTreeSet<_> = waiters.filter(|holder| !named.contains(holder)).collect();
        let inspects = |operation: &Operation| operation.key == key && operation.action == Action::Inspect;
        let told = !batch.operations.iter().any(inspects) || unread.is_empty();
        assert!(told, "whoever inspects a key is told of all: {unread:?}");
        strangers.extend(unread);
    }
    strangers
}

fn is_alive(texts: &Texts, session: SessionId, now: StoreNow) -> bool {
    let deadline = |text: &String| number_after(text, "\"deadline\":[");
    let over = |deadline: u64| now.trusted.is_some_and(|now| deadline <= now.as_ms());
    texts.get(&Row::Session(session)).is_some_and(|text| !deadline(text).is_some_and(over))
}

fn with_empty_rows(texts: &Texts, strangers: &BTreeSet<SessionId>) -> Texts {
    let mut texts = texts.clone();
    let mut row = Session::default();
    row.lease_ms = LONGEST_SILENCE_MS;
    for stranger in strangers {
        texts.insert(Row::Session(*stranger), row.encode(*stranger));
    }
    texts
}

fn without_peers(reply: &Reply) -> Reply {
    Reply { peers: Vec::new(), ..reply.clone() }
}

fn peers_are_true(reply: &Reply, rows: &Texts) {
    for peer in &reply.peers {
        let row = rows.get(&Row::Session(peer.session)).and_then(|text| Session::decode(text).ok());
        let seen = row.map(|(_, row)| (row.beat, row.lease_ms));
        assert_eq!(seen, Some((peer.beat, peer.lease_ms)), "a peer is as its row says");
    }
}

/// What is told, with nothing but their names told of strangers.
fn blurred(mut reply: Reply, strangers: &BTreeSet<SessionId>) -> Reply {
    let blur = |ahead: &mut Vec<Sighting>| {
        for seen in ahead.iter_mut().filter(|seen| strangers.contains(&seen.holder)) {
            *seen = Sighting { beat: 0, beacon: false, lease_ms: LONGEST_SILENCE_MS, twin: false, ..*seen };
        }
    };
    for answer in &mut reply.answers {
        match &mut answer.outcome {
            Outcome::Waiting { ahead, .. } | Outcome::Looked { ahead, .. } | Outcome::Busy { ahead } => blur(ahead),
            Outcome::BusyAll(all) => all.iter_mut().for_each(blur),
            _ => {}
        }
    }
    reply
}

const CROWD: u8 = 24;

/// Everybody queues at the first key, so that most are strangers to a transaction there.
fn crowd(world: &mut World, wishes: &[Wish]) {
    for (who, wish) in (0..).zip(wishes) {
        let wish = Wish { wait: true, way: WayWish::Plain, ..wish.clone() };
        world.step(&quiet(who, Verb::Open(Life { beacon: true, lease_ms: u16::MAX })));
        world.step(&quiet(who, Verb::Ask(wish)));
    }
}

fn quiet(who: u8, verb: Verb) -> Step {
    Step { who, key: 0, pass: Passing::Both(1), newer: false, opens: true, verb }
}

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let mode = prop_oneof![Just(leasehold::machine::Mode::Exclusive), Just(leasehold::machine::Mode::Shared)];
    let wish = (mode, prop_oneof![4 => Just(0), 1 => -1..3i32], prop::bool::weighted(0.2))
        .prop_map(|(mode, priority, alone)| Wish { mode, way: WayWish::Plain, wait: true, priority, alone });
    prop::collection::vec(wish, usize::from(CROWD))
}

proptest! {
    // A crowd costs as much as ten others.
    #![proptest_config(ProptestConfig {
        failure_persistence: None, cases: ProptestConfig::default().cases.div_ceil(8), ..ProptestConfig::default()
    })]

    /// In a crowd, whichever sessions end: one operation a transaction, and all the rules too.
    #[test]
    fn a_store_that_reads_named_sessions_keeps_the_rules_in_a_crowd(
        wishes in wishes(), steps in steps(CROWD, 30), trusted: bool,
    ) {
        let mut world = World::new(Kind::NamedSessions, trusted);
        crowd(&mut world, &wishes);
        steps.iter().for_each(|step| world.step(step));
    }

    /// Several operations and endings in one transaction.
    #[test]
    fn named_sessions_are_enough_for_batches_of_several_operations(
        wishes in wishes(), steps in steps(CROWD, 24), size in 2..6usize, trusted: bool,
    ) {
        let mut world = World::new(Kind::AllSessions, trusted);
        crowd(&mut world, &wishes);
        for steps in steps.chunks(size) {
            world.rehearse(steps);
            world.step(&steps[0]);
        }
    }
}
