//! The contract of signals, within one process and over two.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use futures::executor::block_on;
use leasehold::{
    LeaseManager,
    executor::TokioExecutor,
    signal::{
        Signals,
        contract::{self, Half},
    },
    store::Store,
};
use tokio::{runtime::Runtime, task::block_in_place, time::timeout};

use crate::{
    other::{Other, say, told},
    server::{PATIENCE, Place, on_server, until},
};

/// Twice what a look at the beacons takes, and much more than a message does.
const SETTLED: Duration = Duration::from_millis(100);

async fn settle() {
    thread::sleep(SETTLED);
}

async fn signals(place: &Place, beacons: bool) -> Arc<dyn Signals> {
    let builder = if beacons { place.builder().with_beacons() } else { place.builder() };
    builder.connect().await.unwrap().signals().expect("it brings signals")
}

/// The other process: does what it is told, and answers.
pub(crate) fn obey(url: &str, prefix: &str) {
    let (place, runtime) = (Place { url: url.into(), prefix: prefix.into() }, Runtime::new().unwrap());
    let half = Half::new(runtime.block_on(signals(&place, true)));
    told().for_each(|line| say(&half.obey(&line)));
}

#[test]
fn signals_keep_the_contract_without_beacons() {
    let Some(place) = Place::new("signals_plain") else { return };
    let runtime = Runtime::new().unwrap();
    block_on(contract::all(async || runtime.block_on(signals(&place, false)), settle));
}

#[test]
fn signals_keep_the_contract_with_beacons() {
    let Some(place) = Place::new("signals_beacons") else { return };
    let runtime = Runtime::new().unwrap();
    block_on(contract::all(async || runtime.block_on(signals(&place, true)), settle));
}

#[test]
fn signals_over_two_processes_keep_the_contract() {
    let Some(place) = Place::new("signals_processes") else { return };
    let runtime = Runtime::new().unwrap();
    let one = Half::new(runtime.block_on(signals(&place, true)));
    let other = Mutex::new(Other::start("half", &place));
    let obey = async |line: String| other.lock().unwrap().ask(&line);
    block_on(contract::between(async |line: String| one.obey(&line), obey, settle));
}

#[test]
fn the_death_of_a_process_is_seen() {
    let Some(place) = Place::new("signals_death") else { return };
    let runtime = Runtime::new().unwrap();
    let one = Half::new(runtime.block_on(signals(&place, true)));
    let other = Mutex::new(Other::start("half", &place));
    let obey = async |line: String| other.lock().unwrap().ask(&line);
    let kill = async || other.lock().unwrap().kill();
    block_on(contract::a_death_is_seen(async |line: String| one.obey(&line), obey, kill, settle));
}

/// Nobody waits here for a heartbeat, which is a third of it.
const LONG_LEASE: Duration = Duration::from_secs(3_600);

async fn patient(place: &Place) -> LeaseManager {
    LeaseManager::builder(place.store().await, TokioExecutor::new()).lease(LONG_LEASE).build().unwrap()
}

/// The other process: holds the lease until it is told to end, and ends.
pub(crate) fn hold_once(url: &str, prefix: &str) {
    let place = Place { url: url.into(), prefix: prefix.into() };
    Runtime::new().unwrap().block_on(async {
        let leases = patient(&place).await;
        let guard = leases.lock("k").acquire().await.unwrap();
        say("held");
        told().next();
        guard.release().await.unwrap();
        leases.close().await;
    });
}

/// Nothing but a notification tells a waiter in time, and the program that sends it is over at once.
#[test]
fn a_program_that_ends_tells_who_waits() {
    on_server("signals_brief", |place| async move {
        drop(place.store().await);
        for _ in 0..5 {
            let mut other = Other::start("brief", &place);
            assert_eq!(block_in_place(|| other.hear()), "held");
            let leases = patient(&place).await;
            let waiting = leases.lock("k").acquire();
            let queued = async {
                until("this one waits", async || leases.status("k").await.is_ok_and(|status| !status.queue.is_empty()))
                    .await;
                other.tell("end");
            };
            let (granted, ()) = timeout(PATIENCE, futures::future::join(waiting, queued)).await.expect("it is told");
            granted.unwrap().release().await.unwrap();
            leases.close().await;
        }
    });
}

/// A context whose first lease is over before its signals are connected.
#[test]
fn what_is_said_before_the_connection_stands_is_said_then() {
    on_server("signals_early", |place| async move {
        let waiter = patient(&place).await;
        for _ in 0..5 {
            let leases = patient(&place).await;
            let guard = leases.lock("k").acquire().await.unwrap();
            let waiting = waiter.lock("k").acquire();
            let ending = async {
                until("the other waits", async || {
                    leases.status("k").await.is_ok_and(|status| !status.queue.is_empty())
                })
                .await;
                guard.release().await.unwrap();
                leases.close().await;
            };
            let (granted, ()) = timeout(PATIENCE, futures::future::join(waiting, ending)).await.expect("it is told");
            granted.unwrap().release().await.unwrap();
        }
    });
}
