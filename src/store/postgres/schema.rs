//! The tables, and their version.

use std::vec::Vec;

use super::{
    carrier::{Failure, Loan, Round},
    failure,
    lending::{Errand, Lending},
    literal::text,
    names::Names,
    rows::{Access, Hold, SCHEMA, StoreText},
};
use crate::machine::StoreError;

/// The tables, by what follows their prefix.
pub(super) const KINDS: [&str; 3] = ["store", "record", "session"];

/// Makes what is missing, all or nothing.
pub(super) async fn migrate(lending: &Lending, names: &Names, limit: core::time::Duration) -> Result<(), StoreError> {
    let mut lent = lending.lend(Errand::Any, limit).await?;
    // Whoever may not create tables can call this, too, where they stand.
    let stands = match version(&mut *lent.loan, names).await {
        Ok(stands) => stands,
        Err(failure) if failure.code == "42P01" => {
            check_missing(&mut *lent.loan, names).await?;
            None
        }
        Err(failure) => return Err(failure::of_look(&failure, names)),
    };
    let found = match stands {
        Some(found) => found,
        None => create(&mut *lent.loan, names).await?,
    };
    lent.give_back();
    if found == SCHEMA { Ok(()) } else { Err(failure::other_schema(names, found, SCHEMA)) }
}

/// The version of the tables, or `None` if the first has no row. Reads from all three, so that one of another program is noticed.
async fn version(loan: &mut (dyn Loan + '_), names: &Names) -> Result<Option<i32>, Failure> {
    let mut round = Round::default();
    let place = round.add(&read_of(names, "store"));
    ["record", "session"].iter().for_each(|kind| _ = round.add(&read_of(names, kind)));
    let hiding = round.add(&names.ask_hiding(Access::Look));
    let answers = loan.carry(&round).await?;
    failure::check_hiding(answers.rows(hiding))?;
    Ok(StoreText::of(&answers, place).map(|found| found.schema))
}

/// Fails if some of the tables are there, and others are not. Somebody dropped those: with new tables, a key would seem free although its
/// holder still relies on its session.
async fn check_missing(loan: &mut (dyn Loan + '_), names: &Names) -> Result<(), StoreError> {
    let mut missing = missing_kinds(loan, names).await?;
    if is_part(&missing) {
        // The server does not look up all names at one moment, and another program may have made all tables meanwhile.
        missing = missing_kinds(loan, names).await?;
    }
    if !is_part(&missing) {
        return Ok(());
    }
    // Those that are there may be another program's: reading them shows that.
    for kind in KINDS.iter().filter(|kind| !missing.contains(kind)) {
        let read = loan.carry(&Round::one(&read_of(names, kind))).await;
        read.map_err(|failure| failure::of_look(&failure, names))?;
    }
    let missing: Vec<_> = missing.into_iter().map(|kind| names.plain_table(kind)).collect();
    Err(failure::tables_are_missing(&missing))
}

const fn is_part(missing: &[&str]) -> bool {
    !missing.is_empty() && missing.len() < KINDS.len()
}

/// The kinds of tables that are not there.
async fn missing_kinds(loan: &mut (dyn Loan + '_), names: &Names) -> Result<Vec<&'static str>, StoreError> {
    let found = KINDS.map(|kind| format!("to_regclass({}) IS NULL", text(&names.table(kind))));
    let asked = loan.carry(&Round::one(&format!("SELECT {}", found.join(", ")))).await;
    let answers = asked.map_err(|failure| failure::of_look(&failure, names))?;
    let is_missing = |column: usize| answers.first(0).is_some_and(|row| row.is_true(column));
    Ok(KINDS.into_iter().enumerate().filter(|(column, _)| is_missing(*column)).map(|(_, kind)| kind).collect())
}

/// What succeeds only if the table of this kind has our columns.
fn read_of(names: &Names, kind: &str) -> String {
    let table = names.table(kind);
    match kind {
        "store" => names.read_store(Hold::Not),
        "record" => format!("SELECT key = ''::bytea, text || '' FROM {table} LIMIT 0"),
        _ => format!("SELECT id = ''::bytea, text || '', beacon_on || '' FROM {table} LIMIT 0"),
    }
}

async fn create(loan: &mut (dyn Loan + '_), names: &Names) -> Result<i32, StoreError> {
    let made = loan.carry(&statements(names)).await;
    let found = match made {
        Ok(_) => version(loan, names).await,
        Err(failure) => Err(failure),
    };
    match found {
        Ok(Some(found)) => {
            let committed = loan.carry(&Round::one("COMMIT")).await;
            committed.map_err(|failure| failure::of_commit(&failure, names)).map(|_| found)
        }
        // The connection is dropped, and the transaction with it.
        Ok(None) => Err(failure::no_row(names)),
        Err(failure) => Err(failure::of_create(&failure, names)),
    }
}

/// Half of each page is left free: what is written over and over finds room beside its last version, and needs no index.
fn statements(names: &Names) -> Round {
    let [store, record, session] = KINDS.map(|kind| names.table(kind));
    let lock = names.lock_of_schema();
    let mut round = Round::default();
    for statement in [
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE".into(),
        format!("SELECT pg_advisory_xact_lock({lock})"),
        format!(
            "CREATE TABLE IF NOT EXISTS {store} (single boolean PRIMARY KEY DEFAULT true CHECK (single), schema integer NOT NULL, text text)"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {record} (key bytea PRIMARY KEY, text text NOT NULL) WITH (fillfactor = 50)"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {session} (id bytea PRIMARY KEY, text text NOT NULL, beacon_on text) WITH (fillfactor = 50)"
        ),
        format!("INSERT INTO {store} (schema) VALUES ({SCHEMA}) ON CONFLICT DO NOTHING"),
    ] {
        round.add(&statement);
    }
    round
}
