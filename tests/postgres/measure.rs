//! What a turn costs: in round trips to the server, and in time between two processes.

use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::{LeaseManager, executor::TokioExecutor};
use tokio::{runtime::Runtime, task::block_in_place};

use crate::{
    other::{Other, say, told},
    proxy::Proxy,
    server::{Place, on_server},
};

/// Of each process.
const TURNS: usize = 150;

/// With one thread, what is asked for together goes out together.
#[test]
fn a_lease_costs_two_transactions_of_three_round_trips() {
    let Some(place) = Place::new("measure_trips") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        drop(place.store().await);
        let proxy = Proxy::start(place.port()).await;
        let store = place.behind(proxy.port).builder().without_signals().connect().await.unwrap();
        let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
        // The first one opens the session, and makes the store's own row.
        leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        let before = (proxy.trips(), proxy.commits());
        for _ in 0..10 {
            leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        }
        let (trips, commits) = (proxy.trips() - before.0, proxy.commits() - before.1);
        assert_eq!((trips, commits), (10 * 6, 10 * 2), "round trips and transactions of ten leases");
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
