//! How a transaction begins: by settings of its own.

use core::time::Duration;

use super::super::carrier::Round;

/// Whatever the user, the database or a pooler set before holds no longer: how transactions see each other, that this one may
/// write, how long it may take, and how the server encodes the texts that are read, and then written again. A context that is stopped
/// in the middle of it holds up the others for at most this long. Its commit is on the disk when it is answered: a lease that a crash of
/// the server undoes would be granted twice.
pub(super) fn begin(limit: Duration, round: &mut Round) {
    let (ms, lock_ms) = (fifths_of(limit, 4), lock_limit(limit));
    round.add("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
    round.add(&format!("SET LOCAL statement_timeout = {ms}"));
    round.add(&format!("SET LOCAL lock_timeout = {lock_ms}"));
    round.add(&format!("SET LOCAL idle_in_transaction_session_timeout = {ms}"));
    round.add("SET LOCAL synchronous_commit = on");
    round.add("SET LOCAL client_encoding = 'UTF8'");
}

/// The same for a transaction that goes out as one message. The server does not wait for this program inside it. Each statement has a
/// limit beside that of each lock: a stream of others that share a lock of a row would keep it waiting for ever, lock by lock. It sets no
/// encoding: only a connection that the store opened itself runs it, and such a connection uses UTF-8 from its start.
pub(super) fn begin_at_once(limit: Duration, round: &mut Round) {
    let (ms, lock_ms) = (fifths_of(limit, 4), lock_limit(limit));
    round.add("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
    round.add(&format!("SET LOCAL statement_timeout = {ms}"));
    round.add(&format!("SET LOCAL lock_timeout = {lock_ms}"));
    round.add("SET LOCAL synchronous_commit = on");
}

/// For a transaction that goes out as one message, whose sender may be gone when the server executes it. Only the statement's limit ends a
/// wait for a lock. A server from version 14 on may check whether its client is still connected.
pub(in super::super) fn begin_last_word(limit: Duration, round: &mut Round) {
    round.add("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
    round.add(&format!("SET LOCAL statement_timeout = {}", limit.as_millis()));
    round.add("SET LOCAL lock_timeout = 0");
    round.add("SELECT set_config(name, '0', true) FROM pg_settings WHERE name = 'client_connection_check_interval'");
}

/// How long a statement waits for a lock, in ms. A context sends nothing else meanwhile, and somebody's fenced transaction may stay open
/// for long. If many contexts ask for one key, each gets the lock sooner than that.
fn lock_limit(limit: Duration) -> i32 {
    let (most, least) = (fifths_of(limit, 3), 100);
    (fifths_of(limit, 1) / 2).max(least).min(most)
}

/// For a transaction that begins like this, and that nobody needs at once.
pub(super) fn yield_soon(round: &mut Round) {
    round.add("SET LOCAL lock_timeout = 20");
}

/// A transaction that only reads, all of it as of one moment.
pub(super) fn begin_to_look(limit: Duration, round: &mut Round) {
    let ms = fifths_of(limit, 4);
    round.add("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    round.add(&format!("SET LOCAL statement_timeout = {ms}"));
    round.add(&format!("SET LOCAL idle_in_transaction_session_timeout = {ms}"));
    round.add("SET LOCAL client_encoding = 'UTF8'");
}

/// `count` fifths of a time limit, in ms. The rest of the limit leaves the server's answer time to arrive.
fn fifths_of(limit: Duration, count: u128) -> i32 {
    i32::try_from(limit.as_millis() * count / 5).unwrap_or(i32::MAX).max(1)
}
