//! Reservations of records that nobody uses, or that take long.

use std::time::{Duration, Instant};

use etcd_client::{GetOptions, KeyValue};
use futures::future::{Either, select};
use leasehold::{
    Mode,
    executor::process_clock,
    machine::{
        Acquire, Action, Applied, Batch, Beat, Key, Operation, Outcome, RequestId, SessionId, SessionStep,
        StoreErrorKind,
    },
    store::{EtcdStore, Store},
};
use tokio::{
    runtime::Runtime,
    task::yield_now,
    time::{sleep, timeout},
};

use crate::{address_of, connect, contract::client, faults::BUSY, manager, proxy::Way, proxy_before, server};

const LONG: Duration = Duration::from_secs(3_600);

fn at_k(action: Action) -> Operation {
    Operation { key: Key::new("k").unwrap(), action }
}

fn open(session: u128, operation: Operation) -> Batch {
    let mut batch = Batch::new(SessionId(session), vec![operation]);
    let beat = Beat { beat: 1, lease_ms: 1_000_000, ..Beat::default() };
    batch.step = SessionStep::Open { beat, instance: String::new() };
    batch
}

fn waiting(request: u64) -> Operation {
    let mut acquire = Acquire::new(RequestId(request), request);
    acquire.wait = true;
    at_k(Action::Acquire(acquire))
}

async fn reserve(address: &str, prefix: &str, text: &str) {
    client(address).await.put(format!("{prefix}/reserved/k"), text, None).await.unwrap();
}

async fn is_reserved(address: &str, prefix: &str) -> bool {
    !client(address).await.get(format!("{prefix}/reserved/k"), None).await.unwrap().kvs().is_empty()
}

/// A store time-out of such a lease is shorter than a reservation may stand.
#[test]
fn a_reservation_of_a_dead_context_ends_for_contexts_with_short_leases() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        for text in ["abc 1000", "abc", "", "abc 1000000"] {
            let leases = manager(&address, "dead").await.lease(Duration::from_secs(1)).linger(Duration::ZERO);
            let leases = leases.build().unwrap();
            reserve(&address, "dead", text).await;
            let guard = timeout(BUSY, leases.lock("k").timeout(BUSY).acquire()).await.unwrap().unwrap();
            reserve(&address, "dead", text).await;
            // The call may end before the release is done; the release goes on.
            let since = Instant::now();
            drop(guard.release().await);
            while !leases.status("k").await.is_ok_and(|status| status.holders.is_empty()) {
                assert!(since.elapsed() < BUSY, "{text:?}: a reservation keeps the lease from being released");
            }
            assert!(!is_reserved(&address, "dead").await, "{text:?} is left");
            leases.close().await;
        }
    });
}

/// Somebody deletes the record meanwhile, so that the release finds nothing to do.
#[test]
fn a_transaction_that_writes_nothing_leaves_no_reservation() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let proxy = proxy_before(&address);
        let (near, far) = (connect(&address, "noop").await, connect(&address_of(&proxy), "noop").await);
        for round in 1..20 {
            proxy.delay(Way::ToServer, Duration::ZERO);
            let reply = far.transact(open(round.into(), waiting(round)), process_clock(), BUSY).await;
            let Outcome::Granted(granted) = reply.unwrap().answers.remove(0).outcome else { panic!("it is free") };
            let action = Action::Release { token: granted.block.first, request: RequestId(round) };
            let release = Batch::new(SessionId(round.into()), vec![at_k(action)]);
            proxy.delay(Way::ToServer, Duration::from_millis(200));
            let mut again = std::pin::pin!(far.transact(release, process_clock(), BUSY));
            let overtakes = overtake_until_reserved(&address, &near, round);
            let is_overtaken = matches!(select(again.as_mut(), std::pin::pin!(overtakes)).await, Either::Right(_));
            client(&address).await.delete("noop/record/k", None).await.unwrap();
            // Else it was not overtaken often enough.
            if is_overtaken && matches!(again.await.unwrap().answers[0].outcome, Outcome::NotCurrent { .. }) {
                assert!(!is_reserved(&address, "noop").await, "nobody will use this reservation");
                return;
            }
        }
        panic!("the far one was never overtaken between its reservation and its write");
    });
}

/// Another one comes and goes. It gives up soon, so as to see a reservation that stands in its way.
async fn overtake_until_reserved(address: &str, near: &EtcdStore, round: u64) {
    let (other, soon) = (u128::from(round) + 1_000, Duration::from_millis(80));
    drop(near.transact(open(other, waiting(1)), process_clock(), BUSY).await);
    for number in 2.. {
        if is_reserved(address, "noop").await {
            return;
        }
        let goes = at_k(Action::Withdraw { request: RequestId(number - 1) });
        let batch = Batch::new(SessionId(other), vec![goes, waiting(number)]);
        drop(near.transact(batch, process_clock(), soon).await);
    }
}

/// A reservation stands for longer if its maker is further away.
#[test]
fn a_context_that_is_very_far_away_acquires_the_key_too() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let proxy = proxy_before(&address);
        for _ in 0..2 {
            let near = manager(&address, "very-far").await.lease(LONG).linger(Duration::ZERO).build().unwrap();
            tokio::spawn(async move {
                loop {
                    near.lock("k").acquire().await.unwrap().release().await.unwrap();
                }
            });
        }
        let far = manager(&address_of(&proxy), "very-far").await.lease(LONG).linger(Duration::ZERO);
        let far = far.store_timeout(BUSY).build().unwrap();
        drop(far.lock("other").acquire().await.unwrap());
        proxy.delay(Way::ToServer, Duration::from_millis(600));
        let guard = timeout(BUSY, far.lock("k").acquire()).await.unwrap().unwrap();
        guard.release().await.unwrap();
    });
}

/// Acquires and releases the key in a loop, with a new session each time, as a command-line tool does.
async fn take_turns(store: EtcdStore, first: u128) {
    for session in first.. {
        let acquire = at_k(Action::Acquire(Acquire::new(RequestId(1), 1)));
        let Ok(reply) = store.transact(open(session, acquire), process_clock(), BUSY).await else {
            // While the test's runtime shuts down, every transaction fails at once. Without this yield, the shutdown would never finish.
            yield_now().await;
            continue;
        };
        if let Outcome::Granted(granted) = &reply.answers[0].outcome {
            sleep(Duration::from_millis(20)).await;
            let action = Action::Release { token: granted.block.first, request: RequestId(1) };
            drop(store.transact(Batch::new(SessionId(session), vec![at_k(action)]), process_clock(), BUSY).await);
        }
    }
}

/// Each holder has a new session, so the far context must read that session, too, before it can write.
#[test]
fn a_context_that_is_very_far_away_acquires_the_key_of_contexts_that_come_and_go() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let proxy = proxy_before(&address);
        for near in 1..=3_u128 {
            tokio::spawn(take_turns(connect(&address, "come-and-go").await, near * 1_000_000_000));
        }
        let far = manager(&address_of(&proxy), "come-and-go").await.lease(LONG).linger(Duration::ZERO);
        // The near contexts send no messages, so the far one must look by itself, once a second.
        let far = far.store_timeout(BUSY).heartbeat(Duration::from_secs(1)).build().unwrap();
        for delay_ms in [200, 400, 600, 800] {
            proxy.delay(Way::ToServer, Duration::ZERO);
            drop(far.lock("other").acquire().await.unwrap());
            proxy.delay(Way::ToServer, Duration::from_millis(delay_ms));
            let granted = timeout(BUSY, far.lock("k").acquire()).await;
            let guard = granted.unwrap_or_else(|_| panic!("it starves at {delay_ms} ms")).unwrap();
            guard.release().await.unwrap();
        }
    });
}

#[test]
fn a_reservation_with_the_text_of_an_earlier_one_counts_anew() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let store = connect(&address, "anew").await;
        store.transact(open(1, waiting(1)), process_clock(), BUSY).await.unwrap();
        for session in 2..5 {
            reserve(&address, "anew", "abc 500 77").await;
            let since = Instant::now();
            store.transact(open(session, waiting(1)), process_clock(), BUSY).await.unwrap();
            assert!(since.elapsed() >= Duration::from_millis(450), "session {session}: {:?}", since.elapsed());
        }
    });
}

/// Otherwise the reservations of dead contexts would pile up.
#[test]
fn a_record_that_is_forgotten_leaves_no_reservation() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&address, "forgotten").await.lease(LONG).linger(Duration::ZERO).build().unwrap();
        let mut etcd = client(&address).await;
        for key in 0..600 {
            let key = format!("k{key}");
            leases.lock(&key).acquire().await.unwrap().release().await.unwrap();
            etcd.put(format!("forgotten/reserved/{key}"), "abc 250 1", None).await.unwrap();
        }
        leases.close().await;
        let mut names = async |kind: &str| {
            let prefix = format!("forgotten/{kind}/");
            let found =
                etcd.get(prefix.as_str(), Some(GetOptions::new().with_prefix().with_keys_only())).await.unwrap();
            let name = |key: &KeyValue| key.key_str().unwrap().replace(&prefix, "");
            found.kvs().iter().map(name).collect::<Vec<_>>()
        };
        let (records, reserved) = (names("record").await, names("reserved").await);
        assert!(records.len() < 600, "no record was forgotten");
        assert!(reserved.iter().all(|key| records.contains(key)), "{} of {}", reserved.len(), records.len());
    });
}

/// etcd takes 128 operations. What deletes their reservations must not make records too many that fit.
#[test]
fn records_that_fit_into_a_transaction_are_forgotten_together() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let store = connect(&address, "forgets").await;
        let keys: Vec<_> = (0..70).map(|number| Key::new(&format!("k{number}")).unwrap()).collect();
        let each = |action: &dyn Fn(u64) -> Action| {
            let operations =
                (1..).zip(&keys).map(|(number, key)| Operation { key: key.clone(), action: action(number) });
            operations.collect::<Vec<_>>()
        };
        let acquire = |number| Action::Acquire(Acquire { wait: true, ..Acquire::new(RequestId(number), number) });
        let mut batch = open(1, waiting(100));
        batch.operations = each(&acquire);
        store.transact(batch, process_clock(), BUSY).await.unwrap();
        let withdraw = |number| Action::Withdraw { request: RequestId(number) };
        store.transact(Batch::new(SessionId(1), each(&withdraw)), process_clock(), BUSY).await.unwrap();
        let mut batch = Batch::new(SessionId(1), Vec::new());
        batch.forgets = keys;
        store.transact(batch, process_clock(), BUSY).await.unwrap();
    });
}

/// A transaction that another one has overtaken asks for the reservations, too, which takes operations of their own.
#[test]
fn records_that_fit_are_forgotten_together_by_a_second_attempt_too() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        for many in [60, 64, 100] {
            let prefix = format!("overtaken-{many}");
            let (one, two) = (connect(&address, &prefix).await, connect(&address, &prefix).await);
            let gives_back = |request| at_k(Action::Withdraw { request: RequestId(request) });
            one.transact(open(1, waiting(1)), process_clock(), BUSY).await.unwrap();
            one.transact(Batch::new(SessionId(1), vec![gives_back(1)]), process_clock(), BUSY).await.unwrap();
            two.transact(open(2, waiting(2)), process_clock(), BUSY).await.unwrap();
            two.transact(Batch::new(SessionId(2), vec![gives_back(2)]), process_clock(), BUSY).await.unwrap();
            let mut batch = Batch::new(SessionId(1), vec![waiting(3)]);
            batch.forgets = (0..many).map(|number| Key::new(&format!("k{number}")).unwrap()).collect();
            for key in &batch.forgets {
                let mut etcd = client(&address).await;
                let record = etcd.get(format!("{prefix}/record/k"), None).await.unwrap();
                let text = record.kvs()[0].value().to_vec();
                etcd.put(format!("{prefix}/record/{key}"), text, None).await.unwrap();
            }
            let forgotten = one.transact(batch, process_clock(), BUSY).await;
            assert!(forgotten.is_ok(), "{many} records: {forgotten:?}");
        }
    });
}

/// Then a request that waits goes on.
#[test]
fn whoever_waited_for_reservations_until_its_time_limit_is_told_that_the_store_is_busy() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let store = connect(&address, "busy").await;
        let mut etcd = client(&address).await;
        let others = tokio::spawn(async move {
            for number in 0.. {
                etcd.put("busy/reserved/k", format!("abc{number} 1000"), None).await.unwrap();
                sleep(Duration::from_millis(60)).await;
            }
        });
        while !is_reserved(&address, "busy").await {}
        let (mut busy, mut answers) = (0, Vec::new());
        for session in 1.. {
            let asked = store.transact(open(session, waiting(1)), process_clock(), Duration::from_millis(600)).await;
            match asked {
                Err(error) if error.kind == StoreErrorKind::Busy => {
                    assert_eq!(error.applied, Applied::No, "{error}");
                    busy += 1;
                }
                // The server did not answer in time, or a reservation ran out: the machine was busy.
                answer => answers.push(answer),
            }
            if busy == 3 {
                break;
            }
            assert!(answers.len() < 20, "others have reserved it: {answers:?}");
        }
        others.abort();
    });
}

/// A reservation has no room beside very many rows.
#[test]
fn a_transaction_that_fits_alone_fits_after_it_was_overtaken_too() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        for (readers, prefix) in [(120, "rows120"), (121, "rows121"), (122, "rows122"), (123, "rows123")] {
            let store = connect(&address, prefix).await;
            for session in 1..=readers {
                let acquire = Acquire { mode: Mode::Shared, ..Acquire::new(RequestId(1), 1) };
                let asked = open(session, at_k(Action::Acquire(acquire)));
                let reply = store.transact(asked, process_clock(), BUSY).await.unwrap();
                assert!(matches!(reply.answers[0].outcome, Outcome::Granted(_)));
            }
            store.transact(open(9_001, waiting(1)), process_clock(), BUSY).await.unwrap();
            let withdrawn = Batch::new(SessionId(9_001), vec![at_k(Action::Withdraw { request: RequestId(1) })]);
            store.transact(withdrawn, process_clock(), BUSY).await.unwrap();
            reserve(&address, prefix, "abc 300").await;
            // What another handle wrote is not known here.
            let other = connect(&address, prefix).await;
            let acquire = Acquire { mode: Mode::Shared, ..Acquire::new(RequestId(1), 1) };
            let reader = open(9_002, at_k(Action::Acquire(acquire)));
            let (first, second) = tokio::join!(
                store.transact(open(9_003, waiting(1)), process_clock(), BUSY),
                other.transact(reader, process_clock(), BUSY)
            );
            first.unwrap();
            second.unwrap();
        }
    });
}

/// etcd counts the compares, too: one for each reservation.
#[test]
fn a_transaction_for_several_keys_that_fits_alone_fits_after_it_was_overtaken_too() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        for (readers, prefix) in [(90, "keys90"), (95, "keys95"), (101, "keys101")] {
            let store = connect(&address, prefix).await;
            for session in 1..=readers {
                let acquire = Acquire { mode: Mode::Shared, ..Acquire::new(RequestId(1), 1) };
                let asked = open(session, at_k(Action::Acquire(acquire)));
                store.transact(asked, process_clock(), BUSY).await.unwrap();
            }
            reserve(&address, prefix, "abc 300").await;
            // What the first handle wrote is not known here.
            let other = connect(&address, prefix).await;
            let mut eight = open(9_001, waiting(1));
            for number in 2..9 {
                let key = Key::new(&format!("k{number}")).unwrap();
                eight.operations.push(Operation { key, ..waiting(number) });
            }
            other.transact(eight, process_clock(), BUSY).await.unwrap();
        }
    });
}

/// As a part of a prefix, it would make two stores meet.
#[test]
fn the_reservations_of_one_store_are_no_rows_of_another() {
    Runtime::new().unwrap().block_on(async {
        let refused = EtcdStore::connect_with_prefix("localhost", "apps/reserved").await.unwrap_err();
        assert!(refused.message.contains("apps/reserved") && refused.message.contains("no part"), "{refused}");
    });
}

/// Measures a transaction whose handle remembers a reservation of its own. The handle had no time left to use the reservation, which has
/// been deleted since. Each round trip takes 300 ms.
async fn with_a_reservation_that_is_gone(address: &str, prefix: &str) -> Duration {
    let proxy = proxy_before(address);
    let (near, far) = (connect(address, prefix).await, connect(&address_of(&proxy), prefix).await);
    let transact = async |batch, limit| far.transact(batch, process_clock(), limit).await;
    let next = |operation| Batch::new(SessionId(1), vec![operation]);
    let elsewhere = |number| Operation { key: Key::new("elsewhere").unwrap(), ..waiting(number) };
    transact(open(1, waiting(1)), BUSY).await.unwrap();
    proxy.delay(Way::ToServer, Duration::from_millis(200));
    for number in 2.. {
        assert!(number < 20, "it always had enough time");
        // The far handle's first transaction comes too late, so its second one reserves at once, but has no time for another attempt.
        drop(transact(next(elsewhere(number)), Duration::from_millis(50)).await);
        near.transact(open(1_000 + u128::from(number), waiting(1)), process_clock(), BUSY).await.unwrap();
        drop(transact(next(waiting(number)), Duration::from_millis(380)).await);
        if is_reserved(address, prefix).await {
            break;
        }
    }
    proxy.delay(Way::ToServer, Duration::ZERO);
    // This transaction succeeds, so the next one does not reserve at once.
    transact(next(elsewhere(100)), BUSY).await.unwrap();
    transact(next(at_k(Action::Inspect)), BUSY).await.unwrap();
    client(address).await.delete(format!("{prefix}/reserved/k"), None).await.unwrap();
    proxy.delay(Way::ToServer, Duration::from_millis(300));
    let since = Instant::now();
    transact(next(waiting(200)), BUSY).await.unwrap();
    since.elapsed()
}

/// One round trip finds the reservation gone, and one writes. The test tries again if the machine was busy, or if the handle did not hear
/// of its reservation.
#[test]
fn a_reservation_of_its_own_that_is_gone_costs_one_round_trip() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let (mut took, two_trips) = (Vec::new(), Duration::from_millis(500)..Duration::from_millis(850));
        while took.last().is_none_or(|last| !two_trips.contains(last)) {
            assert!(took.len() < 8, "{took:?}");
            took.push(with_a_reservation_that_is_gone(&address, &format!("gone-{}", took.len())).await);
        }
    });
}
