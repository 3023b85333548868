//! Over sqlx's `PgPool`.

use std::{any::Any, str::FromStr};

use leasehold::store::{PostgresStore, PostgresStoreBuilder};
use sqlx::{
    AssertSqlSafe, PgPool, Row, ValueRef,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::{pools::Pool, server::Place};

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
