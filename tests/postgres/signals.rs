//! The contract of signals, within one process and over two.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use futures::executor::block_on;
use leasehold::{
    LeaseManager,
    executor::TokioExecutor,
    machine::SessionId,
    signal::{
        Inbox, Notice, Signals,
        contract::{self, Half},
    },
    store::{Store, from_url},
};
use tokio::{
    runtime::Runtime,
    task::{JoinSet, block_in_place},
    time::{sleep, timeout},
};

use crate::{
    missed,
    other::{Other, say, told},
    server::{PATIENCE, Place, Server, on_server},
    until::until,
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
pub(crate) const LONG_LEASE: Duration = Duration::from_secs(3_600);

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

/// A notification has less than 8,000 bytes. In it, a control character of a key takes six.
#[test]
fn the_notification_about_the_longest_key_fits() {
    on_server("signals_longest", |place| async move {
        let (key, one, other) = ("\u{1}".repeat(1_024), patient(&place).await, patient(&place).await);
        let guard = one.lock(&key).acquire().await.unwrap();
        let waiting = async { timeout(PATIENCE, other.lock(&key).acquire()).await.expect("it is told").unwrap() };
        let release = async {
            until("the other one waits", async || one.status(&key).await.unwrap().queue.len() == 1).await;
            guard.release().await.unwrap();
        };
        let (next, ()) = futures::future::join(waiting, release).await;
        next.release().await.unwrap();
        one.close().await;
        other.close().await;
    });
}

/// A notification costs every connection of the server that listens.
#[test]
fn contexts_that_share_a_store_do_not_all_try_out_whether_they_hear() {
    on_server("signals_crowd", |place| async move {
        let named = |name| Place { url: format!("{}?application_name={name}", place.url), ..place.clone() };
        let user = place.client().await;
        let count = async |name: &str, last: &str| {
            let sql = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}' AND state = 'idle' AND query {last}"
            );
            user.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0)
        };
        let (listens, tried) = ("LIKE 'SELECT pg_try_advisory_lock%'", "= 'SELECT'");
        let (store, mut held) = (named("signals_crowd").store().await, Vec::new());
        for key in 0..12 {
            let leases = LeaseManager::builder(store.clone(), TokioExecutor::new()).lease(LONG_LEASE).build().unwrap();
            held.push((leases.lock(&key.to_string()).acquire().await.unwrap(), leases));
            if key == 0 {
                let long =
                    "~ '^SELECT($| pg_try_advisory_lock)' AND backend_start < clock_timestamp() - interval '600 ms'";
                until("the first one tries soon", async || count("signals_crowd", long).await == 1).await;
            }
        }
        until("all listen", async || count("signals_crowd", listens).await + count("signals_crowd", tried).await == 12)
            .await;
        // It tries after all others would have.
        let last = patient(&named("signals_crowd_last")).await;
        let _guard = last.lock("last").acquire().await.unwrap();
        until("the last one has tried", async || count("signals_crowd_last", tried).await == 1).await;
        let tried = count("signals_crowd", tried).await;
        assert!((1..=6).contains(&tried), "{tried} of 12 tried");
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

#[test]
fn a_waiter_that_missed_a_message_reads_the_store_once_it_listens_again() {
    on_server("signals_missed", |place| async move {
        let holder = patient(&place).await;
        let proxy = place.proxy();
        let waiter = patient(&place.behind(proxy.port)).await;
        missed::a_waiter_that_missed_a_message_reads_the_store_once_reconnected(&holder, &waiter, &proxy, async || {})
            .await;
    });
}

/// After each connection, the context asks the server about all that it holds.
#[test]
fn a_context_whose_connections_are_cut_at_once_connects_ever_more_rarely() {
    let Some(server) = Server::start() else { return };
    Runtime::new().unwrap().block_on(async {
        let place = Place { url: server.url(), prefix: "leasehold".into() };
        drop(place.store().await);
        let (one, client) = (Half::new(signals(&place, false).await), place.client().await);
        one.obey("wake 1");
        let reconnected = || one.obey("tell").matches("reconnected").count();
        let since = Instant::now();
        // Two seconds are enough for about 30 pauses of 50 ms, or for 5 if each is twice as long as the one before. On a busy machine, the
        // first connection may take that long.
        until("two seconds passed, and it connected again", async || {
            let cut = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'";
            client.query(cut, &[]).await.unwrap();
            since.elapsed() > Duration::from_secs(2) && reconnected() > 0
        })
        .await;
        let told = reconnected();
        assert!(told < 10, "{told} times");
    });
}

/// How many contexts wait for the key in the next test.
const WAITERS: usize = 20;

/// A context with beacons. Its leases outlast every test.
async fn context(place: &Place) -> LeaseManager {
    let store = place.builder().with_beacons().connect().await.unwrap();
    LeaseManager::builder(store, TokioExecutor::new()).lease(LONG_LEASE).linger(Duration::ZERO).build().unwrap()
}

async fn has_waiters(leases: &LeaseManager, count: usize) -> bool {
    leases.status("k").await.is_ok_and(|status| status.queue.len() == count)
}

/// Each watches the one before it. If all of them looked every 50 ms, they would make 800 round trips in these 2 s.
#[test]
fn most_of_many_waiters_look_seldom() {
    on_server("signals_queue", |place| async move {
        drop(place.store().await);
        let proxy = place.proxy();
        let (holder, far) = (context(&place).await, place.behind(proxy.port));
        let guard = holder.lock("k").acquire().await.unwrap();
        let mut waiting = JoinSet::new();
        for _ in 0..WAITERS {
            let leases = context(&far).await;
            waiting.spawn(async move {
                let granted = leases.lock("k").acquire().await;
                drop(granted.unwrap().release().await);
                leases.close().await;
            });
        }
        until("all wait", async || has_waiters(&holder, WAITERS).await).await;
        // While its connection is young, each waiter looks often.
        until("they look seldom", async || {
            let trips = proxy.trips();
            sleep(Duration::from_millis(200)).await;
            proxy.trips() - trips < WAITERS
        })
        .await;
        let before = proxy.trips();
        sleep(Duration::from_secs(2)).await;
        let trips = proxy.trips() - before;
        assert!(trips < 300, "{trips} round trips");
        until("all look, on a busy machine too", async || proxy.trips() - before >= WAITERS).await;
        guard.release().await.unwrap();
        timeout(PATIENCE, waiting.join_all()).await.expect("each has its turn");
    });
}

/// Keeps what signals bring.
#[derive(Default)]
pub(crate) struct Told(Mutex<Vec<Notice>>);

impl Inbox for Told {
    fn notice(&self, notice: Notice) {
        self.0.lock().unwrap().push(notice);
    }
}

impl Told {
    pub(crate) fn has(&self, notice: &Notice) -> bool {
        self.0.lock().unwrap().contains(notice)
    }
}

/// Signals whose beacon stands, and the inbox that keeps their notices.
pub(crate) async fn awake(place: &Place, session: u128) -> (Arc<dyn Signals>, Arc<Told>) {
    let signals = signals(place, true).await;
    let told = Arc::new(Told::default());
    let inbox: Arc<dyn Inbox> = told.clone();
    assert!(signals.wake(SessionId(session), true, Arc::downgrade(&inbox)));
    until("the beacon stands", async || told.has(&Notice::BeaconStands(SessionId(session)))).await;
    (signals, told)
}

/// Longer than it takes to connect and to look.
const LOOKED: Duration = Duration::from_secs(1);
/// A connection of this age is no longer young, and has looked seldom once.
const OLD: Duration = Duration::from_secs(12);

/// Counts the exclusive advisory locks on this server. A look takes shared ones for a moment; they do not count.
async fn locks(place: &Place) -> i64 {
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'";
    place.client().await.query_one(held, &[]).await.unwrap().get(0)
}

/// Each session holds the locks of its beacon, of its messages and of its connection, and a fourth one while it waits.
#[test]
fn a_session_says_that_it_waits_while_it_watches_another() {
    let Some(server) = Server::start() else { return };
    Runtime::new().unwrap().block_on(async {
        let place = Place { url: server.url(), prefix: "leasehold".into() };
        drop(place.store().await);
        let (one, _told) = awake(&place, 1).await;
        let (other, _told) = awake(&place, 2).await;
        until("three locks each", async || locks(&place).await == 6).await;
        one.watch(1, SessionId(2));
        one.watch(2, SessionId(9));
        until("one of them waits", async || locks(&place).await == 7).await;
        other.watch(1, SessionId(1));
        until("both wait", async || locks(&place).await == 8).await;
        one.unwatch(2);
        sleep(LOOKED).await;
        assert_eq!(locks(&place).await, 8, "it still watches the other one");
        one.unwatch(1);
        until("it waits no longer", async || locks(&place).await == 7).await;
        one.watch(3, SessionId(2));
        until("it waits again", async || locks(&place).await == 8).await;
        one.rest();
        // The other one gives up its fourth lock as soon as it has seen that it watches nobody any more.
        until("its connection gave up all its locks", async || locks(&place).await <= 4).await;
    });
}

/// A holder may wait for another key, or may have waited just before. Its waiter notices the holder's death in both cases: while the
/// waiter's connection is young and it looks often, and later, when it looks seldom at a context that waits. A busy machine may be late:
/// one attempt that is in time is enough.
#[test]
fn the_death_of_a_context_that_waits_or_waited_is_seen() {
    on_server("signals_waits", |place| async move {
        drop(place.store().await);
        let cases = [(LOOKED, true), (LOOKED, false), (OLD, true), (OLD, false)];
        futures::future::join_all((0..).zip(cases).map(async |(case, (age, waits))| {
            let (since, mut sessions) = (Instant::now(), 100 * case..);
            while !sees_a_death(&place, sessions.by_ref().take(3).collect(), age, waits).await {
                assert!(since.elapsed() < PATIENCE, "it is seen late with {age:?} and {waits}");
            }
        }))
        .await;
    });
}

async fn sees_a_death(place: &Place, sessions: Vec<u128>, age: Duration, waits: bool) -> bool {
    let (holder, _told) = awake(place, sessions[0]).await;
    // Its beacon is up, so the watch lasts. A look while the beacon is being raised would keep it down.
    let (_another, _told) = awake(place, sessions[1]).await;
    holder.watch(1, SessionId(sessions[1]));
    let (other, told) = awake(place, sessions[2]).await;
    other.watch(1, SessionId(sessions[0]));
    sleep(age).await;
    assert!(!told.has(&Notice::BeaconGone { watch: 1 }), "it stands");
    if !waits {
        holder.unwatch(1);
        sleep(LOOKED).await;
    }
    holder.rest();
    let seen = until("the death is seen", async || told.has(&Notice::BeaconGone { watch: 1 }));
    timeout(Duration::from_secs(5), seen).await.is_ok()
}

/// The first waiter dies, and the holder 200 ms later. For 10 s after it connected, the second waiter believes in a death only if it has
/// seen the beacon. So it must see the holder's beacon within those 200 ms. A busy machine may be late: one attempt that is in time is
/// enough.
#[test]
fn a_waiter_that_has_just_connected_sees_two_deaths_soon() {
    on_server("signals_two_deaths", |place| async move {
        drop(place.store().await);
        let mut sessions = 1..;
        // Each time in another phase of its looks.
        for phase_ms in [0, 100, 200, 300, 400] {
            let since = Instant::now();
            while !sees_two_deaths(&place, phase_ms, sessions.by_ref().take(3).collect()).await {
                assert!(since.elapsed() < PATIENCE, "it is seen only when the connection is old");
            }
        }
    });
}

async fn sees_two_deaths(place: &Place, phase_ms: u64, sessions: Vec<u128>) -> bool {
    let (holder, _told) = awake(place, sessions[0]).await;
    let (first, _told) = awake(place, sessions[1]).await;
    first.watch(1, SessionId(sessions[0]));
    let (second, told) = awake(place, sessions[2]).await;
    second.watch(1, SessionId(sessions[1]));
    sleep(LOOKED + Duration::from_millis(phase_ms)).await;
    first.rest();
    let dies = async {
        sleep(Duration::from_millis(200)).await;
        holder.rest();
    };
    let sees = async {
        until("the first death is seen", async || told.has(&Notice::BeaconGone { watch: 1 })).await;
        second.watch(2, SessionId(sessions[0]));
        until("the second death is seen", async || told.has(&Notice::BeaconGone { watch: 2 })).await;
    };
    timeout(Duration::from_secs(5), futures::future::join(dies, sees)).await.is_ok()
}

/// A process that starts again cannot see at once that the beacon of its predecessor is gone. So it waits, and is not told that the
/// predecessor is alive.
#[test]
fn a_process_that_starts_again_after_a_crash_is_granted_its_lease() {
    let Some(place) = Place::new("signals_restart") else { return };
    let open = async || {
        let store = place.builder().with_beacons().connect().await.unwrap();
        let builder = LeaseManager::builder(store, TokioExecutor::new()).instance("worker-1");
        builder.lease(Duration::from_secs(5)).build().unwrap()
    };
    let first = Runtime::new().unwrap();
    first.block_on(async {
        place.store().await.migrate().await.unwrap();
        let guard = open().await.lock("k").acquire().await.unwrap();
        std::mem::forget(guard);
    });
    first.shutdown_background();
    Runtime::new().unwrap().block_on(async {
        let leases = open().await;
        assert!(leases.lock("k").try_acquire().await.unwrap().is_none(), "it may be alive");
        let granted = leases.lock("k").timeout(PATIENCE).acquire().await;
        assert!(granted.is_ok(), "{granted:?}");
    });
}

/// A user of the command line, and of `from_url`, has nothing but the URL.
#[test]
fn a_url_can_ask_for_beacons() {
    let Some(place) = Place::new("signals_url") else { return };
    let url = format!("{}?prefix={}&signals=beacons", place.url, place.prefix);
    let open = async || {
        let builder = LeaseManager::builder(from_url(&url).await.unwrap(), TokioExecutor::new());
        builder.lease(Duration::from_secs(3_600)).build().unwrap()
    };
    let mortal = Runtime::new().unwrap();
    let guard = mortal.block_on(async { open().await.lock("k").acquire().await.unwrap() });
    Runtime::new().unwrap().block_on(async {
        let leases = open().await;
        let dies = async {
            until("the wait", async || leases.status("k").await.unwrap().queue.len() == 1).await;
            sleep(LOOKED).await;
            std::mem::forget(guard);
            mortal.shutdown_background();
        };
        let (granted, ()) = futures::future::join(leases.lock("k").timeout(PATIENCE).acquire(), dies).await;
        assert!(granted.is_ok(), "{granted:?}");
        drop(granted);
        leases.close().await;
    });
}
