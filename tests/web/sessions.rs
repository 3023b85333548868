//! Sessions in IndexedDB: what a transaction asks for and writes, and what it does with rows that it cannot read.

use futures::{FutureExt, future::join_all};
use js_sys::{Array, Object, Reflect, global};
use leasehold::{
    LeaseManager,
    executor::WebExecutor,
    machine::{
        Acquire, Action, Applied, Batch, Beat, Entry, FORMAT, Outcome, Reply, RequestId, SessionId, SessionStep,
        StoreErrorKind, Way,
    },
    store::{IndexedDbStore, Store},
};
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::{
    indexed_db::{LIMIT, acquire, ask, granted, now, working_store},
    platform::{Replaced, done, fresh_name, get_raw, open_raw, put_raw, session_row, settle, soon, store_row, until},
};

/// What is asked of one database from now on: the names of the methods.
pub(super) struct Asked {
    calls: Array,
    _replaced: Vec<Replaced>,
}

impl Asked {
    pub(super) fn of(database: &str) -> Self {
        let calls = Array::new();
        // A name of its own: tests run beside each other.
        let list: String = ["asked of ", database].concat();
        Reflect::set(&global(), &list.as_str().into(), &calls).unwrap();
        let methods = ["get", "getAll", "getAllKeys", "count", "put", "delete", "openCursor"];
        let note = |method: &'static str| {
            let note = format!(
                "function (...given) {{
                    globalThis['{list}'].push('{method}', given[{}]);
                    return original.apply(this, given);
                }}",
                usize::from(method == "put"),
            );
            Replaced::in_database(database, "IDBObjectStore", method, &note)
        };
        Self { calls, _replaced: methods.map(note).into() }
    }

    /// The methods that were called since, in order.
    pub(super) fn methods(&self) -> Vec<String> {
        let methods = self.calls.iter().step_by(2).map(|method| method.as_string().unwrap()).collect();
        self.calls.set_length(0);
        methods
    }
}

fn beat(session: u128, beat: u64) -> Batch {
    let step = SessionStep::Beat(Beat { beat, lease_ms: 20_000, ..Beat::default() });
    Batch { step, ..Batch::new(SessionId(session), Vec::new()) }
}

/// Asks for a lease without waiting, in a session that is open.
pub(super) fn another(key: &str, session: u128, request: u64) -> Batch {
    ask(key, session, Action::Acquire(Acquire::new(RequestId(request), request)))
}

#[test]
async fn all_that_a_transaction_needs_is_asked_for_in_one_round() {
    let (store, database) = working_store("round").await;
    store.transact(acquire("first", 2), now(), LIMIT).await.unwrap();
    // Held by one, waited for by another: it is a third that comes.
    let asked = Asked::of(&database);
    let reply = store.transact(acquire("first", 3), now(), LIMIT).await.unwrap();
    assert!(matches!(reply.answers[0].outcome, Outcome::Waiting { position: 2, .. }), "{reply:?}");
    assert_eq!(
        asked.methods(),
        ["get", "getAll", "put", "put"],
        "the record, and all that stands beside the records; two rows"
    );
    store.transact(ask("first", 3, Action::Look), now(), LIMIT).await.unwrap();
    assert_eq!(asked.methods(), ["get", "getAll"]);
    store.transact(beat(3, 2), now(), LIMIT).await.unwrap();
    assert_eq!(asked.methods(), ["get", "get", "put"], "the store and the own row; the own row");
}

/// The same batch; its sender is sure of its session for this long.
pub(super) fn sure(sure_ms: u64, batch: Batch) -> Batch {
    Batch { sure_ms, ..batch }
}

/// Gives back what was granted by this reply.
pub(super) fn release(key: &str, session: u128, request: u64, reply: &Reply) -> Batch {
    let Outcome::Granted(granted) = &reply.answers[0].outcome else { panic!("{reply:?}") };
    ask(key, session, Action::Release { token: granted.block.first, request: RequestId(request) })
}

#[test]
async fn who_is_sure_of_its_session_reads_the_record_alone() {
    let (store, database) = working_store("alone").await;
    let held = granted(store.transact(acquire("k", 2), now(), LIMIT).await);
    let asked = Asked::of(&database);
    let reply = store.transact(sure(9_000, release("k", 2, 1, &held)), now(), LIMIT).await.unwrap();
    assert_eq!(reply.answers[0].outcome, Outcome::Released);
    assert_eq!(asked.methods(), ["get", "put"]);
    let again = granted(store.transact(sure(9_000, another("k", 2, 2)), now(), LIMIT).await);
    assert_eq!(asked.methods(), ["get", "put"]);
    assert_eq!((again.store, &again.robbed), (held.store, &Some(Vec::new())));
    store.transact(release("k", 2, 2, &again), now(), LIMIT).await.unwrap();
    assert_eq!(asked.methods(), ["get", "getAll", "put"], "nobody was sure");
    granted(store.transact(sure(9_000, another("new", 2, 3)), now(), LIMIT).await);
    assert_eq!(
        asked.methods(),
        ["get", "getAll", "put"],
        "only the store's row says where the tokens of a new key begin"
    );
}

#[test]
async fn the_sessions_are_read_after_all_where_the_record_is_not_enough() {
    let (store, database) = working_store("not alone").await;
    let held = granted(store.transact(acquire("k", 2), now(), LIMIT).await);
    store.transact(acquire("k", 3), now(), LIMIT).await.unwrap();
    let asked = Asked::of(&database);
    let reply = store.transact(sure(9_000, release("k", 2, 1, &held)), now(), LIMIT).await.unwrap();
    assert_eq!(asked.methods(), ["get", "getAll", "put"]);
    assert_eq!(reply.answers[0].promoted.len(), 1, "the one who waits: {reply:?}");
    // The next one asks for them at once: the key is wanted.
    let busy = store.transact(sure(9_000, another("k", 2, 2)), now(), LIMIT).await.unwrap();
    assert!(matches!(&busy.answers[0].outcome, Outcome::Busy { ahead } if ahead[0].lease_ms == 20_000), "{busy:?}");
}

#[test]
async fn who_misses_its_lease_reads_in_its_session_that_it_was_stolen() {
    let (store, database) = working_store("misses").await;
    let held = granted(store.transact(acquire("k", 2), now(), LIMIT).await);
    granted(store.transact(acquire("other", 3), now(), LIMIT).await);
    let thief = Action::Acquire(Acquire { way: Way::Steal, ..Acquire::new(RequestId(2), 2) });
    let stolen = granted(store.transact(ask("k", 3, thief), now(), LIMIT).await);
    store.transact(sure(9_000, release("k", 3, 2, &stolen)), now(), LIMIT).await.unwrap();
    let asked = Asked::of(&database);
    let reply = store.transact(sure(9_000, release("k", 2, 1, &held)), now(), LIMIT).await.unwrap();
    assert_eq!(asked.methods(), ["get", "getAll"]);
    assert!(matches!(reply.answers[0].outcome, Outcome::NotCurrent { stolen: true, .. }), "{reply:?}");
}

#[test]
async fn who_was_sure_too_long_ago_reads_its_session() {
    let (store, database) = working_store("too long ago").await;
    let held = granted(store.transact(acquire("k", 2), now(), LIMIT).await);
    let asked = Asked::of(&database);
    let mut releasing = Box::pin(store.transact(sure(200, release("k", 2, 1, &held)), now(), LIMIT));
    assert!((&mut releasing).now_or_never().is_none());
    assert_eq!(asked.methods(), ["get", "put"], "it is asked for while it is sure");
    let begun = now().monotonic;
    while now().monotonic.since(begun) < 250 {
        // The answer is heard after this.
    }
    assert_eq!(releasing.await.unwrap().answers[0].outcome, Outcome::Released);
    assert_eq!(asked.methods(), ["put", "getAll", "put"], "what was foreseen is put back");
}

#[test]
async fn a_list_costs_two_requests_however_many_records_are_idle() {
    let (store, database) = working_store("list").await;
    granted(store.transact(acquire("held", 2), now(), LIMIT).await);
    for number in 2..40 {
        let name = format!("idle {number}");
        let held = granted(store.transact(another(&name, 2, number), now(), LIMIT).await);
        store.transact(release(&name, 2, number, &held), now(), LIMIT).await.unwrap();
    }
    put_raw(&database, "unreadable", &"nonsense".into()).await;
    let asked = Asked::of(&database);
    let names = store.keys("").await.unwrap();
    assert_eq!(asked.methods(), ["getAll", "getAllKeys"]);
    assert_eq!(names.iter().map(|key| key.as_str()).collect::<Vec<_>>(), ["first", "held", "unreadable"]);
}

#[test]
async fn a_heartbeat_of_a_thousand_leases_writes_one_small_row() {
    let (store, database) = working_store("thousand").await;
    let held = (1..=1_000).map(|number| store.transact(another(&format!("k{number}"), 1, number + 1), now(), LIMIT));
    join_all(held).await.into_iter().for_each(|reply| drop(granted(reply)));
    let asked = Asked::of(&database);
    let reply = store.transact(beat(1, 1_000_000_000), now(), LIMIT).await.unwrap();
    assert_eq!(reply.robbed, Some(Vec::new()));
    assert_eq!(asked.methods(), ["get", "get", "put"]);
    let row = get_raw(&database, session_row(SessionId(1))).await.as_string().unwrap();
    assert!(row.contains("\"beat\":1000000000,"), "{row}");
    assert!(row.len() <= 200, "{} bytes: {row}", row.len());
}

#[test]
async fn an_abandoned_session_is_deleted_without_being_read() {
    let (store, database) = working_store("blind").await;
    granted(store.transact(acquire("k", 1), now(), LIMIT).await);
    let asked = Asked::of(&database);
    store.abandon(SessionId(1));
    assert_eq!(asked.methods(), ["delete"]);
    // What comes after it sees it.
    let reply = store.transact(acquire("k", 2), now(), LIMIT).await;
    granted(reply);
    assert!(get_raw(&database, session_row(SessionId(1))).await.is_undefined());
    assert_eq!(store.transact(beat(1, 2), now(), LIMIT).await.unwrap().robbed, None, "it has ended for ever");
}

#[test]
async fn an_abandoned_session_is_deleted_after_an_interruption_too() {
    let (store, database) = working_store("frozen").await;
    let early = store.transact(acquire("k", 1), now(), LIMIT);
    let mut early = Box::pin(early);
    assert!((&mut early).now_or_never().is_none(), "it is under way");
    store.abandon(SessionId(1));
    store.interrupt();
    soon(early).await.unwrap_err();
    until(async || get_raw(&database, session_row(SessionId(1))).await.is_undefined()).await;
}

/// A page of a later version is open beside this one.
#[test]
async fn a_session_whose_row_is_of_a_newer_format_keeps_what_it_holds() {
    let (store, database) = working_store("newer-session").await;
    let own = get_raw(&database, session_row(SessionId(1))).await.as_string().unwrap();
    let (old, new) = (format!("\"format\":{FORMAT},"), format!("\"format\":{},\"more\":[{{}}],", FORMAT + 1));
    let newer = own.replacen(&old, &new, 1);
    assert_ne!(newer, own);
    put_raw(&database, session_row(SessionId(1)), &newer.as_str().into()).await;
    let reply = store.transact(acquire("first", 2), now(), LIMIT).await.unwrap();
    let Outcome::Waiting { ahead, .. } = &reply.answers[0].outcome else { panic!("{reply:?}") };
    assert!(ahead[0].holder == SessionId(1) && matches!(ahead[0].entry, Entry::Grant(_)), "{ahead:?}");
    // Neither is it written.
    store.transact(beat(1, 77), now(), LIMIT).await.unwrap();
    assert_eq!(get_raw(&database, session_row(SessionId(1))).await, newer.as_str());
}

#[test]
async fn a_store_row_that_cannot_be_read_is_refused_and_nothing_is_written() {
    let (_, database) = working_store("unreadable-store").await;
    let newer = format!(r#"{{"format":{},"store":"00"}}"#, FORMAT + 1);
    for value in [newer.as_str().into(), JsValue::from("garbage"), Object::new().into()] {
        put_raw(&database, store_row(), &value).await;
        let store = IndexedDbStore::new(database.strip_prefix("leasehold:").unwrap());
        let asked = Asked::of(&database);
        for batch in [acquire("k", 2), beat(1, 2)] {
            let error = store.transact(batch, now(), LIMIT).await.unwrap_err();
            assert_eq!((error.kind, error.applied, error.retry), (StoreErrorKind::Unavailable, Applied::No, false));
        }
        assert!(asked.methods().iter().all(|method| method != "put"));
        drop(asked);
        assert!(get_raw(&database, "k").await.is_undefined());
        store.close().await;
    }
}

/// How many records there are: names that are strings.
async fn records(database: &str) -> usize {
    let database = open_raw(database).await;
    let leases = database.transaction_with_str("leases").unwrap().object_store("leases").unwrap();
    let names = done(&leases.get_all_keys().unwrap()).await.unwrap();
    database.close();
    Array::from(&names).iter().filter(JsValue::is_string).count()
}

/// Takes and releases this many keys.
async fn use_once(store: &IndexedDbStore, keys: u64) {
    let mut last = 1;
    for number in 0..keys {
        let key = format!("idle{number}");
        let reply = granted(store.transact(another(&key, 1, number + 2), now(), LIMIT).await);
        let Outcome::Granted(held) = reply.answers[0].outcome else { unreachable!() };
        last = held.block.last.as_u64().max(last);
        let release = Action::Release { token: held.block.first, request: RequestId(number + 2) };
        store.transact(ask(&key, 1, release), now(), LIMIT).await.unwrap();
    }
}

#[test]
async fn of_very_many_records_the_idle_ones_go_when_a_connection_opens() {
    let (store, database) = working_store("sweep").await;
    use_once(&store, 512).await;
    let before = records(&database).await;
    assert_eq!(before, 513);
    let again = IndexedDbStore::new(database.strip_prefix("leasehold:").unwrap());
    again.transact(ask("idle7", 1, Action::Inspect), now(), LIMIT).await.unwrap();
    until(async || records(&database).await == 1).await;
    // What is held stays, and tokens grow past all that was forgotten.
    let reply = again.transact(ask("first", 1, Action::Inspect), now(), LIMIT).await.unwrap();
    assert!(matches!(&reply.answers[0].outcome, Outcome::Status { grants, .. } if grants.len() == 1), "{reply:?}");
    let row = get_raw(&database, store_row()).await.as_string().unwrap();
    assert!(!row.contains("\"floor\":0"), "{row}");
}

/// Tabs that were closed while they held: each key belongs to a session that is gone.
#[test]
async fn of_very_many_records_those_of_ended_sessions_go_too() {
    let (store, database) = working_store("sweep-ended").await;
    granted(store.transact(acquire("left", 2), now(), LIMIT).await);
    for number in 0..512 {
        granted(store.transact(another(&format!("left{number}"), 2, number + 3), now(), LIMIT).await);
    }
    store.abandon(SessionId(2));
    until(async || get_raw(&database, session_row(SessionId(2))).await.is_undefined()).await;
    assert_eq!(records(&database).await, 514);
    let again = IndexedDbStore::new(database.strip_prefix("leasehold:").unwrap());
    again.transact(ask("first", 1, Action::Inspect), now(), LIMIT).await.unwrap();
    until(async || records(&database).await == 1).await;
}

#[test]
async fn of_few_records_none_goes() {
    let (store, database) = working_store("few").await;
    use_once(&store, 20).await;
    let again = IndexedDbStore::new(database.strip_prefix("leasehold:").unwrap());
    again.transact(ask("idle7", 1, Action::Inspect), now(), LIMIT).await.unwrap();
    settle().await;
    assert_eq!(records(&database).await, 21);
}

#[test]
async fn a_manager_that_is_closed_leaves_no_row_of_its_own() {
    let name = fresh_name("rows");
    let database = format!("leasehold:{name}");
    let leases = LeaseManager::builder(IndexedDbStore::new(&name), WebExecutor::new()).build().unwrap();
    let session = leases.session();
    let guard = soon(leases.lock("k").acquire()).await.unwrap();
    assert!(get_raw(&database, session_row(session)).await.is_string());
    guard.release().await.unwrap();
    leases.close().await;
    until(async || get_raw(&database, session_row(session)).await.is_undefined()).await;
}
