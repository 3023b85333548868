//! The tables, and their version.

use futures::future::join;
use tokio_postgres::{Client, Error};

use super::{
    failure,
    names::Names,
    pool::{Errand, Pool},
    rows::{Hold, Runner, SCHEMA, Tables},
};
use crate::machine::StoreError;

/// Makes what is missing, all or nothing.
pub(super) async fn migrate(pool: &Pool, names: &Names) -> Result<(), StoreError> {
    let lent = pool.lend(Errand::Any).await?;
    // Whoever may not create tables can call this, too, where they stand.
    let stands = match version(&lent.client, names).await {
        Ok(found) => found,
        Err(error) if failure::code(&error) == "42P01" => None,
        Err(error) => return Err(failure::of_statement(&error, names)),
    };
    let found = match stands {
        Some(found) => found,
        None => create(&lent.client, names).await?,
    };
    lent.give_back();
    if found == SCHEMA { Ok(()) } else { Err(failure::other_schema(names, found, SCHEMA)) }
}

/// Reads from all three tables, so that one of another program is noticed. `None` if the first has no row.
async fn version(client: &Client, names: &Names) -> Result<Option<i32>, Error> {
    let tables = Tables { names, runner: Runner::Connection(client) };
    let (record, session) = (names.table("record"), names.table("session"));
    let probe = format!(
        "SELECT key = ''::bytea, text || '' FROM {record} LIMIT 0; SELECT id = ''::bytea, text || '' FROM {session} LIMIT 0"
    );
    let (found, probed) = join(tables.store(Hold::Not), tables.runner.run(&probe)).await;
    let found = found?;
    probed?;
    Ok(found.map(|found| found.schema))
}

async fn create(client: &Client, names: &Names) -> Result<i32, StoreError> {
    let made = client.batch_execute(&statements(names)).await;
    let found = match made {
        Ok(()) => version(client, names).await,
        Err(error) => Err(error),
    };
    match found {
        Ok(Some(found)) => {
            let committed = client.batch_execute("COMMIT").await;
            committed.map_err(|error| failure::of_commit(&error, names)).map(|()| found)
        }
        // The connection is dropped, and the transaction with it.
        Ok(None) => Err(failure::no_row(names)),
        Err(error) => Err(failure::of_create(&error, names)),
    }
}

/// Half of each page is left free: what is written over and over finds room beside its last version, and needs no index.
fn statements(names: &Names) -> String {
    let [store, record, session] = ["store", "record", "session"].map(|kind| names.table(kind));
    let lock = names.lock_of_schema();
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
         SELECT pg_advisory_xact_lock({lock}); \
         CREATE TABLE IF NOT EXISTS {store} (single boolean PRIMARY KEY DEFAULT true CHECK (single), schema integer NOT NULL, text text); \
         CREATE TABLE IF NOT EXISTS {record} (key bytea PRIMARY KEY, text text NOT NULL) WITH (fillfactor = 50); \
         CREATE TABLE IF NOT EXISTS {session} (id bytea PRIMARY KEY, text text NOT NULL) WITH (fillfactor = 50); \
         INSERT INTO {store} (schema) VALUES ({SCHEMA}) ON CONFLICT DO NOTHING"
    )
}
