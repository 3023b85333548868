//! Threads without a runtime, and runtimes that lack something.

use leasehold::{LeaseManager, executor::TokioExecutor, store::PostgresStore};
use tokio::runtime::Runtime;

use super::manager;
use crate::{
    server::{Place, Server},
    threads,
};

#[test]
fn calls_from_a_plain_thread() {
    let Some(server) = Server::start() else { return };
    let (runtime, place) = (Runtime::new().unwrap(), Place { url: server.url(), prefix: "threads".into() });
    let made = async || manager(place.store().await);
    let managers = runtime.block_on(async { [made().await, made().await, made().await] });
    threads::calls_from_a_plain_thread(runtime, managers);
}

#[test]
fn a_runtime_that_lacks_something_is_refused() {
    let url = "postgres://u@127.0.0.1:1/d";
    threads::a_runtime_that_lacks_something(url, async || PostgresStore::connect(url).await.map(drop));
}

#[test]
fn a_manager_is_closed_in_a_runtime_without_timers() {
    let Some(server) = Server::start() else { return };
    let (runtime, place) = (Runtime::new().unwrap(), Place { url: server.url(), prefix: "bare".into() });
    let made = async || LeaseManager::builder(place.store().await, TokioExecutor::new());
    let managers = runtime.block_on(async { [made().await, made().await] });
    threads::closing_in_a_runtime_without_timers(runtime, managers);
}
