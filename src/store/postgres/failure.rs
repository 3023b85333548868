//! What the errors of the server and of the connection mean for a transaction.
//!
//! The codes are those of [PostgreSQL](https://www.postgresql.org/docs/current/errcodes-appendix.html).

use core::time::Duration;
use std::string::String;

use super::{
    carrier::{Failure, Gathering, Row},
    names::Names,
};
use crate::{
    machine::{Batch, StoreError, StoreErrorKind},
    store::tls::{SIGN_ANOTHER, is_of_an_authority, is_of_own},
};

/// The server ended a transaction of the store with this error, or the connection broke before a commit was sent. Such a transaction
/// limits its statements itself, so a limit that the user or the database has cut none of them short.
pub(super) fn of_transaction(failure: &Failure, names: &Names, batch: &Batch) -> StoreError {
    match failure.code.as_str() {
        "57014" => of_cancel(failure, "allow more by store_timeout or by a longer lease"),
        _ if batch.only_looks() => of_look(failure, names),
        _ => of_statement(failure, names),
    }
}

/// A statement that only reads was ended with this error.
pub(super) fn of_look(failure: &Failure, names: &Names) -> StoreError {
    match failure.code.as_str() {
        "42501" => {
            of_missing_right(failure, names, "SELECT", ", and INSERT, UPDATE and DELETE too if it is to take leases")
        }
        _ => of_statement(failure, names),
    }
}

fn of_missing_right(failure: &Failure, names: &Names, rights: &str, more: &str) -> StoreError {
    let [store, record, session] = ["store", "record", "session"].map(|kind| names.table(kind));
    let message = if failure.is_of_policies {
        format!(
            "row-level security policies keep the user of the database from rows that the store needs: {}; ALTER TABLE {store} DISABLE \
             ROW LEVEL SECURITY, and likewise for {record} and {session}, or give the user the attribute BYPASSRLS",
            failure.said
        )
    } else {
        format!(
            "the user of the database lacks a right: {}; GRANT {rights} ON {store}, {record}, {session} to it{more}",
            failure.said
        )
    };
    StoreError::permanent(StoreErrorKind::Unsupported, message)
}

/// Fails if policies or views may hide rows, by what [`Names::ask_hiding`] found: the server itself reports no error.
pub(super) fn check_hiding(found: &[Row]) -> Result<(), Failure> {
    if found.first().is_some_and(|row| row.is_true(1)) {
        let said = "one of them is a view or a foreign table, which may hide rows of holders";
        return Err(Gathering::default().failed(Some("42809".into()), said.into()));
    }
    if !found.first().is_some_and(|row| row.is_true(0)) {
        return Ok(());
    }
    let said = "row-level security is active, and no policies USING (true) let the user see, lock and delete all rows";
    let failure = Gathering::default().failed(Some("42501".into()), said.into());
    Err(Failure { is_of_policies: true, ..failure })
}

fn of_cancel(failure: &Failure, remedy: &str) -> StoreError {
    StoreError::busy(format!(
        "the server cancelled a statement: {}; see pg_stat_activity for what kept it waiting, or, if its time ran out, {remedy}",
        failure.said
    ))
}

/// The server refused a statement with this error, or the connection broke. If the statement is in a transaction of the store, see
/// [`of_transaction`].
pub(super) fn of_statement(failure: &Failure, names: &Names) -> StoreError {
    let permanent = |message| StoreError::permanent(StoreErrorKind::Unsupported, message);
    match failure.code.as_str() {
        "42P01" | "3F000" => permanent(no_table(names, &failure.said)),
        "42703" | "42804" | "42809" | "42883" | "42P10" => permanent(format!(
            "the tables with the prefix {:?} are not leasehold's: {}; choose another prefix, by `prefix=` in the URL or by \
             PostgresStoreBuilder::prefix",
            names.prefix, failure.said
        )),
        "42501" => of_missing_right(failure, names, "SELECT, INSERT, UPDATE, DELETE", ""),
        "0A000" if failure.is_of_rules => permanent(format!(
            "rules on the tables with the prefix {:?} keep the store from writing: {}; DROP RULE … ON the table, or use triggers",
            names.prefix, failure.said
        )),
        // A NOT NULL or a CHECK of the user's.
        "23502" | "23514" => permanent(format!(
            "the tables with the prefix {:?} have a constraint that is not leasehold's: {}; drop it",
            names.prefix, failure.said
        )),
        // After a failover another server is the one that can be written to.
        _ if is_of_a_standby(failure) => StoreError::transient(format!(
            "the server cannot be written to: {}; name the primary in the URL, or all servers with \
             target_session_attrs=read-write",
            failure.said
        )),
        "57014" => {
            of_cancel(failure, "raise the statement_timeout that the user, the database or the transaction sets")
        }
        // Since version 17. The server rolls the transaction back, and ends the connection.
        "25P04" => {
            of_cancel(failure, "raise the transaction_timeout that the user, the database or the transaction sets")
        }
        "55P03" => StoreError::locked(format!(
            "another transaction keeps a lease locked: {}; if it is a fenced one, keep it short; if it hangs in its commit, see \
             pg_stat_activity for what it waits for, such as a synchronous replica",
            failure.said
        )),
        // A key has up to 1,024 units of UTF-16, but that of a lock has no limit.
        "54000" => permanent(format!("a key is too long for PostgreSQL: {}; choose a shorter one", failure.said)),
        // A transaction takes a lock for each of its keys. If it is sent again as it is, the server refuses it again.
        "53200" => StoreError {
            kind: StoreErrorKind::TooLarge,
            ..StoreError::transient(format!(
                "the server has no memory for a transaction with this many keys: {}; ask for fewer keys at once, or raise \
                 max_locks_per_transaction",
                failure.said
            ))
        },
        "53100" => StoreError {
            kind: StoreErrorKind::Quota,
            ..StoreError::transient(format!("the server's disk is full: {}; make room on it", failure.said))
        },
        code if code.starts_with("22") || code.starts_with("42") => permanent(failure.said.clone()),
        _ => StoreError::transient(failure.said.clone()),
    }
}

/// Whether a server that only follows another one refused to write.
pub(super) fn is_of_a_standby(failure: &Failure) -> bool {
    ["25006", "0A000"].contains(&&*failure.code) && !failure.is_of_rules
}

/// Asks whether the server only follows another one. Its leases may be out of date, and it would not refuse a look, which writes nothing.
pub(super) const IS_STANDBY: &str = "SELECT pg_is_in_recovery()";

/// What [`IS_STANDBY`] found.
pub(super) fn is_standby(found: &[Row]) -> bool {
    found.first().is_some_and(|row| row.is_true(0))
}

/// The failure as if such a server had refused to write.
pub(super) fn of_a_standby() -> Failure {
    Gathering::default().failed(Some("25006".into()), "it is a standby, which follows another server".into())
}

/// Whether the server refused this statement, so that the commit behind it was not executed. An error by which a pooler reports that the
/// server went away, or the last error of a server, may belong to the commit instead.
pub(super) fn is_of_statement(failure: &Failure) -> bool {
    let uncertain = ["08", "40003", "57P", "58", "XX"];
    !failure.code.is_empty() && !uncertain.iter().any(|class| failure.code.starts_with(class))
}

/// A commit was sent and answered with an error, or not at all.
pub(super) fn of_commit(failure: &Failure, names: &Names) -> StoreError {
    // These two classes end the transaction before it is committed. The others may come after it was.
    match failure.code.as_str() {
        // This code itself means that it is unknown whether the statement was completed.
        "40003" => StoreError::unknown(format!("the commit was sent, and then: {}", failure.said)),
        code if code.starts_with("40") || code.starts_with("23") => of_statement(failure, names),
        _ => StoreError::unknown(format!("the commit was sent, and then: {}", failure.said)),
    }
}

/// The error if no connection was opened to any of these servers, each of which is `host:port` or the path of a socket.
pub(super) fn of_connect(failure: &Failure, user: &str, servers: &[String]) -> StoreError {
    if failure.code.is_empty()
        && let Some(error) = of_encryption(&failure.said)
    {
        return error;
    }
    let permanent = |message| StoreError::permanent(StoreErrorKind::Unsupported, message);
    match failure.code.as_str() {
        // The server says this wherever it refuses an unencrypted connection, even if it would refuse an encrypted one too.
        "28000" if failure.said.contains("no encryption") => permanent(format!(
            "the server does not let the user {user} in without encryption: {}; write sslmode=require in the URL, or give a TLS connector \
             by PostgresStoreBuilder::tls, or correct pg_hba.conf",
            failure.said
        )),
        "28000" if failure.said.contains("client certificate") => permanent(format!(
            "the server asks for a certificate of the user {user}: {}; name its file and its key by sslcert= and sslkey= in the URL, or give \
             PostgresStoreBuilder::tls a connector that has one",
            failure.said
        )),
        "28P01" | "28000" => permanent(format!(
            "the server does not let the user {user} in: {}; correct the user or the password in the URL, or pg_hba.conf",
            failure.said
        )),
        "57P03" => StoreError::transient(format!(
            "the server accepts no connections yet: {}; wait until it has started",
            failure.said
        )),
        "3D000" => permanent(format!("{}; create the database, or correct its name in the URL", failure.said)),
        "53300" => StoreError::transient(format!(
            "the server has no connection left: {}; raise max_connections or the CONNECTION LIMIT of the user {user}, or let \
             fewer programs connect; within a program, the clones of a PostgresStore share its connections",
            failure.said
        )),
        "" => of_nobody(&failure.said, servers),
        _ => StoreError::transient(format!("the server refused the connection: {}", failure.said)),
    }
}

/// The error if none of these servers answered, or none of those that answered can be used.
fn of_nobody(said: &str, servers: &[String]) -> StoreError {
    if said.starts_with("invalid configuration") {
        // Users of libpq expect the client to find the password there.
        let unread = if said.contains("password missing") { "; PGPASSWORD and .pgpass are not read" } else { "" };
        let message = format!(
            "the URL of the database is incomplete: {said}; write it like postgres://user:password@host/database{unread}"
        );
        return StoreError::permanent(StoreErrorKind::Unsupported, message);
    }
    let servers = listed(servers);
    StoreError::transient(if said.contains("does not allow writes") {
        format!(
            "no server that answers can be written to: {said}; name the primary in the URL, too, or wait until it runs"
        )
    } else if said.contains("lookup address") {
        format!(
            "no server answers{servers}: the host name was not found; check it in the URL, or the DNS of this machine ({said})"
        )
    } else {
        format!("no server answers{servers}: {said}; check the host and the port in the URL, and that the server runs")
    })
}

/// The list of servers, to follow a verb in a message.
pub(super) fn listed(servers: &[String]) -> String {
    // If a password in the URL has an `@` in it, its end is taken for hosts, or for a part of one.
    let first = servers.iter().rposition(|server| server.contains('@')).unwrap_or(0);
    let servers: Vec<_> = servers.iter().skip(first).filter_map(|server| server.rsplit('@').next()).collect();
    if servers.is_empty() { String::new() } else { format!(" at {}", servers.join(", ")) }
}

/// The error if the connection failed because of its encryption. `None` if it failed otherwise.
fn of_encryption(said: &str) -> Option<StoreError> {
    if said.contains("certificate") {
        return Some(StoreError::transient(of_certificate(said)));
    }
    if is_of_own(said) {
        return Some(StoreError::transient(format!(
            "the server refuses the certificate of this program: {said}; name a valid one that the server trusts, and its key, by sslcert= \
             and sslkey= in the URL"
        )));
    }
    if said.contains("server does not support TLS") {
        return Some(StoreError::transient(format!(
            "the server does not encrypt this connection: {said}; set ssl=on in its configuration; or, for a socket or a trusted network, \
             write sslmode=disable in the URL"
        )));
    }
    if ["no hostname provided", "invalid dns name"].iter().any(|words| said.contains(words)) {
        return Some(StoreError::permanent(
            StoreErrorKind::Unsupported,
            format!(
                "no certificate can be verified without the server's name: {said}; write the name as host= in the URL, beside hostaddr= if \
                 that is there; for a socket, write sslmode=disable"
            ),
        ));
    }
    said.contains("performing TLS handshake").then(|| {
        StoreError::transient(format!(
            "the server began no encryption: {said}; check that the port is that of PostgreSQL; if the URL has sslnegotiation=direct, \
             leave it out for a server before version 17"
        ))
    })
}

/// The certificate of the server was refused.
fn of_certificate(said: &str) -> String {
    if is_of_an_authority(said) {
        return format!("the server shows the certificate of an authority as its own: {said}; {SIGN_ANOTHER}");
    }
    format!(
        "the server has a certificate that this program does not accept: {said}; check its host name and expiry, or name the file of its \
         authority by sslrootcert= in the URL, or give PostgresStoreBuilder::tls a connector that trusts its authority"
    )
}

/// The tables could not be made.
pub(super) fn of_create(failure: &Failure, names: &Names) -> StoreError {
    match failure.code.as_str() {
        "42501" if !failure.is_of_policies => StoreError::permanent(
            StoreErrorKind::Unsupported,
            format!(
                "the user of the database may not create the tables: {}; GRANT USAGE, CREATE ON SCHEMA \"{}\" to it, or call migrate() \
                 as another user",
                failure.said, names.schema
            ),
        ),
        _ => of_statement(failure, names),
    }
}

/// The time ran out before a commit was sent. Mostly others keep rows or connections, so a request that waits goes on.
pub(super) fn before_commit(limit: Duration) -> StoreError {
    StoreError::busy(format!(
        "the transaction did not come to its commit within {} ms; see pg_stat_activity for what kept it waiting, or allow more time by \
         store_timeout or by a longer lease",
        limit.as_millis()
    ))
}

/// The server names the first table that it did not find.
fn no_table(names: &Names, said: &str) -> String {
    // The schema before a dot may have the name of another table.
    let ends = |rest: &str| !rest.starts_with(|next: char| next == '.' || next == '_' || next.is_alphanumeric());
    let is_named = |table: &str| said.match_indices(table).any(|(at, _)| ends(&said[at + table.len()..]));
    let kind = ["record", "session"].into_iter().find(|kind| is_named(&names.plain_table(kind))).unwrap_or("store");
    format!(
        "the database has no table {} in the schema {:?}; if no program has used these leases yet, a user that may create tables must \
         open the store by store::from_url or the command line, or call PostgresStore::migrate(); if somebody renamed the table, give it \
         its name back",
        names.plain_table(kind),
        names.schema
    )
}

pub(super) fn tables_are_missing(missing: &[String]) -> StoreError {
    let message = format!(
        "the database lacks {}, but has other tables of the same leases, so nobody knows who holds which lease; end all programs that use \
         these tables, drop the others, too, and call migrate() again",
        missing.join(" and ")
    );
    StoreError::permanent(StoreErrorKind::Unsupported, message)
}

/// A trigger or a rule of the user's kept rows from being written.
pub(super) fn not_written(names: &Names) -> StoreError {
    let [record, session] = ["record", "session"].map(|kind| names.table(kind));
    let message = format!(
        "the database did not write all rows that it was given for {record} and {session}, and reported no error; drop the triggers and \
         rules on them, or let triggers return NEW"
    );
    StoreError::permanent(StoreErrorKind::Unsupported, message)
}

/// The tables are of another version.
pub(super) fn other_schema(names: &Names, found: i32, known: i32) -> StoreError {
    let remedy = if found > known {
        "update this program"
    } else {
        "use the version of this crate that made them, or choose another prefix"
    };
    let message = format!(
        "the tables with the prefix {:?} have version {found}, and this program knows version {known}; {remedy}",
        names.prefix
    );
    StoreError::permanent(StoreErrorKind::Unsupported, message)
}

/// The store's own row was deleted.
pub(super) fn no_row(names: &Names) -> StoreError {
    let message = format!(
        "the table {} lost its only row; stop all holders, then open the store by store::from_url or call \
         PostgresStore::migrate(): both begin a new store",
        names.plain_table("store")
    );
    StoreError::permanent(StoreErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_for_a_missing_password_says_where_it_belongs() {
        let error = of_nobody("invalid configuration: password missing", &["h:1".into()]);
        assert!(!error.retry, "{error}");
        for word in ["postgres://user:password@host/database", "PGPASSWORD", ".pgpass"] {
            assert!(error.message.contains(word), "{error}");
        }
    }

    #[test]
    fn servers_are_listed_without_what_may_be_the_end_of_a_password() {
        let list = |servers: &[&str]| listed(&servers.iter().map(|server| String::from(*server)).collect::<Vec<_>>());
        assert_eq!(list(&["one:1", "two:2"]), " at one:1, two:2");
        assert_eq!(list(&["ter2:5432", "x@one:1", "two:2"]), " at one:1, two:2");
        assert_eq!(list(&[]), "");
    }
}
