//! `IndexedDbStore`: what it does beyond the contract of all stores, when the database or the browser misbehaves.

use std::time::Duration;

use futures::{
    FutureExt,
    future::{join, join_all},
};
use js_sys::{Array, Reflect, global};
use leasehold::{
    executor::{Executor, WebExecutor},
    machine::{
        Acquire, Action, Applied, Batch, Beat, FORMAT, Key, Now, Operation, Outcome, Reply, RequestId, SessionId,
        SessionStep, StoreError, StoreErrorKind, Unreadable,
    },
    store::{IndexedDbStore, Reach, Store, contract},
};
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::platform::{Replaced, done, fresh_name, get_raw, indexed_db, open_raw, put_raw, soon};

/// More than a transaction takes.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

pub(super) fn now() -> Now {
    WebExecutor::new().now()
}

/// By its engine, which alone has this class.
fn is_firefox() -> bool {
    Reflect::has(&global(), &"InternalError".into()).unwrap()
}

/// What a session asks that is open.
pub(super) fn ask(key: &str, session: u128, action: Action) -> Batch {
    Batch::new(SessionId(session), vec![Operation { key: Key::new(key).unwrap(), action }])
}

/// Opens the session and asks for the lease.
pub(super) fn acquire(key: &str, session: u128) -> Batch {
    let beat = Beat { beat: 1, lease_ms: 20_000, ..Beat::default() };
    let step = SessionStep::Open { beat, instance: String::new() };
    let waits = Action::Acquire(Acquire { wait: true, ..Acquire::new(RequestId(1), 1) });
    Batch { step, ..ask(key, session, waits) }
}

/// A store that works, and the name of its database.
pub(super) async fn working_store(test: &str) -> (IndexedDbStore, String) {
    let name = fresh_name(test);
    let store = IndexedDbStore::new(&name);
    granted(store.transact(acquire("first", 1), now(), LIMIT).await);
    (store, format!("leasehold:{name}"))
}

pub(super) fn granted(result: Result<Reply, StoreError>) -> Reply {
    let reply = result.unwrap();
    assert!(matches!(reply.answers[0].outcome, Outcome::Granted { .. }), "{reply:?}");
    reply
}

/// How many stand before who asked.
fn ahead(reply: &Reply) -> usize {
    match &reply.answers[0].outcome {
        Outcome::Granted { .. } => 0,
        Outcome::Waiting { position, .. } => *position,
        other => panic!("{other:?}"),
    }
}

#[test]
async fn it_keeps_the_contract_of_all_stores() {
    let name = fresh_name("contract");
    contract::all(async || IndexedDbStore::new(&name)).await;
    let database = format!("leasehold:{name}");
    let write = async |key: String, text: String| put_raw(&database, &key, &text.into()).await;
    let read = async |key: String| get_raw(&database, &key).await.as_string();
    contract::unreadable(async || IndexedDbStore::new(&name), write, read).await;
}

#[test]
async fn many_connections_take_turns() {
    let name = fresh_name("turns");
    let stores: Vec<_> = (0..8).map(|_| IndexedDbStore::new(&name)).collect();
    // All at once, so that their connections open and their transactions queue beside each other.
    let replies =
        join_all(stores.iter().zip(1..).map(|(store, holder)| store.transact(acquire("k", holder), now(), LIMIT)));
    let replies: Vec<_> = replies.await.into_iter().map(Result::unwrap).collect();
    assert!(replies.iter().all(|reply| reply.store == replies[0].store), "they know one store");
    let mut ahead: Vec<_> = replies.iter().map(ahead).collect();
    ahead.sort();
    assert_eq!(ahead, (0..8).collect::<Vec<_>>(), "one holds, and each of the others queues in a place of its own");
}

#[test]
fn it_reaches_who_opens_the_same_database() {
    assert_eq!(IndexedDbStore::new("app").reach(), Reach::Named("leasehold:app".into()));
}

#[test]
async fn nothing_is_asked_of_a_batch_of_nothing() {
    let store = IndexedDbStore::new(&fresh_name("nothing"));
    let first = store.transact(Batch::new(SessionId(1), Vec::new()), now(), LIMIT).await.unwrap();
    let second = store.transact(Batch::new(SessionId(1), Vec::new()), now(), LIMIT).await.unwrap();
    assert_eq!((first.store, first.answers), (second.store, second.answers));
}

#[test]
async fn many_transactions_at_once_share_one_connection_and_keep_their_order() {
    let name = fresh_name("many");
    let opened = Replaced::in_database(
        &format!("leasehold:{name}"),
        "IDBFactory",
        "open",
        "function (...given) { globalThis.opened = (globalThis.opened ?? 0) + 1; return original.apply(this, given) }",
    );
    let store = IndexedDbStore::new(&name);
    let replies = join_all((1..=20).map(|holder| store.transact(acquire("k", holder), now(), LIMIT))).await;
    drop(opened);
    assert_eq!(Reflect::get(&global(), &"opened".into()).unwrap(), 1);
    assert!(replies.into_iter().map(|reply| ahead(&reply.unwrap())).eq(0..20));
}

#[test]
async fn a_transaction_that_nobody_waits_for_is_completed() {
    let (store, _) = working_store("dropped").await;
    // Polled once, the connection being there, it is under way.
    assert!(store.transact(acquire("k", 1), now(), LIMIT).now_or_never().is_none());
    let reply = store.transact(acquire("k", 2), now(), LIMIT).await.unwrap();
    assert!(matches!(&reply.answers[0].outcome, Outcome::Waiting { position: 1, .. }));
}

#[test]
async fn an_open_that_nobody_waits_for_does_not_hold_the_database() {
    let name = fresh_name("open-dropped");
    let store = IndexedDbStore::new(&name);
    assert!(store.transact(acquire("k", 1), now(), LIMIT).now_or_never().is_none());
    drop(store);
    done(&indexed_db().delete_database(&format!("leasehold:{name}")).unwrap()).await.unwrap();
}

#[test]
async fn what_it_cannot_read_is_left_as_it_is() {
    let (store, database) = working_store("unreadable").await;
    let newer = format!(r#"{{"format":{},"anything":[1,2]}}"#, FORMAT + 1);
    let cases: [(JsValue, Unreadable); 3] = [
        (newer.into(), Unreadable::FormatTooNew { found: FORMAT + 1, known: FORMAT }),
        ("no record".into(), Unreadable::Corrupt),
        (JsValue::from(42), Unreadable::Corrupt),
    ];
    for (value, why) in cases {
        put_raw(&database, "k", &value).await;
        let reply = store.transact(acquire("k", 1), now(), LIMIT).await.unwrap();
        assert_eq!(reply.answers[0].outcome, Outcome::Unreadable(why));
        assert_eq!(get_raw(&database, "k").await, value);
    }
}

#[test]
async fn it_lets_go_of_a_database_that_is_deleted_and_then_makes_a_new_one() {
    let (store, database) = working_store("deleted").await;
    let before = granted(store.transact(acquire("k", 1), now(), LIMIT).await);
    // Without its letting go, this would wait for ever.
    done(&indexed_db().delete_database(&database).unwrap()).await.unwrap();
    let after = granted(store.transact(acquire("k", 2), now(), LIMIT).await);
    assert_ne!(before.store, after.store);
}

#[test]
async fn every_transaction_is_relaxed_and_committed_at_once_unless_that_would_commit_the_rest_of_what_failed() {
    let (store, database) = working_store("relaxed").await;
    let committed = Array::new();
    Reflect::set(&global(), &"committed".into(), &committed).unwrap();
    let note = "function (...given) {
        globalThis.committed.push(`${this.durability ?? 'relaxed'} ${this.mode}`);
        return original.apply(this, given);
    }";
    let _noted = Replaced::in_database(&database, "IDBTransaction", "commit", note);
    granted(store.transact(acquire("k", 1), now(), LIMIT).await);
    // One that writes nothing too.
    store.transact(ask("k", 1, Action::Inspect), now(), LIMIT).await.unwrap();
    let all = if is_firefox() { "" } else { "relaxed readwrite,relaxed readwrite" };
    assert_eq!(committed.join(","), all);
}

#[test]
async fn the_store_keeps_its_id() {
    let (store, database) = working_store("id").await;
    let first = granted(store.transact(acquire("a", 1), now(), LIMIT).await);
    store.close().await;
    let again = IndexedDbStore::new(database.strip_prefix("leasehold:").unwrap());
    let second = granted(again.transact(acquire("b", 1), now(), LIMIT).await);
    assert_eq!(first.store, second.store);
}

#[test]
async fn a_newer_version_of_the_database_is_no_use_trying() {
    let (store, database) = working_store("newer").await;
    let newer = done(&indexed_db().open_with_u32(&database, 2).unwrap()).await.unwrap();
    let error = store.transact(acquire("k", 1), now(), LIMIT).await.unwrap_err();
    assert_eq!((error.kind, error.applied, error.retry), (StoreErrorKind::Unavailable, Applied::No, false));
    assert!(error.message.contains(&database) && error.message.contains("reload"), "{error}");
    newer.unchecked_into::<web_sys::IdbDatabase>().close();
}

#[test]
async fn a_database_that_does_not_open_is_given_up() {
    let (store, database) = working_store("stuck").await;
    store.close().await;
    // Deleting waits for this connection, which does not yield, and opening waits for the deletion.
    let stubborn = open_raw(&database).await;
    let deletion = indexed_db().delete_database(&database).unwrap();
    let store = IndexedDbStore::new(database.strip_prefix("leasehold:").unwrap());
    let error = soon(store.transact(acquire("k", 1), now(), LIMIT)).await.unwrap_err();
    assert_eq!((error.kind, error.applied, error.retry), (StoreErrorKind::Unavailable, Applied::No, true));
    stubborn.close();
    done(&deletion).await.unwrap();
    granted(store.transact(acquire("k", 1), now(), LIMIT).await);
}

#[test]
async fn without_indexed_db_it_says_what_to_do() {
    for missing in [JsValue::UNDEFINED, JsValue::NULL] {
        let _none = Replaced::new(&global(), "indexedDB", &missing);
        let error = IndexedDbStore::new("none").transact(acquire("k", 1), now(), LIMIT).await.unwrap_err();
        assert_eq!((error.kind, error.applied, error.retry), (StoreErrorKind::Unsupported, Applied::No, false));
        assert!(error.message.contains(r#"{ store: "memory" }"#), "{error}");
    }
}

#[test]
async fn where_indexed_db_is_forbidden_it_says_so() {
    // By the specification; Chromium, where the user blocks cookies.
    let refusals =
        [("SecurityError", "denied"), ("UnknownError", "The user denied permission to access the database.")];
    for (name, words) in refusals {
        let forbid = format!("function () {{ throw new DOMException('{words}', '{name}') }}");
        let _forbidden = Replaced::method("IDBFactory", "open", &forbid);
        let error = IndexedDbStore::new("forbidden").transact(acquire("k", 1), now(), LIMIT).await.unwrap_err();
        assert_eq!((error.kind, error.retry), (StoreErrorKind::Unsupported, false), "{error}");
        assert!(error.message.contains(words) && error.message.contains("memory"), "{error}");
    }
}

#[test]
async fn a_connection_that_died_unnoticed_is_opened_anew_once() {
    let (store, database) = working_store("died").await;
    for name in ["InvalidStateError", "UnknownError"] {
        let dead = Replaced::in_database(&database, "IDBDatabase", "transaction", &fails("dead", name, 1));
        granted(store.transact(acquire(name, 1), now(), LIMIT).await);
        drop(dead);
    }
    let _dead = Replaced::in_database(&database, "IDBDatabase", "transaction", &fails("dead", "InvalidStateError", 2));
    let error = store.transact(acquire("k", 1), now(), LIMIT).await.unwrap_err();
    assert_eq!((error.kind, error.applied, error.retry), (StoreErrorKind::Unavailable, Applied::No, true));
    granted(store.transact(acquire("k", 1), now(), LIMIT).await);
}

/// A method that throws this many times before it works again.
pub(super) fn fails(message: &str, name: &str, times: u32) -> String {
    format!(
        "(() => {{ let left = {times}; return function (...given) {{
            if (left-- > 0) throw new DOMException('{message}', '{name}');
            return original.apply(this, given);
        }} }})()"
    )
}

#[test]
async fn a_full_disk_is_told_and_leaves_the_record_as_it_was() {
    let (store, database) = working_store("quota").await;
    let before = get_raw(&database, "first").await;
    let full = Replaced::in_database(&database, "IDBObjectStore", "put", &fails("full", "QuotaExceededError", 1));
    let error = store.transact(acquire("first", 2), now(), LIMIT).await.unwrap_err();
    drop(full);
    assert_eq!((error.kind, error.applied, error.retry), (StoreErrorKind::Quota, Applied::No, false));
    assert!(error.message.contains("free disk space"), "{error}");
    assert_eq!(get_raw(&database, "first").await, before);
}

#[test]
async fn a_transaction_aborted_before_its_commit_was_not_applied() {
    let (store, database) = working_store("aborted").await;
    let abort = "function (...given) {
        const request = original.apply(this, given);
        this.transaction.abort();
        return request;
    }";
    let aborted = Replaced::in_database(&database, "IDBObjectStore", "get", abort);
    let error = store.transact(acquire("k", 1), now(), LIMIT).await.unwrap_err();
    drop(aborted);
    assert_eq!((error.kind, error.applied, error.retry), (StoreErrorKind::Unavailable, Applied::No, true));
    granted(store.transact(acquire("k", 1), now(), LIMIT).await);
}

#[test]
async fn a_transaction_lost_after_its_commit_is_unknown() {
    let (store, database) = working_store("unknown").await;
    // An abort without an error: what a browser does that lost its database process.
    let lost = Replaced::in_database(&database, "IDBTransaction", "commit", "function () { this.abort() }");
    // Firefox is not told to commit: once all was asked for, it does.
    let soon = "function (...given) {
        queueMicrotask(() => { try { this.transaction.abort() } catch {} });
        return original.apply(this, given);
    }";
    let lost_unasked = is_firefox().then(|| Replaced::in_database(&database, "IDBObjectStore", "put", soon));
    let error = store.transact(acquire("k", 1), now(), LIMIT).await.unwrap_err();
    drop((lost, lost_unasked));
    assert_eq!((error.kind, error.applied, error.retry), (StoreErrorKind::Unavailable, Applied::Unknown, true));
    granted(store.transact(acquire("k", 1), now(), LIMIT).await);
}

#[test]
async fn without_commit_the_browser_commits_by_itself() {
    let (store, database) = working_store("no-commit").await;
    let prototype = Reflect::get(&Reflect::get(&global(), &"IDBTransaction".into()).unwrap(), &"prototype".into());
    let _none = Replaced::new(&prototype.unwrap(), "commit", &JsValue::UNDEFINED);
    granted(store.transact(acquire("k", 1), now(), LIMIT).await);
    assert!(get_raw(&database, "k").await.is_string());
}

#[test]
async fn a_closed_store_says_so_and_lets_go_of_the_database() {
    let (store, database) = working_store("closed").await;
    let under_way = store.transact(acquire("k", 1), now(), LIMIT);
    let (reply, ()) = join(under_way, store.close()).await;
    granted(reply);
    let error = store.transact(acquire("k", 2), now(), LIMIT).await.unwrap_err();
    assert_eq!((error.kind, error.applied, error.retry), (StoreErrorKind::Closed, Applied::No, false));
    done(&indexed_db().delete_database(&database).unwrap()).await.unwrap();
}

#[test]
async fn it_does_not_open_after_it_was_closed_meanwhile() {
    let name = fresh_name("closed-meanwhile");
    let store = IndexedDbStore::new(&name);
    let (result, ()) = join(store.transact(acquire("k", 1), now(), LIMIT), store.close()).await;
    assert_eq!(result.unwrap_err().kind, StoreErrorKind::Closed);
    done(&indexed_db().delete_database(&format!("leasehold:{name}")).unwrap()).await.unwrap();
}

#[test]
async fn what_waits_for_the_database_to_open_is_not_begun_after_an_interruption() {
    let name = fresh_name("interrupted");
    let store = IndexedDbStore::new(&name);
    let mut early = store.transact(acquire("k", 1), now(), LIMIT);
    assert!((&mut early).now_or_never().is_none(), "the database is being opened");
    store.interrupt();
    let error = soon(early).await.unwrap_err();
    assert_eq!((error.applied, error.retry), (Applied::No, true));
    let reply = store.transact(acquire("k", 2), now(), LIMIT).await.unwrap();
    assert_eq!(ahead(&reply), 0, "nobody holds it");
}

#[test]
async fn an_interruption_ends_what_is_under_way_and_keeps_the_connection() {
    let (store, database) = working_store("interruption").await;
    let mut early = store.transact(acquire("k", 1), now(), LIMIT);
    assert!((&mut early).now_or_never().is_none(), "it is under way");
    store.interrupt();
    let again = "function () { throw new Error('opened again') }";
    let opened = Replaced::in_database(&database, "IDBFactory", "open", again);
    let error = soon(early).await.unwrap_err();
    assert_eq!((error.applied, error.retry), (Applied::No, true));
    let reply = store.transact(acquire("k", 2), now(), LIMIT).await.unwrap();
    assert_eq!(ahead(&reply), 0, "nobody holds it");
    drop(opened);
}
