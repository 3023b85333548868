//! What a turn costs: in round trips to the server, and in time between two processes.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold::{LeaseManager, executor::TokioExecutor};
use tokio::{runtime::Runtime, task::block_in_place};

use crate::{
    other::{Other, say, told},
    server::{PATIENCE, Place, Server, on_server},
    until::until,
};

/// Of each process.
const TURNS: usize = 150;

/// In one thread, what is asked for together goes out together.
fn in_one_thread<F: Future<Output = ()>>(prefix: &str, test: impl FnOnce(Place) -> F) {
    let Some(place) = Place::new(prefix) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test(place));
}

#[test]
fn a_lease_costs_two_transactions_of_two_round_trips() {
    in_one_thread("measure_trips", |place| async move {
        drop(place.store().await);
        let proxy = place.proxy();
        let store = place.behind(proxy.port).builder().without_signals().connect().await.unwrap();
        let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
        // The first one opens the session, and makes the store's own row.
        leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        let before = (proxy.trips(), proxy.commits());
        for _ in 0..10 {
            leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        }
        let (trips, commits) = (proxy.trips() - before.0, proxy.commits() - before.1);
        assert_eq!((trips, commits), (10 * 4, 10 * 2), "round trips and transactions of ten leases");
    });
}

/// The context remembers what it wrote, and the server compares that with the rows.
#[test]
fn a_key_that_nobody_else_uses_costs_two_transactions_of_one_round_trip() {
    in_one_thread("measure_again", |place| async move {
        let proxy = place.proxy();
        let leases = manager(&place.behind(proxy.port)).await;
        let mut costs = Vec::new();
        // The first round also prepares the statements and begins to listen.
        while !costs.contains(&(10 * 2, 10 * 2)) {
            assert!(costs.len() < 5, "round trips and transactions of ten leases: {costs:?}");
            let before = (proxy.trips(), proxy.commits());
            for _ in 0..10 {
                leases.lock("k").acquire().await.unwrap().release().await.unwrap();
            }
            costs.push((proxy.trips() - before.0, proxy.commits() - before.1));
        }
    });
}

async fn manager(place: &Place) -> LeaseManager {
    let builder = LeaseManager::builder(place.store().await, TokioExecutor::new());
    builder.lease(Duration::from_secs(60)).linger(Duration::ZERO).build().unwrap()
}

/// The transaction that releases also notifies the waiter. It reads the waiter's row along with the record, since the waiter had said that
/// it waits.
#[test]
fn a_hand_off_costs_one_transaction_of_two_round_trips() {
    in_one_thread("measure_hand_off", |place| async move {
        let (proxy, client) = (place.proxy(), place.client().await);
        let named = |name| Place { url: format!("{}?application_name=measure_{name}", place.url), ..place.clone() };
        let (giver, watch) = (manager(&named("giver").behind(proxy.port)).await, manager(&place).await);
        let heir = manager(&named("heir")).await;
        // By now the statements are prepared, which took one round trip.
        for _ in 0..3 {
            giver.lock("k").acquire().await.unwrap().release().await.unwrap();
        }
        let (mut costs, since) = (Vec::new(), Instant::now());
        // If the server is slow to pass on the message that somebody waits, it comes after the release. Then the release takes two more
        // round trips: the first finds that the record is not as the holder left it, and the second reads the row.
        while !costs.contains(&(2, 1)) {
            assert!(since.elapsed() < PATIENCE, "round trips and transactions of a release: {costs:?}");
            let guard = giver.lock("k").acquire().await.unwrap();
            let heirs = heir.clone();
            let waiting = tokio::spawn(async move { heirs.lock("k").acquire().await.unwrap() });
            // Each of them then holds the advisory lock that shows that it listens.
            let listen = "SELECT count(DISTINCT application_name) FROM pg_locks JOIN pg_stat_activity USING (pid) \
                WHERE application_name IN ('measure_giver', 'measure_heir') AND state = 'idle' AND locktype = 'advisory'";
            until("both listen", async || client.query_one(listen, &[]).await.unwrap().get::<_, i64>(0) == 2).await;
            until("it waits, and the holder has nothing more to do about it", async || {
                let before = proxy.trips();
                for _ in 0..10 {
                    watch.status("other").await.unwrap();
                }
                before == proxy.trips() && !watch.status("k").await.unwrap().queue.is_empty()
            })
            .await;
            let before = (proxy.trips(), proxy.commits());
            guard.release().await.unwrap();
            let inherited = waiting.await.unwrap();
            assert!(inherited.is_valid());
            costs.push((proxy.trips() - before.0, proxy.commits() - before.1));
            inherited.release().await.unwrap();
        }
    });
}

#[test]
fn each_turn_runs_prepared_statements() {
    on_server("measure_prepared", |place| async move {
        let named = Place { url: format!("{}?application_name=measure_prepared", place.url), ..place.clone() };
        let leases = manager(&named).await;
        for _ in 0..10 {
            leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        }
        // The last statement of each connection.
        let last = "SELECT query FROM pg_stat_activity WHERE application_name = 'measure_prepared'";
        let ran: Vec<String> =
            place.client().await.query(last, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        assert!(ran.iter().any(|query| query.contains("EXECUTE leasehold_")), "{ran:?}");
    });
}

/// A session that listens and stays inside a transaction fills the server's queue, which has room for millions of notifications.
#[test]
fn a_lease_is_handed_on_although_the_server_takes_no_notification() {
    on_server("measure_no_room", |place| async move {
        let (giver, heir) = (manager(&place).await, manager(&place).await);
        let guard = giver.lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn({
            let heir = heir.clone();
            async move { heir.lock("k").acquire().await.unwrap() }
        });
        until("it waits", async || !giver.status("k").await.unwrap().queue.is_empty()).await;
        let refuse_once = format!(
            "CREATE SEQUENCE measure_no_room_commits;
            CREATE FUNCTION measure_no_room_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF nextval('measure_no_room_commits') = 1 THEN
                    RAISE 'too many notifications in the NOTIFY queue' USING ERRCODE = 'program_limit_exceeded';
                END IF;
                RETURN NULL;
            END $$;
            CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON {}_record DEFERRABLE INITIALLY DEFERRED
                FOR EACH ROW EXECUTE FUNCTION measure_no_room_refuse()",
            place.prefix
        );
        let client = place.client().await;
        client.batch_execute(&refuse_once).await.unwrap();
        guard.release().await.unwrap();
        assert!(waiting.await.unwrap().is_valid());
        let commits = "SELECT last_value FROM measure_no_room_commits";
        assert!(client.query_one(commits, &[]).await.unwrap().get::<_, i64>(0) > 1, "one commit was refused");
    });
}

/// Some servers let no user notify others. A waiter then learns of its grant by a heartbeat.
#[test]
fn a_lease_is_handed_on_although_its_user_may_not_notify() {
    let Some(server) = Server::start() else { return };
    Runtime::new().unwrap().block_on(async {
        let place = Place { url: server.url(), prefix: "leasehold".into() };
        drop(place.store().await);
        let refuse = "CREATE ROLE mute LOGIN; REVOKE EXECUTE ON FUNCTION pg_notify FROM PUBLIC; \
            GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO mute";
        place.client().await.batch_execute(refuse).await.unwrap();
        let mute = Place { url: place.url.replace("postgres@", "mute@"), ..place.clone() };
        let open = async || {
            let store = mute.builder().connect().await.unwrap();
            LeaseManager::builder(store, TokioExecutor::new()).lease(Duration::from_secs(3)).build().unwrap()
        };
        let (giver, heir) = (open().await, open().await);
        let guard = giver.lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn(async move { heir.lock("k").acquire().await });
        until("it waits", async || !giver.status("k").await.unwrap().queue.is_empty()).await;
        guard.release().await.unwrap();
        assert!(waiting.await.unwrap().unwrap().is_valid());
    });
}

fn now_us() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()
}

/// The other process: takes its turns by the lease, and then by a bare advisory lock. It says when each began and ended.
pub(crate) fn play(url: &str, prefix: &str) {
    let place = Place { url: url.into(), prefix: prefix.into() };
    Runtime::new().unwrap().block_on(async {
        let (store, user) = (place.builder().connect().await.unwrap(), place.client().await);
        let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
        drop(leases.lock("warm").acquire().await.unwrap());
        let mut lines = told();
        say("ready");
        lines.next();
        for _ in 0..TURNS {
            let guard = leases.lock("k").acquire().await.unwrap();
            let granted = now_us();
            say(&format!("lease {granted} {}", now_us()));
            drop(guard.release().await);
        }
        say("done");
        lines.next();
        let [lock, unlock] = ["SELECT pg_advisory_lock(7)", "SELECT pg_advisory_unlock(7)"];
        for _ in 0..TURNS {
            user.query_typed(lock, &[]).await.unwrap();
            let granted = now_us();
            say(&format!("bare {granted} {}", now_us()));
            user.query_typed(unlock, &[]).await.unwrap();
        }
        say("done");
    });
}

/// Both take turns; how long it took from the end of one process's turn to the beginning of the other's.
fn hand_offs(players: &mut [Other; 2]) -> Vec<u128> {
    players.iter_mut().for_each(|player| player.tell("go"));
    let mut turns = Vec::new();
    for (number, player) in players.iter_mut().enumerate() {
        let lines = std::iter::from_fn(|| Some(player.hear()).filter(|line| line != "done"));
        for line in lines {
            let times: Vec<u128> = line.split(' ').skip(1).map(|time| time.parse().unwrap()).collect();
            turns.push((times[0], times[1], number));
        }
    }
    assert_eq!(turns.len(), 2 * TURNS);
    turns.sort_unstable();
    let overlap = turns.windows(2).find(|pair| pair[1].0 < pair[0].1);
    assert_eq!(overlap, None, "two turns overlap");
    let mut taken: Vec<u128> =
        turns.windows(2).filter(|pair| pair[0].2 != pair[1].2).map(|pair| pair[1].0 - pair[0].1).collect();
    taken.sort_unstable();
    taken
}

#[test]
fn two_processes_hand_a_lease_to_each_other() {
    on_server("measure_turns", |place| async move {
        drop(place.store().await);
        block_in_place(|| {
            let mut players = [Other::start("player", &place), Other::start("player", &place)];
            players.iter_mut().for_each(|player| assert_eq!(player.hear(), "ready"));
            for name in ["leasehold", "bare pg_advisory_lock"] {
                let taken = hand_offs(&mut players);
                let at = |part: usize| taken.get(taken.len() * part / 100).copied().unwrap_or_default();
                println!("{name}: {} hand-offs, p50 {} us, p95 {} us", taken.len(), at(50), at(95));
            }
        });
    });
}
