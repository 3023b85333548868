//! The contract that all stores keep.

use std::time::Duration;

use futures::executor::block_on;
use leasehold::{
    machine::{
        Acquire, Action, Applied, Batch, Beat, Key, Monotonic, Now, Operation, Outcome, RequestId, SessionId,
        SessionStep, StoreClock, StoreErrorKind, Wall,
    },
    signal::{DirectorySignals, contract::Half},
    store::{Durability, Reach, SqliteStore, Store, contract},
};
use rusqlite::OptionalExtension;
use tokio::runtime::Runtime;

use crate::{Scratch, connect, file, manager, names};

#[test]
fn it_keeps_the_contract() {
    let scratch = Scratch::new();
    let open = async || SqliteStore::open(file(&scratch.0)).unwrap();
    Runtime::new().unwrap().block_on(contract::all(open));
}

#[test]
fn it_says_what_its_leases_survive_and_that_its_clock_decides_nothing() {
    let scratch = Scratch::new();
    let store = SqliteStore::open(file(&scratch.0)).unwrap();
    assert_eq!((store.durability(), store.clock()), (Durability::Local, StoreClock::Observed));
}

#[test]
fn what_it_cannot_read_stays() {
    let scratch = Scratch::new();
    let open = async || SqliteStore::open(file(&scratch.0)).unwrap();
    drop(SqliteStore::open(file(&scratch.0)).unwrap());
    let other = connect(&scratch.0);
    let put = async |key: String, text: String| {
        let sql = "INSERT INTO leasehold_record VALUES (?1, ?2)";
        other.execute(sql, [key, text]).unwrap();
    };
    let text = async |key: String| {
        let sql = "SELECT state FROM leasehold_record WHERE key = ?1";
        other.query_row(sql, [key], |row| row.get(0)).optional().unwrap()
    };
    Runtime::new().unwrap().block_on(contract::unreadable(open, put, text));
}

#[test]
fn a_list_looks_at_no_name_that_nobody_uses() {
    let scratch = Scratch::new();
    let open = async || SqliteStore::open(file(&scratch.0)).unwrap();
    Runtime::new().unwrap().block_on(names::a_list_looks_at_no_name_that_nobody_uses(open));
}

/// It may have waited for other transactions of its process until its context counted it as failed.
#[test]
fn a_transaction_whose_time_is_over_is_not_begun() {
    let scratch = Scratch::new();
    let store = SqliteStore::open(file(&scratch.0)).unwrap();
    let step =
        SessionStep::Open { beat: Beat { beat: 1, lease_ms: 60_000, ..Beat::default() }, instance: String::new() };
    let batch = Batch { step, ..Batch::new(SessionId(1), Vec::new()) };
    let late = block_on(store.transact(batch, Now::default(), Duration::ZERO)).unwrap_err();
    assert_eq!((late.kind, late.applied), (StoreErrorKind::Busy, Applied::No), "{late}");
    let sessions: i64 =
        connect(&scratch.0).query_row("SELECT count(*) FROM leasehold_session", [], |row| row.get(0)).unwrap();
    assert_eq!(sessions, 0);
}

#[test]
fn new_sessions_are_told_of_others() {
    let scratch = Scratch::new();
    let open = async || SqliteStore::open(file(&scratch.0)).unwrap();
    block_on(contract::new_sessions_are_told_of_others(open));
}

/// The waiter is granted the key without waiting until the releasing context runs again.
#[test]
fn the_store_s_thread_notifies_the_waiter_that_it_grants() {
    let scratch = Scratch::new();
    let store = SqliteStore::open(file(&scratch.0)).unwrap();
    let Reach::Machine(directory) = store.reach() else { panic!("it is a file") };
    let listener = Half::new(DirectorySignals::new(directory));
    let key = Key::new("k").unwrap();
    let transact = |session, action| {
        let batch = Batch::new(SessionId(session), vec![Operation { key: key.clone(), action }]);
        let step =
            SessionStep::Open { beat: Beat { beat: 1, lease_ms: 60_000, ..Beat::default() }, instance: String::new() };
        let now = Now { monotonic: Monotonic::from_ms(1_000), wall: Wall::from_ms(1_000) };
        block_on(store.transact(Batch { step, ..batch }, now, Duration::from_secs(30))).unwrap().answers.remove(0)
    };
    for (round, listens) in [(1, false), (2, true)] {
        let (one, two) = (10 * round, 10 * round + 1);
        if listens {
            listener.obey(&format!("wake {two:x}"));
        }
        let acquire = || Action::Acquire(Acquire { wait: true, ..Acquire::new(RequestId(1), 1) });
        let Outcome::Granted(granted) = transact(one, acquire()).outcome else { panic!("it is free") };
        transact(two, acquire());
        let released = transact(one, Action::Release { token: granted.block.first, request: RequestId(1) });
        let told: Vec<_> = released.promoted.iter().map(|promotion| (promotion.holder, promotion.told)).collect();
        assert_eq!(told, [(SessionId(two), listens)]);
        let Outcome::Granted(granted) = transact(two, acquire()).outcome else { panic!("it inherited") };
        transact(two, Action::Release { token: granted.block.first, request: RequestId(1) });
    }
    let heard = || listener.obey("tell").contains("granted");
    let since = std::time::Instant::now();
    while !heard() {
        assert!(since.elapsed() < Duration::from_secs(30), "nothing was heard");
        std::thread::yield_now();
    }
}

/// Other jobs of the process came first, until its time limit was over. By then its context has given it up, and may have asked again.
#[test]
fn a_transaction_whose_turn_comes_too_late_is_not_begun() {
    let scratch = Scratch::new();
    let store = SqliteStore::open(file(&scratch.0)).unwrap();
    let acquire = Operation { key: Key::new("k").unwrap(), action: Action::Acquire(Acquire::new(RequestId(1), 1)) };
    let step =
        SessionStep::Open { beat: Beat { beat: 1, lease_ms: 60_000, ..Beat::default() }, instance: String::new() };
    let batch = Batch { step, ..Batch::new(SessionId(1), vec![acquire]) };
    let late = block_on(store.transact(batch, Now::default(), Duration::ZERO)).unwrap_err();
    assert_eq!((late.kind, late.applied), (StoreErrorKind::Busy, Applied::No), "{late}");
    assert!(block_on(store.keys("")).unwrap().is_empty(), "it took effect");
}

#[test]
fn threads_take_turns() {
    let scratch = Scratch::new();
    let open = async || SqliteStore::open(file(&scratch.0)).unwrap();
    contract::in_threads(open, |work| block_on(work));
}

/// A key with a NUL, and one that begins where another ends.
#[test]
fn keys_are_listed_by_their_prefix_in_order() {
    use leasehold::store::Store;
    let scratch = Scratch::new();
    let store = SqliteStore::open(file(&scratch.0)).unwrap();
    let other = connect(&scratch.0);
    let names = ["b", "a\u{0}", "a", "ab", "aé", "a\u{1f98a}", "A"];
    for name in names {
        other.execute("INSERT INTO leasehold_record VALUES (?1, '{}')", [name]).unwrap();
    }
    let listed = block_on(store.keys("a")).unwrap();
    let listed: Vec<_> = listed.iter().map(Key::as_str).collect();
    assert_eq!(listed, ["a", "a\u{0}", "ab", "aé", "a\u{1f98a}"]);
}

#[test]
fn it_needs_no_runtime() {
    let scratch = Scratch::new();
    let open = async || SqliteStore::open(file(&scratch.0)).unwrap();
    block_on(contract::all(open));
}

/// Each context forgets what it no longer uses, but for the last few hundred keys. So it takes many contexts to leave many.
#[test]
fn a_file_with_many_idle_records_is_swept() {
    let scratch = Scratch::new();
    let other = || connect(&scratch.0);
    let count = "SELECT count(*) FROM leasehold_record";
    let records = || other().query_row(count, [], |row| row.get::<_, i64>(0)).unwrap();
    Runtime::new().unwrap().block_on(async {
        for context in 0..3 {
            let leases = manager(&scratch.0).linger(Duration::ZERO).build().unwrap();
            for name in 0..200 {
                let guard = leases.lock(&format!("{context}-{name}")).acquire().await.unwrap();
                guard.release().await.unwrap();
            }
            leases.close().await;
        }
        assert_eq!(records(), 600, "idle records stay at first");
        let leases = manager(&scratch.0).build().unwrap();
        let guard = leases.lock("0-199").acquire().await.unwrap();
        while records() > 1 {
            tokio::task::yield_now().await;
        }
        assert!(guard.is_valid());
        assert!(guard.token().as_u64() > 64, "tokens go on growing: {:?}", guard.token());
    });
}
