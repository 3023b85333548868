//! A server that answers a commit only when a replica has it, and a replica that is absent.

use std::time::Duration;

use leasehold::{
    LeaseManager,
    executor::{Executor, TokioExecutor},
    machine::{Acquire, Action, Applied, Batch, Beat, Key, Operation, RequestId, SessionId, SessionStep},
    store::{PostgresStore, Store},
};
use tokio::runtime::Runtime;
use tokio_postgres::Client;

use crate::server::{Server, connect};
use crate::until::until;

/// If a limit of the store's cut the wait short, the server would answer that the lease is granted, and a failover would undo that.
#[test]
fn a_grant_that_no_replica_has_yet_is_not_told_as_granted() {
    let Some(server) = Server::start() else { return };
    Runtime::new().unwrap().block_on(async {
        // The user's default would not wait for replicas.
        let url = format!("{}?options=-csynchronous_commit%3Dlocal", server.url());
        let store = PostgresStore::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        let user = connect(&url).await;
        let standby = async |change: &str| {
            user.batch_execute(&format!("ALTER SYSTEM {change}")).await.unwrap();
            user.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        };
        standby("SET synchronous_standby_names = 'absent'").await;
        until_commits_wait(&server, &user).await;
        let acquire = Operation { key: Key::new("k").unwrap(), action: Action::Acquire(Acquire::new(RequestId(1), 1)) };
        let mut batch = Batch::new(SessionId(1), vec![acquire]);
        let beat = Beat { beat: 1, lease_ms: 60_000, ..Beat::default() };
        batch.step = SessionStep::Open { beat, instance: String::new() };
        let asked = store.transact(batch, TokioExecutor::new().now(), Duration::from_millis(1_500)).await;
        let error = asked.unwrap_err();
        assert_eq!((error.applied, error.retry), (Applied::Unknown, true), "{error}");
        standby("RESET synchronous_standby_names").await;
        let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
        until("the commit takes effect", async || leases.status("k").await.unwrap().holders.len() == 1).await;
    });
}

/// The server reads its settings some time after it was asked to.
async fn until_commits_wait(server: &Server, user: &Client) {
    let writer = connect(&server.url()).await;
    let writing = tokio::spawn(async move {
        for number in 0.. {
            writer.batch_execute(&format!("CREATE TABLE written_{number} ()")).await.unwrap();
        }
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    until("a commit waits for the replica", async || user.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) > 0)
        .await;
    writing.abort();
}
