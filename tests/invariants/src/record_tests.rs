//! Each check can fail.

use leasehold::machine::{
    Acquire, Action, Batch, Beat, Key, Mode, Now, Operation, Record, Records, RequestId, SessionId, SessionStep,
    StoreClock, StoreId, StoreNow,
};

use crate::{Unsound, check, ended_are_gone, head_waits};

const HOLDER: SessionId = SessionId(1);

/// A record with a holder, and two waiters of other sessions.
fn queued() -> Record {
    let (mut records, key) = (Records::whole(StoreId(1)), Key::new("k").unwrap());
    for session in 1..=3 {
        let ask = Acquire { wait: true, ..Acquire::new(RequestId(1), 1) };
        let operation = Operation { key: key.clone(), action: Action::Acquire(ask) };
        let beat = Beat { beat: 1, lease_ms: 20_000, ..Beat::default() };
        let step = SessionStep::Open { beat, instance: String::new() };
        let batch = Batch { step, ..Batch::new(SessionId(session), vec![operation]) };
        batch.apply(&mut records, StoreNow::new(StoreClock::Observed, Now::default()));
    }
    records.peek(&key).unwrap().clone()
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
