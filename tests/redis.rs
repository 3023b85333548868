//! `RedisStore` on real servers, which the tests start and stop. This file runs itself as the other process, too.
#![cfg(unix)]

#[path = "redis/contract.rs"]
mod contract;
#[path = "redis/other.rs"]
mod other;
#[path = "redis/server.rs"]
mod server;

use std::{env, sync::OnceLock};

use leasehold::store::RedisStore;
use redis::Client;

use other::{ROLE, SERVER};
use server::Server;

/// The server that most tests share, each with a prefix of its own.
fn shared() -> Option<&'static Server> {
    static SHARED: OnceLock<Option<Server>> = OnceLock::new();
    SHARED.get_or_init(|| Server::start(&[])).as_ref()
}

/// One more connection.
async fn open(client: &Client, prefix: &str) -> RedisStore {
    RedisStore::with_prefix(client.clone(), prefix).await.unwrap()
}

/// What the other process does. In the first one there is no role, and nothing to do.
#[test]
fn the_other_process() {
    let Ok(role) = env::var(ROLE) else { return };
    let _server = env::var(SERVER).expect("a role comes with a server");
    match role.as_str() {
        unknown => panic!("no role is called {unknown:?}"),
    }
}
