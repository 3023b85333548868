//! Processes count together, and are killed.

use std::time::Duration;

use leasehold::LeaseGuard;
use redis::{AsyncConnectionConfig, Client};

use crate::{context, killed, other::Other, server::Server};

/// How long some writes wait in the server.
const PAUSE_MS: u64 = 30;
/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

/// Writes down what it is told.
const WRITE: &str = "redis.call('SET', KEYS[1], ARGV[1])
redis.call('RPUSH', KEYS[2], ARGV[2])";

/// The other process: reads the number without any care, and writes the next one in a fenced script, until it is killed.
pub(crate) async fn count(client: &Client, prefix: &str) {
    let (store, leases) = context(client, prefix).await;
    let leases = leases.lease(killed::LEASE).build().unwrap();
    // By itself, the client waits for an answer for half a second, and for a connection for one. A busy machine takes longer now and then.
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(BUSY)).set_connection_timeout(Some(BUSY));
    let connection = client.get_multiplexed_async_connection_with_config(&patient).await.unwrap();
    let [number, counts] = ["n", "counts"].map(|name| format!("{prefix}: {name}"));
    let write = async |guard: &LeaseGuard, step| {
        let read: Option<u64> = redis::cmd("GET").arg(&number).query_async(&mut connection.clone()).await.unwrap();
        let count = read.unwrap_or_default() + 1;
        // Some scripts wait in the server. If their task is dropped meanwhile, another task of the manager writes first, unless the
        // manager asks the server for the next lease. What only reads does not wait.
        if killed::below(2) == 0 {
            let pause = redis::cmd("CLIENT").arg("PAUSE").arg(PAUSE_MS).arg("WRITE").to_owned();
            let _: () = pause.query_async(&mut connection.clone()).await.unwrap();
        }
        let write = store.script(WRITE).key(number.as_str()).key(counts.as_str());
        guard.fence(write.arg(count).arg(format!("{count} {} {step}", guard.token().as_u64()))).await?.unwrap();
        Ok(())
    };
    killed::count(&leases, (0..killed::TASKS).map(|_| &write)).await;
}

/// All writes of all clients wait, so it has a server of its own.
#[test]
fn a_fenced_counter_is_exact_though_processes_are_killed() {
    let Some(server) = Server::start(&[]) else { return };
    let url = server.url();
    let told = killed::at_random(3, || Other::start("counter", &(url.as_str(), "counter")));
    let counts: Vec<String> = server.ask(&["LRANGE", "counter: counts", "0", "-1"]);
    assert_eq!(server.ask::<usize>(&["GET", "counter: n"]), counts.len(), "the last count is the number of counts");
    let numbers = |line: &String| {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        (numbers[0], numbers[1], numbers[2])
    };
    killed::judge(&told, counts.iter().map(numbers));
}
