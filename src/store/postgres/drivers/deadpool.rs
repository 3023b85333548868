//! deadpool-postgres: the application's own pool of tokio-postgres connections.

use core::any::Any;
use std::{boxed::Box, format, string::String, vec::Vec};

use async_trait::async_trait;
use deadpool_postgres::{Object, Pool, PoolError, TimeoutType, Transaction};
use tokio::runtime::Handle;
use tokio_postgres::{Config, NoTls, config::SslMode};

use super::{
    super::{
        super::{Fence, FenceError, Fenced, FencedTransaction},
        PostgresPool,
        carrier::{
            Answers, Carrier, Exchange, Failure, Gathering, Lender, Loan, REMEDY, Round, Source, Supply, exhausted,
            pool_closed,
        },
        failure,
        options::invalid,
    },
    client::{Connector, Dial, carry, connector_of, failed},
};
use crate::executor::{MaybeSendFuture, Shared};
use crate::machine::StoreError;

const NAME: &str = "the application's deadpool-postgres pool";
/// Without this error, no connection for signals would ever open, and nobody would learn of it.
const NO_TLS: &str = "the tokio_postgres::Config beside the pool asks for an encrypted connection (sslmode), but the store has no TLS \
    connector for it; give PostgresStoreBuilder::tls a connector such as that of the pool";

struct Deadpool {
    pool: Pool,
    /// For signals.
    config: Option<Config>,
    connector: Option<Shared<dyn Connector>>,
}

#[async_trait]
impl Source for Deadpool {
    async fn open(self: Box<Self>, runtime: Handle) -> Result<Supply, StoreError> {
        let asks = self.config.as_ref().is_some_and(|config| config.get_ssl_mode() == SslMode::Require);
        if asks && self.connector.is_none() {
            return Err(invalid(NO_TLS));
        }
        let connector = self.connector.unwrap_or_else(|| connector_of(NoTls));
        let dial = |config| Shared::new(Dial::new(config, connector, runtime).watchful());
        let exchange = self.config.map(|config| dial(config) as Shared<dyn Exchange>);
        Ok(Supply { lender: Box::new(self.pool), exchange })
    }

    fn encrypt(&mut self, connector: &dyn Any) -> bool {
        self.connector = connector.downcast_ref().cloned();
        self.config.is_some() && self.connector.is_some()
    }
}

/// The hosts that the pool connects to, for an error message. The pool shows its options only by `Debug`, and without the password. There,
/// a quotation mark within a text has a backslash before it, so nothing else passes for a host.
fn hosts_of(pool: &Pool) -> Vec<String> {
    let shown = format!("{:?}", pool.manager());
    let hosts = shown.split("Tcp(\"").skip(1);
    hosts.filter_map(|host| Some(host.split_once('"')?.0.into())).collect()
}

/// A connection of the application's pool; `None` once it went back.
struct Taken(Option<Object>);

#[async_trait]
impl Lender for Pool {
    async fn lend(&self) -> Result<(Box<dyn Loan + '_>, bool), StoreError> {
        let client = self.get().await.map_err(|error| match error {
            PoolError::Timeout(TimeoutType::Wait) => exhausted(NAME, REMEDY, self.timeouts().wait.unwrap_or_default()),
            PoolError::Closed => pool_closed(NAME),
            PoolError::Backend(error) => failure::of_connect(&failed(&error), "of that pool", &hosts_of(self)),
            other => StoreError::transient(format!("{NAME} gave no connection: {other}")),
        })?;
        Ok((Box::new(Taken(Some(client))), true))
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn most(&self) -> usize {
        self.status().max_size
    }
}

#[async_trait]
impl Carrier for Taken {
    async fn carry(&mut self, round: &Round) -> Result<Answers, Failure> {
        match &self.0 {
            Some(client) => carry(client, round).await,
            None => Err(Gathering::default().failed(None, "the connection was already returned to its pool".into())),
        }
    }
}

impl Loan for Taken {
    fn give_back(mut self: Box<Self>) {
        drop(self.0.take());
    }
}

impl Drop for Taken {
    /// It may be in the middle of a transaction, and the pool would keep it so: it leaves the pool, and is closed.
    fn drop(&mut self) {
        drop(self.0.take().map(Object::take));
    }
}

/// Makes a store without signals, because a connection of such a pool cannot listen. A waiter reads the store once per heartbeat to see
/// a release by another process.
///
/// ```no_run
/// use leasehold::store::PostgresStore;
///
/// # async fn example(pool: deadpool_postgres::Pool) -> Result<(), leasehold::StoreError> {
/// let store = PostgresStore::from_pool(pool.clone()).await?;
/// # Ok(()) }
/// ```
impl From<Pool> for PostgresPool {
    fn from(pool: Pool) -> Self {
        Self(Box::new(Deadpool { pool, config: None, connector: None }))
    }
}

/// Makes a store with signals, on connections opened beside the pool with these options: one for each context that holds or waits.
/// [`PostgresStoreBuilder::tls`](crate::store::PostgresStoreBuilder::tls) encrypts them. **Without it they are not encrypted, even if the
/// pool encrypts its connections**, and options with `sslmode=require` are refused.
///
/// ```no_run
/// use leasehold::store::PostgresStore;
///
/// # async fn example(pool: deadpool_postgres::Pool) -> Result<(), Box<dyn std::error::Error>> {
/// let direct: tokio_postgres::Config = "postgres://app:secret@localhost/app".parse()?;
/// let store = PostgresStore::from_pool((pool.clone(), direct)).await?;
/// # Ok(()) }
/// ```
impl From<(Pool, Config)> for PostgresPool {
    fn from((pool, config): (Pool, Config)) -> Self {
        Self(Box::new(Deadpool { pool, config: Some(config), connector: None }))
    }
}

/// A transaction of `deadpool-postgres`. The fence acts on the [`tokio_postgres`] transaction in it.
///
/// ```no_run
/// # async fn example(guard: leasehold::LeaseGuard, pool: deadpool_postgres::Pool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut client = pool.get().await?;
/// let mut transaction = client.transaction().await?;
/// let fenced = guard.fence(&mut transaction).await?;
/// transaction.execute("UPDATE notes SET text = 'milk'", &[]).await?;
/// transaction.commit().await?;
/// fenced.committed();
/// # Ok(()) }
/// ```
impl<'a, 'b> FencedTransaction for &'a mut Transaction<'b> {
    type Passed = Fenced;
    type Answer = MaybeSendFuture<'a, Result<Fenced, FenceError>>;

    fn check(self, fence: Shared<dyn Fence>) -> Self::Answer {
        FencedTransaction::check(&mut **self, fence)
    }

    fn refuse(self, why: FenceError) -> Self::Answer {
        FencedTransaction::refuse(&mut **self, why)
    }
}

#[cfg(test)]
mod tests {
    use deadpool_postgres::Manager;

    use super::*;

    fn pool(config: Config) -> Pool {
        Pool::builder(Manager::new(config, NoTls)).build().expect("it has no time limits")
    }

    #[test]
    fn a_host_that_is_not_found_is_named() {
        let mut config = Config::new();
        config.host("no-such-host.invalid").user("me").password("secret");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let error = runtime.block_on(pool(config).lend()).err().expect("nobody is there");
        assert!(
            error.message.contains("at no-such-host.invalid: the host name was not found") && error.retry,
            "{error}"
        );
    }

    #[test]
    fn encrypted_connections_for_signals_need_a_connector() {
        let config: Config = "host=no-such-host.invalid user=me sslmode=require".parse().expect("they are options");
        let source = Deadpool { pool: pool(config.clone()), config: Some(config), connector: None };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let opening = Box::new(source).open(runtime.handle().clone());
        let error = runtime.block_on(opening).err().expect("it has none");
        assert!(error.message.contains("PostgresStoreBuilder::tls") && !error.retry, "{error}");
    }

    #[test]
    fn only_hosts_pass_for_hosts() {
        let mut config = Config::new();
        config.host("one").host("/run/postgresql").host("two").user("Tcp(\"me").password("secret");
        assert_eq!(hosts_of(&pool(config)), ["one", "two"]);
    }
}
