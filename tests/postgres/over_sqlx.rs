//! Over sqlx's `PgPool`.

use std::{
    any::Any,
    str::FromStr,
    time::{Duration, Instant},
};

use leasehold::{
    machine::{Body, Key, Message, SessionId, StoreId},
    signal::contract::Half,
    store::{PostgresStore, PostgresStoreBuilder, Store},
};
use sqlx::{
    AssertSqlSafe, PgPool, Row, ValueRef,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use tokio::runtime::Runtime;

use crate::{pools::Pool, server::Place, until::wait_until};

impl Pool for PgPool {
    const NAME: &'static str = "sqlx::PgPool";

    async fn open(url: &str, most: u32) -> Self {
        // pgbouncer knows no `extra_float_digits`.
        let options = PgConnectOptions::from_str(url).unwrap().extra_float_digits(None);
        PgPoolOptions::new().max_connections(most).connect_with(options).await.unwrap()
    }

    async fn ask(&self, statement: &str) -> Vec<String> {
        let row = sqlx::raw_sql(AssertSqlSafe(statement)).fetch_one(self).await.unwrap();
        (0..row.len())
            .map(|column| {
                let value = row.try_get_raw(column).unwrap();
                assert!(!value.is_null());
                value.as_str().unwrap().to_owned()
            })
            .collect()
    }

    async fn take(&self) -> Box<dyn Any> {
        Box::new(self.acquire().await.unwrap())
    }

    async fn end(&self) {
        self.close().await;
    }

    fn builder(&self, _place: &Place) -> PostgresStoreBuilder {
        PostgresStore::builder_from_pool(self.clone())
    }
}

crate::pools::suites!(PgPool, "sqlx");

/// The network drops everything while a question is under way, and both ends of the connection stand.
#[test]
fn a_connection_for_signals_that_falls_silent_at_a_question_loses_its_beacon() {
    let Some(place) = Place::new("sqlx_silent") else { return };
    let runtime = Runtime::new().unwrap();
    let proxy = place.proxy();
    let signals = runtime.block_on(async {
        let pool = PgPool::open(&place.behind(proxy.port).url, 1).await;
        let store = PostgresStore::builder_from_pool(pool).prefix(&place.prefix).with_beacons().connect();
        store.await.unwrap().signals().expect("it brings signals")
    });
    let half = Half::new(signals);
    let session = SessionId(1);
    half.obey(&format!("wake {session}"));
    wait_until("its beacon stands", || half.obey("tell").contains(&format!("stands {session}")));
    proxy.fall_silent();
    let key = Key::new("k").unwrap();
    let message =
        Message { store: StoreId(1), key, body: Body::Wanted { holder: SessionId(2), by: SessionId(1), tries: false } };
    half.obey(&format!("send {}", message.encode()));
    let since = Instant::now();
    wait_until("its loss is noticed", || half.obey("tell").contains(&format!("lost {session}")));
    assert!(since.elapsed() < Duration::from_secs(15), "it took {:?}", since.elapsed());
}
