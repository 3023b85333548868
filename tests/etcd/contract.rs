//! The contract that all stores keep.

use std::time::Duration;

use etcd_client::{Client, GetOptions};
use leasehold::{
    executor::process_clock,
    machine::{
        Acquire, Action, Batch, Key, Monotonic, Now, Operation, Outcome, RequestId, SessionId, SessionStep, StoreClock,
        Wall,
    },
    store::{Durability, EtcdStore, Store, contract},
};
use tokio::runtime::Runtime;

use crate::{
    connect,
    faults::{BUSY, ask},
    manager, names,
    server::{self, Server},
};

/// The user's own connection.
pub(crate) async fn client(address: &str) -> Client {
    let host = address.strip_prefix("etcd://").expect("it is an address");
    Client::connect([host], None).await.expect("it answers")
}

#[test]
fn it_keeps_the_contract() {
    let Some(address) = server::shared() else { return };
    let open = async || connect(&address, "contract").await;
    Runtime::new().unwrap().block_on(contract::all(open));
}

#[test]
fn it_says_what_its_leases_survive_and_that_its_clock_decides_nothing() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let store = connect(&address, "says").await;
        assert_eq!((store.durability(), store.clock()), (Durability::Quorum, StoreClock::Observed));
    });
}

#[test]
fn new_sessions_are_told_of_others() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        // Those of another store follow them in the order of their names.
        connect(&address, "peers/too").await.transact(ask(1), process_clock(), BUSY).await.unwrap();
        contract::new_sessions_are_told_of_others(async || connect(&address, "peers").await).await;
        let reply = connect(&address, "peers").await.transact(ask(91), process_clock(), BUSY).await;
        let told: Vec<_> = reply.unwrap().peers.iter().map(|peer| peer.session).collect();
        assert_eq!(told, [SessionId(92), SessionId(90)], "each once, from the next one on, and nobody else");
    });
}

#[test]
fn what_it_cannot_read_stays() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let open = async || connect(&address, "unreadable").await;
        let other = client(&address).await;
        let name = |key: &str| format!("unreadable/record/{key}");
        let put = async |key: String, text: String| drop(other.clone().put(name(&key), text, None).await.unwrap());
        let text = async |key: String| {
            let found = other.clone().get(name(&key), None).await.unwrap();
            found.kvs().first().map(|found| found.value_str().unwrap().to_owned())
        };
        contract::unreadable(open, put, text).await;
    });
}

#[test]
fn a_list_looks_at_no_name_that_nobody_uses() {
    let Some(address) = server::shared() else { return };
    let open = async || connect(&address, "names").await;
    Runtime::new().unwrap().block_on(names::a_list_looks_at_no_name_that_nobody_uses(open));
}

/// Another process ends the session, while this one still remembers the row of the session.
#[test]
fn a_session_that_ended_meanwhile_is_granted_nothing() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let (own, other) = (connect(&address, "ended").await, connect(&address, "ended").await);
        own.transact(ask(1), process_clock(), BUSY).await.unwrap();
        let end = Batch { step: SessionStep::Close, ..Batch::new(SessionId(1), Vec::new()) };
        other.transact(end, process_clock(), BUSY).await.unwrap();
        let acquire = Action::Acquire(Acquire::new(RequestId(2), 2));
        let another = Operation { key: Key::new("another").unwrap(), action: acquire };
        let reply = own.transact(Batch::new(SessionId(1), vec![another]), process_clock(), BUSY).await.unwrap();
        assert!(!matches!(reply.answers[0].outcome, Outcome::Granted(_)), "{reply:?}");
    });
}

#[test]
fn threads_take_turns() {
    let Some(address) = server::shared() else { return };
    let runtime = Runtime::new().unwrap();
    let open = async || connect(&address, "threads").await;
    contract::in_threads(open, |work| runtime.handle().block_on(work));
}

/// More than one page of them; a key with a NUL, and one that begins where another ends.
#[test]
fn keys_are_listed_by_their_prefix_in_order() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let store = connect(&address, "listed").await;
        let mut other = client(&address).await;
        for name in ["b", "a\u{0}", "a", "ab", "aé", "a\u{1f98a}", "A", ""] {
            other.put(format!("listed/record/{name}"), "{}", None).await.unwrap();
        }
        for number in 0..1_001 {
            other.put(format!("listed/record/many/{number:04}"), "{}", None).await.unwrap();
        }
        other.put("listed/recordings", "{}", None).await.unwrap();
        let keys = store.keys("a").await.unwrap();
        let listed: Vec<_> = keys.iter().map(Key::as_str).collect();
        assert_eq!(listed, ["a", "a\u{0}", "ab", "aé", "a\u{1f98a}"]);
        let many = store.keys("many/").await.unwrap();
        assert_eq!(many.len(), 1_001);
        assert!(many.is_sorted());
        assert_eq!(store.keys("").await.unwrap().len(), 1_008);
    });
}

/// What a process reads and writes alone it need not read again: each of these is one transaction.
#[test]
fn who_had_the_lease_last_needs_one_round_trip() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&[]);
    Runtime::new().unwrap().block_on(async {
        let long = Duration::from_secs(3_600);
        let leases = manager(&server.address(), "trips").await.linger(Duration::ZERO).lease(long).build().unwrap();
        leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        let before = server.transactions();
        for _ in 0..20 {
            leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        }
        assert_eq!(server.transactions() - before, 40, "an acquire and a release are one transaction each");
    });
}

/// Each context forgets what it no longer uses, but for the last few hundred keys. So it takes many contexts to leave many.
#[test]
fn a_store_with_many_idle_records_is_swept() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let etcd = client(&address).await;
        let records = async || {
            let options = GetOptions::new().with_prefix().with_count_only();
            etcd.clone().get("swept/record/", Some(options)).await.unwrap().count()
        };
        for context in 0..3 {
            let leases = manager(&address, "swept").await.linger(Duration::ZERO).build().unwrap();
            for name in 0..200 {
                let guard = leases.lock(&format!("{context}-{name}")).acquire().await.unwrap();
                guard.release().await.unwrap();
            }
            leases.close().await;
        }
        assert_eq!(records().await, 600, "idle records stay at first");
        let leases = manager(&address, "swept").await.build().unwrap();
        let guard = leases.lock("0-199").acquire().await.unwrap();
        while records().await > 1 {
            tokio::task::yield_now().await;
        }
        assert!(guard.is_valid());
        assert!(guard.token().as_u64() > 64, "tokens go on growing: {:?}", guard.token());
    });
}

/// Whoever remembers the store from before has a clock that is behind.
#[test]
fn the_tokens_of_a_forgotten_record_are_not_given_again_by_who_remembers_the_store_from_before() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let (one, other) = (connect(&address, "floor").await, connect(&address, "floor").await);
        let (early, late) = (now_at(1_000), now_at(1_000_000));
        one.transact(ask(1), early, BUSY).await.unwrap();
        let (key, mut elsewhere) = (Key::new("elsewhere").unwrap(), ask(2));
        elsewhere.operations[0].key = key.clone();
        let mut look = Batch::new(SessionId(1), vec![Operation { key: key.clone(), action: Action::Inspect }]);
        one.transact(look.clone(), early, BUSY).await.unwrap();
        let reply = other.transact(elsewhere.clone(), late, BUSY).await.unwrap();
        let Outcome::Granted(granted) = &reply.answers[0].outcome else { panic!("{reply:?}") };
        look.operations[0].action = Action::Release { token: granted.block.first, request: RequestId(1) };
        look.session = SessionId(2);
        other.transact(Batch { forgets: vec![key], ..look }, late, BUSY).await.unwrap();
        elsewhere.session = SessionId(3);
        let reply = one.transact(elsewhere, early, BUSY).await.unwrap();
        let Outcome::Granted(again) = &reply.answers[0].outcome else { panic!("{reply:?}") };
        assert!(again.block.first > granted.block.last, "{again:?} comes after {granted:?}");
    });
}

/// Forgetting raises the floor of tokens in the store's own row, which other contexts remember.
#[test]
fn forgetting_a_record_makes_nobody_else_begin_anew() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&[]);
    Runtime::new().unwrap().block_on(async {
        let address = server.address();
        let (one, other) = (connect(&address, "forgets").await, connect(&address, "forgets").await);
        let acquire = async |store: &EtcdStore, session: u8, key: &Key| {
            let mut batch = ask(session.into());
            batch.operations[0].key = key.clone();
            let reply = store.transact(batch, now_at(1_000), BUSY).await.unwrap();
            let Outcome::Granted(granted) = &reply.answers[0].outcome else { panic!("{reply:?}") };
            let action = Action::Release { token: granted.block.first, request: RequestId(1) };
            Batch::new(SessionId(session.into()), vec![Operation { key: key.clone(), action }])
        };
        let (kept, forgotten) = (Key::new("kept").unwrap(), Key::new("forgotten").unwrap());
        let release = acquire(&one, 1, &kept).await;
        let forgetting = Batch { forgets: vec![forgotten.clone()], ..acquire(&other, 2, &forgotten).await };
        let mut etcd = client(&address).await;
        let row = etcd.get("forgets/store", None).await.unwrap().kvs()[0].value().to_vec();
        other.transact(forgetting, now_at(1_000), BUSY).await.unwrap();
        assert_ne!(etcd.get("forgets/store", None).await.unwrap().kvs()[0].value(), row, "the floor is raised");
        let before = server.transactions();
        one.transact(release, now_at(1_000), BUSY).await.unwrap();
        assert_eq!(server.transactions() - before, 1, "transactions of a release");
    });
}

fn now_at(wall_ms: u64) -> Now {
    Now { monotonic: Monotonic::from_ms(1_000), wall: Wall::from_ms(wall_ms) }
}
