//! The contract of a store, as tests that any store runs: [`all`]; [`unreadable()`], where values can be put under a key by
//! other means; and [`in_threads`], for a store that blocks its thread.
//!
//! ```
//! # use leasehold::{executor::SimExecutor, store::{MemoryStore, contract}};
//! let shared = MemoryStore::new();
//! SimExecutor::new(1).block_on(contract::all(async || shared.clone()));
//! ```
//!
//! # Cancel safety
//! If its future is dropped, a test has not passed, and its rows stay in the store.

mod at_once;
mod client;
mod dropped;
mod threads;
mod unreadable;

use alloc::{borrow::ToOwned, format, vec::Vec};

use super::Store;
use crate::machine::{StoreClock, Token};

pub use at_once::{
    batches_at_once_are_seen_whole, transactions_at_once_exclude_each_other, transactions_at_once_lose_no_update,
};
use client::{Client, LEASE_MS, Seen};
pub use dropped::a_dropped_transaction_is_whole_or_nothing;
pub use threads::in_threads;
pub use unreadable::unreadable;

/// Whoever opens a session is told of others, in order that it looks whether they are alive: for a store that heeds
/// [`Batch::peers`](crate::machine::Batch::peers). Without that, a session that nobody ended stays in the store until it blocks somebody.
///
/// # Panics
/// With a sentence that names the rule, if the store breaks it.
pub async fn new_sessions_are_told_of_others<S: Store>(open: impl AsyncFn() -> S) {
    let mut clients = Vec::new();
    for me in 90..93 {
        let mut client = Client::new(open().await, me);
        client.acquire("peers").await;
        clients.push(client);
    }
    let known: Vec<_> = clients.iter().map(Client::session).collect();
    for (number, client) in clients.iter().enumerate() {
        for earlier in &known[..number] {
            assert!(
                client.peers().contains(earlier),
                "load as many other sessions as Batch::peers says: {earlier} is not told"
            );
        }
        assert!(!client.peers().contains(&client.session()), "nobody is told of itself");
    }
}

/// Runs the whole contract. `open` makes a new connection to the same, empty store each time it is called.
///
/// A store whose transactions block their thread passes [`in_threads`] too: here one thread polls everything, so that a
/// transaction that never yields is never interrupted.
///
/// # Panics
/// With a sentence that names the rule, if the store breaks one.
pub async fn all<S: Store>(open: impl AsyncFn() -> S) {
    committed_is_seen_by_a_second_connection(&open).await;
    a_batch_is_applied_in_order_and_as_one(&open).await;
    keys_do_not_meet(&open).await;
    a_busy_key_is_left_as_it_is(&open).await;
    interleaved_turns_exclude_each_other(&open).await;
    a_silent_holder_goes_as_the_clock_says(&open).await;
    the_store_keeps_its_id(&open).await;
    transactions_at_once_exclude_each_other(&open).await;
    transactions_at_once_lose_no_update(&open).await;
    batches_at_once_are_seen_whole(&open).await;
    sessions_live_by_heartbeats_until_they_end(&open).await;
    whoever_waits_is_granted_the_key_next(&open).await;
    tokens_outlast_their_records(&open).await;
    keys_are_listed_by_what_they_begin_with(&open).await;
    keys_in_use_are_listed(&open).await;
    a_dropped_transaction_is_whole_or_nothing(&open).await;
    a_closed_handle_says_so(&open).await;
}

/// X1: what a transaction answered is there for everybody.
pub async fn committed_is_seen_by_a_second_connection<S: Store>(open: impl AsyncFn() -> S) {
    let (mut one, mut other) = (Client::new(open().await, 1), Client::new(open().await, 2));
    let token = one.acquire("x1").await.token();
    let seen = other.inspect("x1").await;
    let tells_info = seen.tells_info();
    let (last_token, tokens) = seen.status();
    assert_eq!(tokens.len(), 1, "a second connection sees the grant: answer only after the transaction was committed");
    assert_eq!(tokens[0], token, "and its token");
    assert!(last_token > token, "and that its block is reserved");
    assert!(tells_info, "a text is kept as it is: each row may hold any character");
    let third = Client::new(open().await, 3).acquire("x1").await;
    assert_eq!(third, Seen::Busy, "a third connection is refused");
}

/// A batch is one transaction: its operations see each other, in order.
pub async fn a_batch_is_applied_in_order_and_as_one<S: Store>(open: impl AsyncFn() -> S) {
    let mut client = Client::new(open().await, 4);
    let (first, again) = (client.ask("batch", 1), client.ask("batch", 2));
    let answers = client.run([first, again]).await;
    let token = answers[0].token();
    assert_eq!(answers[1], Seen::Busy, "the second operation of a batch sees the first: {answers:?}");
    let (release, ask) = (client.release("batch", token), client.ask("batch", 3));
    let answers = client.run([release, ask]).await;
    assert_eq!(
        answers[0],
        Seen::Released,
        "a batch is applied once: what its first operation releases, the next one acquires"
    );
    assert!(answers[1].token() > token, "then granted with a larger token");
}

/// Several keys in one transaction, whatever their names.
pub async fn keys_do_not_meet<S: Store>(open: impl AsyncFn() -> S) {
    let mut client = Client::new(open().await, 5);
    let long = "k".repeat(1024);
    let names = ["a", "A", "a ", "\u{0}", "\u{1f98a}", "store", "[\"store\"]", "__proto__", "1", long.as_str()];
    let asks: Vec<_> = names.iter().map(|name| client.ask(name, 1)).collect();
    let answers = client.run(asks).await;
    assert_eq!(answers.len(), names.len(), "one answer an operation");
    for (name, answer) in names.iter().zip(answers) {
        assert!(matches!(answer, Seen::Granted(_)), "{name:?} is a key of its own: {answer:?}");
    }
}

/// A refusal changes nothing.
pub async fn a_busy_key_is_left_as_it_is<S: Store>(open: impl AsyncFn() -> S) {
    let (mut one, mut other) = (Client::new(open().await, 6), Client::new(open().await, 7));
    one.acquire("busy").await;
    let before = one.inspect("busy").await;
    assert_eq!(other.acquire("busy").await, Seen::Busy, "taken is taken");
    assert_eq!(one.inspect("busy").await, before, "and a refusal leaves no trace");
}

/// Two connections take turns; never are both granted, and tokens only grow.
pub async fn interleaved_turns_exclude_each_other<S: Store>(open: impl AsyncFn() -> S) {
    let mut clients = [Client::new(open().await, 8), Client::new(open().await, 9)];
    let mut last = Token::default();
    for turn in 0..20 {
        let [one, other] = &mut clients;
        let (holder, rival) = if turn % 3 == 0 { (other, one) } else { (one, other) };
        let token = holder.acquire("turns").await.token();
        assert!(token > last, "tokens grow");
        last = token;
        assert_eq!(rival.acquire("turns").await, Seen::Busy, "never two holders");
        assert_eq!(rival.give_back("turns", token).await, Seen::NotCurrent, "only the holder releases");
        assert_eq!(holder.give_back("turns", token).await, Seen::Released, "the holder releases");
    }
}

/// A trusted clock ends a lease; others must not.
pub async fn a_silent_holder_goes_as_the_clock_says<S: Store>(open: impl AsyncFn() -> S) {
    let (mut one, mut other) = (Client::new(open().await, 10), Client::new(open().await, 11));
    let trusted = other.clock() == StoreClock::Trusted;
    one.acquire("silent").await;
    assert_eq!(other.acquire("silent").await, Seen::Busy, "a lease lasts until its deadline");
    other.pass(LEASE_MS * 10);
    let granted = matches!(other.acquire("silent").await, Seen::Granted(_));
    assert!(
        granted || !trusted,
        "by a trusted clock a lease ends at its deadline: judge each transaction by the time that it was given, and keep the deadline, \
        which is in the session's row; or say `StoreClock::Observed`"
    );
    assert!(trusted || !granted, "only a trusted clock ends a lease: this store says `StoreClock::Observed`");
}

/// Each connection and each transaction names the store by the id that it was made with.
pub async fn the_store_keeps_its_id<S: Store>(open: impl AsyncFn() -> S) {
    let mut first = None;
    for me in 14..17 {
        let mut client = Client::new(open().await, me);
        for _ in 0..3 {
            client.inspect("id").await;
        }
        let id = client.store_id();
        assert_eq!(*first.get_or_insert(id), id, "the store keeps its id: all connections name it by the same");
        client.close().await;
    }
}

/// A session lives as long as its context sends heartbeats. Its row goes when the session ends, whether its own context ends it or others
/// that saw it silent. A heartbeat or an end may be a transaction without any operation.
pub async fn sessions_live_by_heartbeats_until_they_end<S: Store>(open: impl AsyncFn() -> S) {
    const ENDED: &str =
        "a session that has ended leaves its keys to others: delete the rows that `take_changed` names without a text";
    let (mut one, mut other) = (Client::new(open().await, 40), Client::new(open().await, 41));
    one.acquire("lives").await.token();
    assert_eq!(other.acquire("lives").await, Seen::Busy, "taken is taken");
    let (first, second) = (1, one.beat().await);
    assert_eq!(
        other.acquire_from(one.session(), first, "lives").await,
        Seen::Busy,
        "a heartbeat is written even if its transaction has no operation: otherwise others take a living context for dead"
    );
    let taken = other.acquire_from(one.session(), second, "lives").await;
    assert!(matches!(taken, Seen::Granted(_)), "{ENDED}: {taken:?}");
    other.leave().await;
    let taken = Client::new(open().await, 42).acquire("lives").await;
    assert!(matches!(taken, Seen::Granted(_)), "{ENDED}, even if its transaction has no operation: {taken:?}");
}

/// A release grants the key to the first of those who wait for it, if its session has not ended.
pub async fn whoever_waits_is_granted_the_key_next<S: Store>(open: impl AsyncFn() -> S) {
    let [mut holder, mut waiter, mut late] =
        [Client::new(open().await, 47), Client::new(open().await, 48), Client::new(open().await, 49)];
    let token = holder.acquire("next").await.token();
    waiter.wait_for("next").await;
    assert_eq!(holder.give_back("next", token).await, Seen::Released, "the holder releases");
    assert_eq!(
        late.acquire("next").await,
        Seen::Busy,
        "whoever waits is granted the key at its release: load the rows of all sessions that `sessions_of` names"
    );
}

/// The tokens of a record that was deleted are never granted again, by whatever connection: the store's own row remembers them.
pub async fn tokens_outlast_their_records<S: Store>(open: impl AsyncFn() -> S) {
    let (mut one, mut other) = (Client::new(open().await, 60), Client::new(open().await, 61));
    other.inspect("forgotten").await;
    let mut last = Token::default();
    for _ in 0..3 {
        for client in [&mut one, &mut other] {
            let token = client.acquire("forgotten").await.token();
            assert!(
                token > last,
                "tokens grow, even if a record was deleted: read the store's own row in each transaction, and write it whenever \
                `take_changed` names it"
            );
            last = token;
            assert_eq!(client.give_back("forgotten", token).await, Seen::Released, "the holder releases");
            client.forget("forgotten").await;
        }
    }
}

/// If the store can list keys, a list has exactly those that begin with the given text: each of its characters stands only for itself.
pub async fn keys_are_listed_by_what_they_begin_with<S: Store>(open: impl AsyncFn() -> S) {
    const BEGIN: &str = "List_%*?[a]\\'";
    let mut client = Client::new(open().await, 43);
    let within = ["", "\u{0}", "a", "\u{e9}\u{1f98a}"].map(|end| format!("{BEGIN}{end}"));
    let beside = ["list_%*?[a]\\'", "ListAB*?[a]\\'", "List_%CD[a]\\'", "List_%*?a\\'", "List_%*?[a]'"];
    let asks: Vec<_> = within.iter().map(|name| client.ask_next(name)).collect();
    client.run(asks).await;
    let asks: Vec<_> = beside.iter().map(|name| client.ask_next(name)).collect();
    client.run(asks).await;
    let Some(found) = client.keys(BEGIN).await else { return };
    assert_eq!(found, within, "a list has all keys that begin with the given text, and no others, in order");
    assert_eq!(
        client.keys("list_%*?[a]\\'").await,
        Some(Vec::from([beside[0].to_owned()])),
        "capitals differ from small letters"
    );
}

/// If the store can list keys, a list has each key that somebody holds or waits for. It may have others.
pub async fn keys_in_use_are_listed<S: Store>(open: impl AsyncFn() -> S) {
    let (mut one, mut other) = (Client::new(open().await, 70), Client::new(open().await, 71));
    one.acquire("used, held").await;
    other.wait_for("used, held").await;
    let token = one.acquire("used, given to a waiter").await.token();
    other.wait_for("used, given to a waiter").await;
    one.give_back("used, given to a waiter", token).await;
    for name in ["used, shared", "used, still shared"] {
        let token = one.share(name).await.token();
        other.share(name).await;
        if name != "used, shared" {
            one.give_back(name, token).await;
        }
    }
    for (name, is_used_again) in [("used, again", true), ("used, no more", false)] {
        let token = one.acquire(name).await.token();
        one.give_back(name, token).await;
        if is_used_again {
            other.acquire(name).await;
        }
    }
    let Some(mut found) = other.keys("used, ").await else { return };
    found.retain(|name| name != "used, no more");
    let used = ["again", "given to a waiter", "held", "shared", "still shared"].map(|end| format!("used, {end}"));
    assert_eq!(found, used, "a list has each key that somebody holds or waits for: leave out only idle records");
}

/// Closing one handle closes no other.
pub async fn a_closed_handle_says_so<S: Store>(open: impl AsyncFn() -> S) {
    let (mut one, mut other) = (Client::new(open().await, 12), Client::new(open().await, 13));
    one.acquire("closed").await;
    one.close().await;
    assert!(one.is_closed().await, "a closed handle says that it is closed, by an error of kind `Closed`");
    assert_eq!(other.inspect("closed").await.status().1.len(), 1, "the other handles stay open");
}
