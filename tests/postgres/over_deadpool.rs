//! Over a pool of deadpool-postgres.

use std::{any::Any, time::Duration};

use deadpool_postgres::{Hook, Manager, Pool as Deadpool};
use leasehold::{
    FenceError, LeaseManager,
    executor::TokioExecutor,
    machine::LostReason,
    store::{PostgresStore, PostgresStoreBuilder, Store},
};
use tokio::time::{sleep, timeout};
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

use crate::{
    pools::{self, Pool},
    proxy::Way,
    server::{PATIENCE, Place, connect, on_server},
    signals::LONG_LEASE,
    until::until,
};

impl Pool for Deadpool {
    const NAME: &'static str = "deadpool-postgres pool";

    async fn open(url: &str, most: u32) -> Self {
        let manager = Manager::new(url.parse().unwrap(), NoTls);
        Self::builder(manager).max_size(most as usize).build().unwrap()
    }

    async fn ask(&self, statement: &str) -> Vec<String> {
        let found = self.get().await.unwrap().simple_query(statement).await.unwrap();
        let row = found.into_iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let row = row.expect("it finds a row");
        (0..row.len()).map(|column| row.get(column).expect("it is not NULL").to_owned()).collect()
    }

    async fn take(&self) -> Box<dyn Any> {
        Box::new(self.get().await.unwrap())
    }

    async fn end(&self) {
        self.close();
    }

    fn builder(&self, place: &Place) -> PostgresStoreBuilder {
        let config: Config = place.url.parse().unwrap();
        PostgresStore::builder_from_pool((self.clone(), config))
    }
}

crate::pools::suites!(Deadpool, "deadpool");

/// A context that grants a lease to one that does not listen yet repeats its message for 0.63 s, and no longer. Nothing else would tell the
/// waiter in time.
#[test]
fn a_waiter_whose_connection_for_signals_opens_late_reads_the_store_then() {
    on_server("deadpool_late", |place| async move {
        let leases = |store| LeaseManager::builder(store, TokioExecutor::new()).lease(LONG_LEASE).build().unwrap();
        let holder = leases(place.store().await);
        let (pool, proxy) = (Deadpool::open(&place.url, 2).await, place.proxy());
        let far: Config = place.behind(proxy.port).url.parse().unwrap();
        let store = PostgresStore::builder_from_pool((pool, far)).prefix(&place.prefix).connect().await.unwrap();
        let waiter = leases(store);
        proxy.delay(Way::ToServer, Duration::from_secs(1));
        let guard = holder.lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn(async move { waiter.lock("k").acquire().await });
        until("it waits", async || !holder.status("k").await.unwrap().queue.is_empty()).await;
        guard.release().await.unwrap();
        let granted = timeout(PATIENCE, waiting).await.expect("it reads the store");
        assert!(granted.unwrap().unwrap().is_valid());
    });
}

/// The pool has one connection. The store borrows it again when it notifies the one for signals, which has ended by then.
#[test]
fn a_connection_that_ends_while_it_is_tried_out_for_beacons_is_no_pooler() {
    on_server("deadpool_cut", |place| async move {
        let url = place.url.clone();
        let end = Hook::async_fn(move |_, _| {
            let url = url.clone();
            Box::pin(async move {
                let user = connect(&url).await;
                let ended =
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'deadpool_cut'";
                while !user.query(ended, &[]).await.unwrap().is_empty() {
                    sleep(Duration::from_millis(10)).await;
                }
                Ok(())
            })
        });
        let manager = Manager::new(place.url.parse().unwrap(), NoTls);
        let pool = Deadpool::builder(manager).max_size(1).pre_recycle(end).build().unwrap();
        let mut config: Config = place.url.parse().unwrap();
        config.application_name("deadpool_cut");
        let store = PostgresStore::builder_from_pool((pool, config)).prefix(&place.prefix).with_beacons();
        let error = store.connect().await.expect_err("the connection has ended");
        assert!(error.retry && error.message.contains("connect again"), "{error}");
    });
}

#[test]
fn without_a_configuration_there_are_no_signals_and_no_beacons() {
    on_server("deadpool_deaf", |place| async move {
        let pool = Deadpool::open(&place.url, 2).await;
        assert!(PostgresStore::from_pool(pool.clone()).await.unwrap().signals().is_none());
        let refused = PostgresStore::builder_from_pool(pool.clone()).with_beacons().connect().await.unwrap_err();
        assert!(refused.message.contains("builder_from_pool((pool, config))"), "{refused}");
        let refused = PostgresStore::builder_from_pool(pool).tls(NoTls).connect().await.unwrap_err();
        assert!(refused.message.contains("PostgresStoreBuilder::tls is for"), "{refused}");
    });
}

/// Passed, refused and dropped fences, in transactions of the pool that the store uses, too.
#[test]
fn a_transaction_of_the_pool_is_fenced() {
    on_server("deadpool_fence", |place| async move {
        let pool = Deadpool::open(&place.url, 4).await;
        drop(pools::store::<Deadpool>(&place).await);
        let manager = async || {
            let store = pool.builder(&place).prefix(&place.prefix).connect().await.unwrap();
            LeaseManager::builder(store, TokioExecutor::new()).build().unwrap()
        };
        let (leases, thief) = (manager().await, manager().await);
        let mut client = pool.get().await.unwrap();
        client.batch_execute("CREATE TABLE deadpool_notes (text text)").await.unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let write = "INSERT INTO deadpool_notes VALUES ('milk')";
        let mut transaction = client.transaction().await.unwrap();
        let fenced = guard.fence_and_renew(&mut transaction).await.unwrap();
        transaction.batch_execute(write).await.unwrap();
        transaction.commit().await.unwrap();
        fenced.committed();
        let mut transaction = client.transaction().await.unwrap();
        drop(guard.fence(&mut transaction));
        assert!(transaction.batch_execute(write).await.is_err());
        drop(transaction.commit().await);
        let _stolen = thief.lock("k").steal().await.unwrap();
        let mut transaction = client.transaction().await.unwrap();
        transaction.batch_execute(write).await.unwrap();
        assert_eq!(
            guard.fence(&mut transaction).await.unwrap_err(),
            FenceError::Lost { key: "k".into(), reason: LostReason::Stolen }
        );
        drop(transaction.commit().await);
        assert_eq!(pool.ask("SELECT count(*) FROM deadpool_notes").await, ["1"]);
    });
}
