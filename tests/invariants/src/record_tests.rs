//! Each check can fail.

use leasehold::machine::{
    Acquire, Action, Answer, Batch, Beat, Key, Mode, Now, Operation, Outcome, Record, Records, Reply, RequestId,
    SessionId, SessionStep, StoreClock, StoreId, StoreNow, Token,
};

use crate::{Several, Unsound, check, ended_are_gone, head_waits, is_exhausted};

const HOLDER: SessionId = SessionId(1);

/// A record with a holder, and two waiters of other sessions.
fn queued() -> Record {
    let (mut records, key) = (Records::whole(StoreId(1)), named("k"));
    for session in 1..=3 {
        let ask = Acquire { wait: true, ..Acquire::new(RequestId(1), 1) };
        applied(&mut records, session, Operation { key: key.clone(), action: Action::Acquire(ask) });
    }
    records.peek(&key).unwrap().clone()
}

fn named(key: &str) -> Key {
    Key::new(key).unwrap()
}

fn token(number: u64) -> Token {
    let text =
        format!(r#"{{"format":1,"last_token":{number},"revision":1,"grants":[],"queue":[],"last_exclusive":0}}"#);
    Record::decode(&text).unwrap().last_token
}

/// A session opens with this operation.
fn applied(records: &mut Records, session: u128, operation: Operation) -> (Batch, Reply) {
    let beat = Beat { beat: 1, lease_ms: 20_000, ..Beat::default() };
    let step = SessionStep::Open { beat, instance: String::new() };
    let batch = Batch { step, ..Batch::new(SessionId(session), vec![operation]) };
    let reply = batch.apply(records, StoreNow::new(StoreClock::Observed, Now::default()));
    (batch, reply)
}

fn spoilt(spoil: impl FnOnce(&mut Record)) -> Record {
    let mut record = queued();
    assert_eq!((check(&record), head_waits(&record, 0)), (Ok(()), true), "it was sound");
    spoil(&mut record);
    record
}

#[test]
fn what_is_unsound_is_named() {
    let second_grant = |record: &mut Record| {
        let mut second = record.grants[0].clone();
        (second.holder, second.mode) = (SessionId(9), Mode::Shared);
        record.grants.push(second);
    };
    assert_eq!(check(&spoilt(second_grant)), Err(Unsound::ConflictingGrants));
    assert_eq!(check(&spoilt(|record| record.queue[1].holder = HOLDER)), Err(Unsound::RequestTwice));
    assert_eq!(check(&spoilt(|record| record.queue.swap(0, 1))), Err(Unsound::QueueOutOfOrder));
    let same_session = |record: &mut Record| {
        (record.queue[1].holder, record.queue[1].request) = (record.queue[0].holder, RequestId(7));
    };
    assert_eq!(check(&spoilt(same_session)), Err(Unsound::CommonPlaceTwice));
    let upgrades = |record: &mut Record| {
        let token = record.grants[0].block.first;
        record.queue.iter_mut().for_each(|waiter| waiter.upgrades = Some(token));
    };
    assert_eq!(check(&spoilt(upgrades)), Err(Unsound::TwoUpgrades));
    let beyond = |record: &mut Record| record.last_token = record.grants[0].block.first;
    assert_eq!(check(&spoilt(beyond)), Err(Unsound::TokensBeyondLast));
}

#[test]
fn a_head_that_could_be_granted_and_an_upgrade_of_nothing_do_not_wait() {
    assert!(!head_waits(&spoilt(|record| record.grants.clear()), 0));
    let orphan = |record: &mut Record| record.queue[0].upgrades = Some(record.grants[0].block.last);
    assert!(!head_waits(&spoilt(orphan), 0));
}

#[test]
fn what_ended_sessions_left_at_the_head_is_seen_and_further_back_it_may_stay() {
    let record = queued();
    for (ended, gone) in [(1, false), (2, false), (3, true)] {
        assert_eq!(ended_are_gone(&record, |session| session == SessionId(ended)), gone);
    }
}

#[test]
fn an_upgrade_and_a_larger_priority_go_first() {
    let [upgrades, goes_first] = [0, 1].map(|which| {
        move |record: &mut Record| match which {
            0 => record.queue[1].upgrades = Some(record.grants[0].block.first),
            _ => record.queue[1].priority = 1,
        }
    });
    assert_eq!(check(&spoilt(upgrades)), Err(Unsound::QueueOutOfOrder));
    assert_eq!(check(&spoilt(goes_first)), Err(Unsound::QueueOutOfOrder));
}

#[test]
fn the_last_exclusive_token_is_no_larger_than_the_last_one() {
    let beyond = |record: &mut Record| {
        record.grants.clear();
        record.last_exclusive = token(record.last_token.as_u64() + 1);
    };
    assert_eq!(check(&spoilt(beyond)), Err(Unsound::TokensBeyondLast));
}

#[test]
fn a_reader_at_the_head_waits_for_no_reader() {
    let share = |record: &mut Record| {
        (record.grants[0].mode, record.queue[0].mode) = (Mode::Shared, Mode::Shared);
    };
    assert!(!head_waits(&spoilt(share), 0));
    let writer_waits = |record: &mut Record| record.grants[0].mode = Mode::Shared;
    assert!(head_waits(&spoilt(writer_waits), 0));
}

/// A block has 64 tokens.
#[test]
fn the_tokens_end_below_two_to_the_53() {
    let end = 1 << 53;
    for (last, wall_ms, is_over) in [
        (end - 65, 0, false),
        (end - 64, 0, true),
        (0, (1 << 42) - 1, false),
        (0, 1 << 42, false),
        (end - 64, 1 << 42, true),
    ] {
        assert_eq!(is_exhausted(token(last), wall_ms), is_over, "{last}, {wall_ms}");
    }
}

/// A request for two keys, and the records before and after it.
#[test]
fn a_request_for_several_keys_that_got_one_of_them_is_found() {
    let (keys, mut records) = (["a", "b"].map(named), Records::whole(StoreId(1)));
    let asks = keys.clone().map(|key| (key, Acquire::new(RequestId(1), 1)));
    let operation = Operation { key: keys[0].clone(), action: Action::AcquireAll(asks.into()) };
    let before = Several::before(&Batch::new(SessionId(1), vec![operation.clone()]), |_| None);
    let (batch, mut reply) = applied(&mut records, 1, operation);
    let both = |key: &Key| records.peek(key);
    let one = |key: &Key| records.peek(key).filter(|_| *key == keys[0]);
    assert_eq!(before.after(&batch, &reply, both), Ok(()));
    assert!(before.after(&batch, &reply, one).is_err(), "it was told that it got both");
    let Some(Answer { outcome, .. }) = reply.answers.last_mut() else { panic!("{reply:?}") };
    *outcome = Outcome::NoSession;
    assert!(before.after(&batch, &reply, one).is_err(), "it was told that it got none");
    assert_eq!(before.after(&batch, &reply, |_| None), Ok(()));
    assert_eq!(Several::before(&batch, one).after(&batch, &reply, one), Ok(()), "it had the key before");
}
