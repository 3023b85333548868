//! Three servers, one of which dies.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use etcd_client::Client;
use leasehold::LeaseManager;
use tokio::{runtime::Runtime, task::yield_now, time::timeout};

use crate::{
    contract::client,
    manager,
    server::{self, Member, Server},
};

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);
/// Longer than an election takes.
const LEASE: Duration = Duration::from_secs(10);

/// What the counters share, and nothing but the lease guards.
#[derive(Default)]
struct Count {
    value: AtomicU64,
    turns: AtomicU64,
    last_token: AtomicU64,
    goal: AtomicU64,
}

async fn count(leases: LeaseManager, shared: Arc<Count>) {
    while shared.turns.load(SeqCst) < shared.goal.load(SeqCst) {
        // Without a leader, nobody is granted anything for a moment.
        let Ok(guard) = leases.lock("k").timeout(BUSY).acquire().await else {
            // When a test has failed and its runtime shuts down, every request fails at once. Without this yield, the shutdown would never
            // finish.
            yield_now().await;
            continue;
        };
        let read = shared.value.load(SeqCst);
        yield_now().await;
        shared.value.store(read + 1, SeqCst);
        shared.turns.fetch_add(1, SeqCst);
        let earlier = shared.last_token.swap(guard.token().as_u64(), SeqCst);
        assert!(earlier < guard.token().as_u64(), "tokens grow: {:?} comes after {earlier}", guard.token());
        drop(guard.release().await);
    }
}

/// Which of the servers leads.
pub(crate) async fn leader(addresses: &[String]) -> Option<usize> {
    for (index, address) in addresses.iter().enumerate() {
        let mut client: Client = client(address).await;
        let status = client.status().await.ok()?;
        if status.leader() != 0 && status.leader() == status.header()?.member_id() {
            return Some(index);
        }
    }
    None
}

#[test]
fn a_counter_goes_on_when_the_leader_is_killed() {
    if server::is_installed() {
        count_while_the_leader("is killed", Server::kill);
    }
}

/// Its connections stay open, and nobody answers.
#[test]
fn a_counter_goes_on_when_the_leader_hangs() {
    if server::is_installed() {
        count_while_the_leader("hangs", Server::stop);
    }
}

/// An etcd lease of that length often ends then, although its owner goes on sending keep-alives to a server that works: that server waits
/// for the leader that hangs. So a session does not use an etcd lease. Nobody waits for the key here.
#[test]
fn a_holder_keeps_its_lease_while_the_leader_hangs_for_longer_than_the_lease() {
    const LEASE: Duration = Duration::from_secs(5);
    if !server::is_installed() {
        return;
    }
    let members = [Member::new(), Member::new(), Member::new()];
    let all: Vec<_> = members.iter().collect();
    let mut servers: Vec<_> = all.iter().map(|member| Server::start_member(member, &all, &[])).collect();
    servers.iter().for_each(Server::wait);
    let addresses: Vec<_> = servers.iter().map(Server::address).collect();
    Runtime::new().unwrap().block_on(async {
        let leads = leader(&addresses).await.expect("one of them leads");
        let leases = manager(&addresses[(leads + 1) % 3], "hangs").await.lease(LEASE).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        servers[leads].stop();
        let stopped = Instant::now();
        while stopped.elapsed() < LEASE * 8 / 5 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let verified = async {
            loop {
                match guard.verify().await {
                    Ok(is_current) => break is_current,
                    // Two servers have no leader yet.
                    Err(error) => println!("{error}"),
                }
            }
        };
        assert!(timeout(BUSY, verified).await.expect("they elect a leader"), "the session was ended");
        guard.release().await.unwrap();
    });
}

fn count_while_the_leader(what: &str, befalls: impl Fn(&mut Server)) {
    let members = [Member::new(), Member::new(), Member::new()];
    let all: Vec<_> = members.iter().collect();
    let mut servers: Vec<_> = all.iter().map(|member| Server::start_member(member, &all, &[])).collect();
    servers.iter().for_each(Server::wait);
    let addresses: Vec<_> = servers.iter().map(Server::address).collect();
    let hosts: Vec<_> = addresses.iter().map(|address| address.strip_prefix("etcd://").unwrap()).collect();
    let everybody = format!("etcd://{}", hosts.join(","));
    let shared = Arc::new(Count::default());
    shared.goal.store(u64::MAX, SeqCst);
    Runtime::new().unwrap().block_on(async {
        let mut counters = Vec::new();
        for _ in 0..3 {
            let leases = manager(&everybody, "counted").await.lease(LEASE).linger(Duration::ZERO).build().unwrap();
            counters.push(tokio::spawn(count(leases, Arc::clone(&shared))));
        }
        let reach = async |turns: u64| {
            while shared.turns.load(SeqCst) < turns {
                assert!(!counters.iter().any(tokio::task::JoinHandle::is_finished), "a counter failed");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        reach(50).await;
        let leads = leader(&addresses).await.expect("one of them leads");
        befalls(&mut servers[leads]);
        let (hurt, began) = (shared.turns.load(SeqCst), Instant::now());
        reach(hurt + 5).await;
        println!("the counters went on {:?} after the leader {what}", began.elapsed());
        shared.goal.store(hurt + 60, SeqCst);
        for counter in counters {
            counter.await.unwrap();
        }
    });
    assert_eq!(shared.value.load(SeqCst), shared.turns.load(SeqCst), "no count is lost");
}
