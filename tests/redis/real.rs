//! Histories of processes that share a server.

use std::{sync::Arc, thread, time::Duration};

use leasehold::{LeaseGuard, LeaseManager, executor::TokioExecutor, store::RedisStore};
use redis::Client;

use crate::{
    histories::{Desk, Dice, Site, Written, histories, play},
    other::Other,
    proxy_before,
    server::Server,
    ways::{SPOILS, Ways},
};

const PREFIX: &str = "histories";
/// The list of all writes.
const WRITES: &str = "histories: writes";

impl Desk for Arc<RedisStore> {
    async fn write(&self, guard: &LeaseGuard, key: usize) -> Written {
        let write = self.script("redis.call('RPUSH', KEYS[1], ARGV[1])").key(WRITES);
        match guard.fence(write.arg(format!("{key} {}", guard.token().as_u64()))).await {
            Ok(Ok(_)) => Written::Yes,
            _ => Written::No,
        }
    }
}

/// Runs this process's part in a history, if it has one.
pub(crate) fn take_part(role: &str, client: &Client) -> bool {
    play(role, async || {
        loop {
            // The server may be down.
            if let Ok(store) = RedisStore::with_prefix(client.clone(), PREFIX).await {
                let store = Arc::new(store);
                return (LeaseManager::builder(Arc::clone(&store), TokioExecutor::new()), store);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

struct Redis {
    server: Server,
    ways: Ways,
}

impl Site for Redis {
    const SPOILS: &'static [&'static str] = SPOILS;

    fn start(&self, slot: usize, role: &str) -> Other {
        let url = format!("redis://127.0.0.1:{}/", self.ways.of(slot).port);
        Other::start(role, &(url.as_str(), PREFIX))
    }

    fn spoil(&mut self, slot: usize, what: &'static str, dice: &mut Dice) {
        let Self { server, ways } = self;
        let away = Duration::from_millis(dice.below(1_000));
        ways.spoil(slot, what, dice, || {
            server.kill();
            thread::sleep(away);
            server.run();
        });
    }

    fn heal(&mut self) {
        self.ways.heal();
    }

    fn writes(&mut self) -> Vec<(usize, u64)> {
        let writes: Vec<String> = self.server.ask(&["LRANGE", WRITES, "0", "-1"]);
        let words = writes.iter().map(|write| write.split_once(' ').unwrap());
        words.map(|(key, token)| (key.parse().unwrap(), token.parse().unwrap())).collect()
    }
}

#[test]
fn histories_of_processes_and_servers_that_are_killed_break_no_promise() {
    let Some(server) = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let ways = Ways::new(|| proxy_before(server.port()));
    histories(Redis { server, ways });
}
