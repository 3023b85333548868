//! sqlx: the application's own `PgPool`.

mod fence;
mod listen;

use std::{boxed::Box, string::String};

use async_trait::async_trait;
use futures::TryStreamExt;
use sqlx::{
    AssertSqlSafe, Either, Error, Executor, PgPool, Postgres, Row as _, ValueRef,
    pool::PoolConnection,
    postgres::{PgDatabaseError, PgRow},
    raw_sql,
};
use tokio::runtime::Handle;

use super::super::{
    PostgresPool,
    carrier::{
        Answers, Carrier, Exchange, Failure, Gathering, Lender, Loan, REMEDY, Round, Row, Source, Supply, exhausted,
        pool_closed,
    },
    failure,
};
use crate::executor::Shared;
use crate::machine::StoreError;

use listen::Listening;

const NAME: &str = "the application's sqlx::PgPool";

/// Sends a round by one simple query, and returns when the connection is ready for the next one.
async fn carry<'c>(connection: impl Executor<'c, Database = Postgres>, round: &Round) -> Result<Answers, Failure> {
    let mut gathering = Gathering::default();
    let mut messages = raw_sql(AssertSqlSafe(String::from(round.text()))).fetch_many(connection);
    loop {
        match messages.try_next().await {
            Ok(Some(Either::Right(row))) => match texts(&row) {
                Ok(row) => gathering.row(row),
                Err(error) => return Err(fail(gathering, &error)),
            },
            Ok(Some(Either::Left(done))) => gathering.completed(done.rows_affected()),
            Ok(None) => return Ok(gathering.answers()),
            Err(error) => return Err(fail(gathering, &error)),
        }
    }
}

fn texts(row: &PgRow) -> Result<Row, Error> {
    let text = |column| {
        let value = row.try_get_raw(column)?;
        if value.is_null() {
            return Ok(None);
        }
        value.as_str().map(|text| Some(String::from(text))).map_err(Error::Decode)
    };
    Ok(Row((0..row.len()).map(text).collect::<Result<_, Error>>()?))
}

fn fail(gathering: Gathering, error: &Error) -> Failure {
    let Some(answer) = error.as_database_error() else { return gathering.failed(None, error.to_string()) };
    let code = answer.code().map(String::from);
    let said = format!("{} (SQLSTATE {})", answer.message(), code.as_deref().unwrap_or("unknown"));
    let routine = answer.try_downcast_ref::<PgDatabaseError>().and_then(PgDatabaseError::routine);
    gathering.failed(code, said).by_routine(routine)
}

/// Why the pool, or a server, gave no connection.
fn refused(error: &Error, pool: &PgPool) -> StoreError {
    match error {
        Error::PoolTimedOut => exhausted(NAME, REMEDY, pool.options().get_acquire_timeout()),
        Error::PoolClosed => pool_closed(NAME),
        error => {
            let options = pool.connect_options();
            let port = options.get_port();
            let server = match options.get_socket() {
                Some(folder) => folder.join(format!(".s.PGSQL.{port}")).display().to_string(),
                None => format!("{}:{port}", options.get_host()),
            };
            failure::of_connect(&fail(Gathering::default(), error), options.get_username(), &[server])
        }
    }
}

struct Pool {
    pool: PgPool,
    runtime: Handle,
}

/// A connection of the application's pool.
struct Taken {
    /// `None` once it went back.
    connection: Option<PoolConnection<Postgres>>,
    runtime: Handle,
}

#[async_trait]
impl Lender for Pool {
    async fn lend(&self) -> Result<(Box<dyn Loan + '_>, bool), StoreError> {
        let connection = self.pool.acquire().await.map_err(|error| refused(&error, &self.pool))?;
        let taken = Taken { connection: Some(connection), runtime: self.runtime.clone() };
        // The pool's owner chooses whether the pool tests the connections that it lends.
        Ok((Box::new(taken), true))
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn most(&self) -> usize {
        usize::try_from(self.pool.options().get_max_connections()).unwrap_or(usize::MAX)
    }
}

#[async_trait]
impl Carrier for Taken {
    async fn carry(&mut self, round: &Round) -> Result<Answers, Failure> {
        match &mut self.connection {
            Some(connection) => carry(&mut **connection, round).await,
            None => Err(Gathering::default().failed(None, "the connection was already returned to its pool".into())),
        }
    }
}

impl Loan for Taken {
    fn give_back(mut self: Box<Self>) {
        drop(self.connection.take());
    }
}

impl Drop for Taken {
    /// It may be in the middle of a transaction, and the pool would keep it so: it leaves the pool, and is closed.
    fn drop(&mut self) {
        // The pool may replace it by a task, also where the runtime is about to end.
        let _entered = self.runtime.enter();
        drop(self.connection.take().map(PoolConnection::detach));
    }
}

#[async_trait]
impl Source for PgPool {
    async fn open(self: Box<Self>, runtime: Handle) -> Result<Supply, StoreError> {
        let exchange: Shared<dyn Exchange> = Shared::new(Listening { pool: (*self).clone(), runtime: runtime.clone() });
        Ok(Supply { lender: Box::new(Pool { pool: *self, runtime }), exchange: Some(exchange) })
    }
}

/// Transactions run on connections of the pool. Signals use connections opened beside it with the pool's options, one for each context
/// that holds or waits. A pool whose options lead to a pooler in transaction mode needs
/// [`without_signals`](crate::store::PostgresStoreBuilder::without_signals).
///
/// ```no_run
/// use leasehold::store::PostgresStore;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = sqlx::PgPool::connect("postgres://app:secret@localhost/app").await?;
/// let store = PostgresStore::from_pool(pool.clone()).await?;
/// store.migrate().await?;
/// # Ok(()) }
/// ```
impl From<PgPool> for PostgresPool {
    fn from(pool: PgPool) -> Self {
        Self(Box::new(pool))
    }
}
