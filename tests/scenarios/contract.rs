//! The contract suite of stores: memory and a store of texts keep it, and each way to be wrong is refused.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use leasehold::{
    executor::SimExecutor,
    machine::StoreClock,
    store::{FaultyStore, MemoryStore, contract},
};

use crate::support::shelf::{Habit, Shelf};

#[test]
fn memory_keeps_the_contract() {
    for clock in [StoreClock::Trusted, StoreClock::Observed] {
        let shared = MemoryStore::with_clock(clock);
        SimExecutor::new(1).block_on(contract::all(async || shared.clone()));
        contract::in_threads(async || shared.clone(), |work| futures::executor::block_on(work));
    }
}

#[test]
fn a_store_without_faults_keeps_the_contract() {
    let shared = FaultyStore::new(MemoryStore::new());
    SimExecutor::new(1).block_on(contract::all(async || shared.clone()));
}

fn all(habit: Habit) {
    let shelf = Arc::<Shelf>::default();
    SimExecutor::new(1).block_on(contract::all(async || shelf.open(habit)));
}

fn unreadable(habit: Habit) {
    let shelf = Arc::<Shelf>::default();
    let write = async |key: String, text: String| shelf.put(&key, &text);
    let read = async |key: String| shelf.text(&key);
    SimExecutor::new(1).block_on(contract::unreadable(async || shelf.open(habit), write, read));
}

fn in_threads(habit: Habit) {
    let shelf = Arc::<Shelf>::default();
    contract::in_threads(async || shelf.open(habit), |work| futures::executor::block_on(work));
}

/// With what sentence a suite refuses a store.
fn refusal(suite: impl Fn(Habit), habit: Habit) -> String {
    let refused = catch_unwind(AssertUnwindSafe(|| suite(habit)));
    let Err(sentence) = refused else { panic!("a store that {habit:?} was accepted") };
    let literal = sentence.downcast_ref::<&str>().map(|text| (*text).to_owned());
    literal.or_else(|| sentence.downcast_ref::<String>().cloned()).expect("a panic has a sentence")
}

/// It yields in the middle of each transaction; and if it only compares, it is tried again.
#[test]
fn a_store_of_texts_keeps_the_contract() {
    for habit in [Habit::Locks, Habit::Compares, Habit::TrustsItsClock] {
        all(habit);
        unreadable(habit);
    }
    in_threads(Habit::Locks);
}

#[test]
fn a_store_that_answers_at_once_keeps_the_contract() {
    all(Habit::AnswersAtOnce);
    unreadable(Habit::AnswersAtOnce);
}

#[test]
fn the_contract_names_the_rule_that_a_store_breaks() {
    for (habit, rule) in [
        (Habit::Races, "only one is granted the key: read, apply and write in one transaction"),
        (Habit::LocksEachKey, "a batch is one transaction"),
        (Habit::AnswersEarly, "answer only after the transaction was committed"),
        (Habit::InterruptsAtOnce, "read, apply and write in one transaction"),
        (Habit::NewIdEachConnection, "all connections name it by the same"),
        (Habit::NewIdEachTime, "the store keeps its id from one transaction to the next"),
        (Habit::SkipsHeartbeats, "a heartbeat is written even if its transaction has no operation"),
        (Habit::KeepsRows, "a session that has ended leaves its keys to others"),
        (Habit::KeepsAscii, "a text is kept as it is"),
        (Habit::ListsAnyCase, "a list has all keys that begin with the given text, and no others"),
        (Habit::HidesShared, "a list has each key that somebody holds or waits for"),
        (Habit::LosesDeadlines, "by a trusted clock a lease ends at its deadline"),
        (Habit::ReadsItsClockOnce, "by a trusted clock a lease ends at its deadline"),
        (Habit::HidesItsClock, "only a trusted clock ends a lease"),
        (Habit::WritesRowByRow, "a transaction that is dropped halfway is committed as a whole or rolled back"),
        (Habit::WritesItsRowOnce, "tokens grow, even if a record was deleted"),
        (Habit::ReadsItsRowOnce, "tokens grow, even if a record was deleted"),
        (Habit::RemembersSessions, "a heartbeat is written even if its transaction has no operation"),
        (Habit::ForgetsWaiters, "load the rows of all sessions that `sessions_of` names"),
        (Habit::CommitsLate, "what was granted after a dropped transaction stays granted"),
    ] {
        let sentence = refusal(all, habit);
        assert!(sentence.contains(rule), "{habit:?} is refused with {sentence:?}");
    }
}

#[test]
fn a_store_that_writes_over_what_it_cannot_read_is_refused() {
    let sentence = refusal(unreadable, Habit::Overwrites);
    assert!(sentence.contains("a value that cannot be read is told as such"), "{sentence:?}");
}

#[test]
fn a_store_that_lists_too_little_is_refused() {
    for (habit, rule) in [
        (Habit::HidesUnreadable, "a value that cannot be read is listed"),
        (Habit::HidesWaiters, "a key that somebody waits for is listed"),
    ] {
        let sentence = refusal(unreadable, habit);
        assert!(sentence.contains(rule), "{sentence:?}");
    }
}

/// One thread alone never sees it: the transaction does not yield.
#[test]
fn a_store_without_transactions_is_refused_although_it_never_yields() {
    all(Habit::Blocks);
    let sentence = refusal(in_threads, Habit::Blocks);
    let rules = ["no other can interleave with", "what was granted is there until its release", "tokens grow"];
    assert!(rules.iter().any(|rule| sentence.contains(rule)), "{sentence:?}");
}

#[test]
#[should_panic(expected = "a second connection sees the grant")]
fn the_contract_catches_a_store_that_keeps_its_writes_to_itself() {
    SimExecutor::new(1).block_on(contract::all(async || MemoryStore::new()));
}
