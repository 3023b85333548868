//! What the errors of the server and of the connection mean for a transaction.
//!
//! The codes are those of [PostgreSQL](https://www.postgresql.org/docs/current/errcodes-appendix.html).

use core::error::Error as _;
use std::string::String;

use tokio_postgres::Error;

use super::names::Names;
use crate::machine::{StoreError, StoreErrorKind};

/// What the server answered, or what became of the connection, for people to read.
pub(super) fn said(error: &Error) -> String {
    if let Some(answer) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", answer.message(), answer.code().code());
    }
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The code of the server's answer; empty if the server did not answer.
pub(super) fn code(error: &Error) -> &str {
    error.code().map_or("", |code| code.code())
}

/// The server ended the transaction with this error, or the connection broke before a commit was sent.
pub(super) fn of_statement(error: &Error, names: &Names) -> StoreError {
    let permanent = |message| StoreError::permanent(StoreErrorKind::Unsupported, message);
    match code(error) {
        "42P01" | "3F000" => permanent(no_tables(names)),
        "42703" | "42804" | "42809" | "42883" | "42P10" => permanent(format!(
            "the tables with the prefix {:?} are not leasehold's: {}; choose another prefix by PostgresStoreBuilder::prefix",
            names.prefix,
            said(error)
        )),
        "42501" => permanent(format!(
            "the user of the database lacks a right: {}; GRANT SELECT, INSERT, UPDATE, DELETE ON {}, {}, {} to it",
            said(error),
            names.table("store"),
            names.table("record"),
            names.table("session")
        )),
        // After a failover another server is the one that can be written to.
        "25006" | "0A000" => StoreError::transient(format!(
            "the server cannot be written to: {}; name the primary in the URL, or all servers with \
             target_session_attrs=read-write",
            said(error)
        )),
        "55P03" => StoreError::transient(format!(
            "another transaction keeps a lease locked: {}; if it is a fenced one, keep it short",
            said(error)
        )),
        // A key has up to 1,024 units of UTF-16, but that of a lock has no limit.
        "54000" => permanent(format!("a key is too long for PostgreSQL: {}; choose a shorter name", said(error))),
        "53100" => StoreError::permanent(StoreErrorKind::Quota, format!("the server's disk is full: {}", said(error))),
        code if code.starts_with("22") || code.starts_with("42") => permanent(said(error)),
        _ => StoreError::transient(said(error)),
    }
}

/// Whether the server refused this very statement, so that a commit behind it was none. What a pooler says of a server that went
/// away may stand for a commit, too; so may the last words of a server.
pub(super) fn is_of_statement(error: &Error) -> bool {
    let uncertain = ["08", "40003", "57P", "58", "XX"];
    error.as_db_error().is_some() && !uncertain.iter().any(|class| code(error).starts_with(class))
}

/// A commit was sent and answered with an error, or not at all.
pub(super) fn of_commit(error: &Error, names: &Names) -> StoreError {
    // These two classes end the transaction before it is committed. The others may come after it was.
    match code(error) {
        // It says itself that nobody knows whether the statement was completed.
        "40003" => StoreError::unknown(format!("the commit was sent, and then: {}", said(error))),
        code if code.starts_with("40") || code.starts_with("23") => of_statement(error, names),
        _ => StoreError::unknown(format!("the commit was sent, and then: {}", said(error))),
    }
}

/// No connection came about.
pub(super) fn of_connect(error: &Error, user: &str) -> StoreError {
    let permanent = |message| StoreError::permanent(StoreErrorKind::Unsupported, message);
    match code(error) {
        "28P01" | "28000" => permanent(format!(
            "the server does not let the user {user:?} in: {}; correct the user or the password in the URL, or pg_hba.conf",
            said(error)
        )),
        "3D000" => permanent(format!("{}; create the database, or correct its name in the URL", said(error))),
        "53300" => StoreError::transient(format!(
            "the server has no connection left: {}; raise max_connections or the CONNECTION LIMIT of {user:?}, or share a PostgresStore \
             by clones",
            said(error)
        )),
        "" => StoreError::transient(format!(
            "no server answers: {}; check the host and the port in the URL, and that the server runs",
            said(error)
        )),
        _ => StoreError::transient(format!("the server refused the connection: {}", said(error))),
    }
}

/// The tables could not be made.
pub(super) fn of_create(error: &Error, names: &Names) -> StoreError {
    match code(error) {
        "42501" => StoreError::permanent(
            StoreErrorKind::Unsupported,
            format!(
                "the user of the database may not create the tables: {}; GRANT USAGE, CREATE ON SCHEMA \"{}\" to it, or call migrate() \
                 as another user",
                said(error),
                names.schema
            ),
        ),
        _ => of_statement(error, names),
    }
}

pub(super) fn no_tables(names: &Names) -> String {
    format!(
        "the database has no table {} in the schema {:?}; call PostgresStore::migrate() before the first lease, as a user that may \
         create tables",
        names.plain_table("store"),
        names.schema
    )
}

/// The tables are of another version.
pub(super) fn other_schema(names: &Names, found: i32, known: i32) -> StoreError {
    let remedy = if found > known { "update this program" } else { "call PostgresStore::migrate()" };
    let message = format!(
        "the tables with the prefix {:?} have version {found}, and this program knows version {known}; {remedy}",
        names.prefix
    );
    StoreError::permanent(StoreErrorKind::Unsupported, message)
}

/// The store's own row was deleted.
pub(super) fn no_row(names: &Names) -> StoreError {
    let message = format!(
        "the table {} lost its only row; stop all holders, then call PostgresStore::migrate(), which begins a new store",
        names.plain_table("store")
    );
    StoreError::permanent(StoreErrorKind::Unsupported, message)
}
