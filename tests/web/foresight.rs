//! A context that is the only one to use a key requests its write along with its read. Nobody ever sees a wrong write.

use futures::FutureExt;
use js_sys::Array;
use leasehold::{
    machine::{Applied, Batch, Outcome, Reply, SessionId},
    store::{IndexedDbStore, Store},
};
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::{
    desk::open,
    indexed_db::{LIMIT, acquire, granted, now, working_store},
    platform::{Replaced, fresh_name, get_raw, put_raw, session_row, soon},
    sessions::{Asked, another, release, sure},
};

async fn transact(store: &IndexedDbStore, batch: Batch) -> Reply {
    store.transact(batch, now(), LIMIT).await.unwrap()
}

/// A store whose session 2 held the key `k` and gave it back, and the name of its database.
async fn free_key(test: &str) -> (IndexedDbStore, String) {
    let (store, database) = working_store(test).await;
    let held = granted(Ok(transact(&store, acquire("k", 2)).await));
    assert_eq!(transact(&store, sure(9_000, release("k", 2, 1, &held))).await.answers[0].outcome, Outcome::Released);
    (store, database)
}

#[test]
async fn a_context_that_is_the_only_one_to_use_a_key_requests_the_write_along_with_the_read() {
    let (store, database) = free_key("one breath").await;
    let asked = Asked::of(&database);
    let mut acquiring = Box::pin(store.transact(sure(9_000, another("k", 2, 2)), now(), LIMIT));
    assert!((&mut acquiring).now_or_never().is_none());
    assert_eq!(asked.methods(), ["get", "put"], "nothing was answered so far");
    let held = granted(acquiring.await);
    let mut releasing = Box::pin(store.transact(sure(9_000, release("k", 2, 2, &held)), now(), LIMIT));
    assert!((&mut releasing).now_or_never().is_none());
    assert_eq!(asked.methods(), ["get", "put"]);
    assert_eq!(releasing.await.unwrap().answers[0].outcome, Outcome::Released);
    assert_eq!(asked.methods(), [""; 0], "what was foreseen came true");
}

#[test]
async fn whoever_came_between_is_neither_overwritten_nor_overlooked() {
    let (store, database) = free_key("between").await;
    let other = IndexedDbStore::new(database.strip_prefix("leasehold:").unwrap());
    let held = granted(Ok(transact(&other, acquire("k", 3)).await));
    let before = get_raw(&database, "k").await;
    let asked = Asked::of(&database);
    // The request does not wait, so that nothing of it stays in the record.
    let reply = transact(&store, sure(9_000, another("k", 2, 2))).await;
    assert!(matches!(reply.answers[0].outcome, Outcome::Busy { .. }), "{reply:?}");
    assert_eq!(asked.methods(), ["get", "put", "put", "getAll"], "what was foreseen is put back");
    assert_eq!(get_raw(&database, "k").await, before);
    let reply = transact(&other, sure(9_000, release("k", 3, 1, &held))).await;
    assert_eq!(reply.answers[0].outcome, Outcome::Released);
}

#[test]
async fn contexts_that_take_turns_guess_wrongly_only_once() {
    let (store, database) = free_key("turns").await;
    let other = IndexedDbStore::new(database.strip_prefix("leasehold:").unwrap());
    granted(Ok(transact(&other, acquire("other", 3)).await));
    let asked = Asked::of(&database);
    for request in 2..6 {
        let held = granted(Ok(transact(&other, sure(9_000, another("k", 3, request))).await));
        transact(&other, sure(9_000, release("k", 3, request, &held))).await;
        asked.methods();
        let held = granted(Ok(transact(&store, sure(9_000, another("k", 2, request))).await));
        let acquired = asked.methods();
        transact(&store, sure(9_000, release("k", 2, request, &held))).await;
        assert_eq!(acquired.len(), if request == 2 { 4 } else { 2 }, "{acquired:?}");
        assert_eq!(asked.methods(), ["get", "put"]);
    }
    // The other one has stopped.
    for request in 6..9 {
        let mut acquiring = Box::pin(store.transact(sure(9_000, another("k", 2, request)), now(), LIMIT));
        assert!((&mut acquiring).now_or_never().is_none());
        assert_eq!(asked.methods().len(), if request == 6 { 1 } else { 2 }, "request {request}");
        let held = granted(acquiring.await);
        transact(&store, sure(9_000, release("k", 2, request, &held))).await;
        asked.methods();
    }
}

#[test]
async fn a_record_that_went_meanwhile_does_not_come_back() {
    let (store, database) = free_key("went").await;
    let held = granted(Ok(transact(&store, sure(9_000, another("k", 2, 2))).await));
    put_raw(&database, "k", &"nonsense".into()).await;
    let asked = Asked::of(&database);
    let reply = transact(&store, sure(9_000, release("k", 2, 2, &held))).await;
    assert!(matches!(reply.answers[0].outcome, Outcome::Unreadable(_)), "{reply:?}");
    assert_eq!(asked.methods(), ["get", "put", "put", "getAll"]);
    assert_eq!(get_raw(&database, "k").await, "nonsense");
}

/// Whoever wrote it may be a later version.
#[test]
async fn a_value_that_is_no_text_is_put_back_as_it_was() {
    let (store, database) = free_key("no text").await;
    let held = granted(Ok(transact(&store, sure(9_000, another("k", 2, 2))).await));
    put_raw(&database, "k", &Array::of1(&7.into())).await;
    let asked = Asked::of(&database);
    let reply = transact(&store, sure(9_000, release("k", 2, 2, &held))).await;
    assert!(matches!(reply.answers[0].outcome, Outcome::Unreadable(_)), "{reply:?}");
    assert_eq!(asked.methods(), ["get", "put", "put", "getAll"]);
    let stands = get_raw(&database, "k").await;
    assert!(Array::is_array(&stands) && Array::from(&stands).get(0) == 7, "{stands:?}");
}

/// A handler of the user's may let a transaction commit although a read in it failed.
#[test]
async fn nothing_is_foreseen_on_the_users_connection() {
    let name = fresh_name("attached foresight");
    let store = IndexedDbStore::attach(open(&name, 1, true).await).unwrap();
    let held = granted(Ok(transact(&store, acquire("k", 2)).await));
    let asked = Asked::of(&name);
    let mut releasing = Box::pin(store.transact(sure(9_000, release("k", 2, 1, &held)), now(), LIMIT));
    assert!((&mut releasing).now_or_never().is_none());
    assert_eq!(asked.methods(), ["get"]);
    assert_eq!(releasing.await.unwrap().answers[0].outcome, Outcome::Released);
    assert_eq!(asked.methods(), ["put"]);
}

/// As where there is no room. The rest of the transaction goes with it.
#[test]
async fn a_write_that_fails_grants_nothing_and_takes_the_others_along() {
    let (store, database) = free_key("failed write").await;
    // The row exists.
    let fails = "function (...given) { return given[1] === 'k' ? this.add(...given) : original.apply(this, given) }";
    let failing = Replaced::in_database(&database, "IDBObjectStore", "put", fails);
    let foreseen = soon(store.transact(sure(9_000, another("k", 2, 2)), now(), LIMIT)).await;
    let opening = soon(store.transact(acquire("k", 3), now(), LIMIT)).await;
    drop(failing);
    assert!(foreseen.is_err() && opening.is_err(), "{foreseen:?}, {opening:?}");
    assert!(get_raw(&database, session_row(SessionId(3))).await.is_undefined());
    granted(Ok(transact(&store, another("k", 2, 3)).await));
}

/// The page is left or frozen.
#[test]
async fn what_was_foreseen_goes_with_an_interruption() {
    let (store, database) = free_key("interrupted foresight").await;
    let before = get_raw(&database, "k").await;
    let mut early = Box::pin(store.transact(sure(9_000, another("k", 2, 2)), now(), LIMIT));
    assert!((&mut early).now_or_never().is_none());
    store.interrupt();
    let error = soon(early).await.unwrap_err();
    assert_eq!((error.applied, error.retry), (Applied::No, true));
    assert_eq!(get_raw(&database, "k").await, before);
}

#[test]
async fn what_was_foreseen_goes_with_a_read_that_fails() {
    let (store, database) = free_key("failed foresight").await;
    let before = get_raw(&database, "k").await;
    let fails = "function (...given) {
        const request = original.apply(this, given);
        const get = () => { throw new DOMException('gone', 'UnknownError') };
        return Object.defineProperty(request, 'result', { get });
    }";
    let failing = Replaced::in_database(&database, "IDBObjectStore", "get", fails);
    let error = store.transact(sure(9_000, another("k", 2, 2)), now(), LIMIT).await.unwrap_err();
    drop(failing);
    assert_eq!((error.applied, error.retry), (Applied::No, true));
    assert_eq!(get_raw(&database, "k").await, before);
}

/// The browser aborts the transaction, and the store relies on that.
#[test]
async fn what_was_foreseen_goes_with_a_handler_that_throws() {
    let (store, database) = free_key("thrown foresight").await;
    let before = get_raw(&database, "k").await;
    let throws = "function (...given) {
        const request = original.apply(this, given);
        const set = () => request.addEventListener('success', () => { throw new Error('thrown by a test') });
        return Object.defineProperty(request, 'onsuccess', { set });
    }";
    let throwing = Replaced::in_database(&database, "IDBObjectStore", "get", throws);
    let error = store.transact(sure(9_000, another("k", 2, 2)), now(), LIMIT).await.unwrap_err();
    drop(throwing);
    assert_eq!((error.applied, error.retry), (Applied::No, true));
    assert_eq!(get_raw(&database, "k").await, before);
}
