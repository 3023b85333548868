//! The connection of a session's signals.

use core::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use std::{boxed::Box, string::String, vec::Vec};

use tokio::{
    sync::mpsc::UnboundedSender,
    time::{Instant, sleep},
};

use super::super::{
    carrier::{Answers, Exchange, Failure, Line, Round, Row},
    failure,
    literal::numbers,
    names::Names,
    rows::session_of,
    standing::RUN,
};
use super::{
    outbox::Letter,
    watches::{Look, Sight},
};
use crate::executor::Shared;
use crate::machine::{SessionId, StoreError};

/// What the task of a session's signals is told.
#[derive(Debug)]
pub(super) enum Event {
    /// Somebody notified this session, or all.
    Heard { payload: String },
    /// The connection with this number is over.
    Cut { number: u64 },
    /// Notify others.
    Send(Letter),
    /// A watch was added or removed.
    Watches,
    /// At this time, a transaction of the store had waited in vain for its answer, or for a connection.
    Doubt { at: Instant },
    /// End everything.
    Rest,
}

/// A connection that listens. Its notifications, and its end, go to the task as events.
pub(super) struct Link {
    line: Shared<dyn Line>,
    /// The advisory lock that the connection has, and no other one.
    own: i64,
    pub(super) number: u64,
    /// Whether the server has refused to identify its current run. Each further question would only fill its log.
    is_refused: AtomicBool,
}

impl Link {
    pub(super) async fn open(
        exchange: &dyn Exchange,
        names: &Names,
        session: SessionId,
        number: u64,
        events: UnboundedSender<Event>,
    ) -> Result<Self, StoreError> {
        let hear = move |payload: Option<String>| {
            let event = payload.map_or(Event::Cut { number }, |payload| Event::Heard { payload });
            // The task ended before its connection did.
            let _ = events.send(event);
        };
        let line = exchange.open(Box::new(hear)).await?;
        let mut round = Round::default();
        round.add(&format!("LISTEN {}", names.channel()));
        round.add(&format!("LISTEN {}", names.channel_of(session)));
        round.add(STAYS);
        // Notifiers take the lock as a sign that the session listens, which it does only once its round is committed.
        let (ear, own) = (names.ear(session), names.link(session, number));
        let locks = format!("SELECT pg_try_advisory_lock({ear}), pg_try_advisory_lock({own})");
        for round in [round, Round::one(&locks)] {
            line.carry(round).await.map_err(|failure| failure::of_statement(&failure, names))?;
        }
        Ok(Self { line, own, number, is_refused: AtomicBool::new(false) })
    }

    /// The connection itself.
    pub(super) fn line(&self) -> Shared<dyn Line> {
        self.line.clone()
    }

    /// Takes the advisory lock of a beacon, and keeps it as long as the connection stands. Returns the run of the server; `None` if
    /// somebody else holds the lock, or if a pooler has replaced the server's connection since [`open`](Self::open).
    pub(super) async fn raise(&self, lock: i64) -> Result<Option<String>, Failure> {
        let run = match self.line.carry(Round::one(&format!("SELECT {RUN}"))).await {
            Ok(answers) => answers.first(0).and_then(|row| row.text(0)).map(String::from),
            Err(failure) if failure.is_cut() => return Err(failure),
            // If the user may not read the server's run, only contexts that have seen the beacon take its absence for a death.
            Err(failure) => {
                self.is_refused.store(failure.code == "42501", Relaxed);
                None
            }
        };
        let raise = format!("SELECT CASE WHEN {} THEN pg_try_advisory_lock({lock}) ELSE false END", is_own(self.own));
        let is_raised = is_true(&self.line.carry(Round::one(&raise)).await?, 0);
        Ok(is_raised.then(|| run.unwrap_or_default()))
    }

    /// Which of these sessions have a row that does not name this run of the server.
    pub(super) async fn ask_elsewhere(&self, names: &Names, sessions: &[SessionId]) -> Result<Vec<SessionId>, Failure> {
        if self.is_refused.load(Relaxed) {
            return Ok(sessions.to_vec());
        }
        match self.line.carry(Round::one(&names.read_elsewhere(sessions, RUN))).await {
            Ok(answers) => Ok(answers.rows(0).iter().filter_map(session_of).collect()),
            Err(failure) if failure.is_cut() => Err(failure),
            // Where there is no table there are no rows.
            Err(failure) if failure.code == "42P01" => Ok(Vec::new()),
            Err(_) => Ok(sessions.to_vec()),
        }
    }

    /// Returns which of the look's locks are held. Also takes or gives up the lock `waits`, if the look asks for it. `None` if a beacon is
    /// missing, and a pooler has replaced the server's connection since [`open`](Self::open). Then the look proves nothing: the server may
    /// have been started again, which ends all locks, and the pooler hides that.
    pub(super) async fn look(&self, look: &Look, waits: i64) -> Result<Option<Sight>, Failure> {
        let mut round = Round::one(&held(&look.locks()));
        let change = look.says_waits.map(|says| {
            let call = if says { "pg_try_advisory_lock" } else { "pg_advisory_unlock" };
            round.add(&format!("SELECT {call}({waits})"))
        });
        let answers = self.line.carry(round).await?;
        let has_said = change.is_some_and(|change| is_true(&answers, change));
        let seen = Sight { held: locks_in(&answers), has_said, ..Sight::default() };
        // Most looks find all beacons, and need not pay for reading the server's list.
        if look.finds_all_beacons(&seen) {
            return Ok(Some(seen));
        }
        let mut round = Round::one(&listed(&look.locks()));
        let own = round.add(&format!("SELECT {}", is_own(self.own)));
        let answers = self.line.carry(round).await?;
        Ok(is_true(&answers, own).then(|| Sight { held: locks_in(&answers), ..seen }))
    }

    /// Sends a letter. One that fails is lost, as hints may be.
    ///
    /// Who has just begun to wait may be written down before it listens, and would hear nothing until its next heartbeat: so a
    /// letter for one session is sent again until that one listens.
    pub(super) fn notify(&self, letter: Letter) -> impl Future<Output = ()> + Send + use<> {
        let line = self.line.clone();
        async move {
            for pause in PAUSES_MS {
                match line.carry(Round::one(&letter.statement())).await {
                    Ok(answers) if !Letter::is_heard(answers.rows(0)) => sleep(Duration::from_millis(pause)).await,
                    _ => return,
                }
            }
        }
    }
}

/// A connection that only listens is idle for a long time, and with beacons its end counts as a death. So the idle limit of the role or
/// the database must not apply to it. Servers before version 14 have no such limit.
const STAYS: &str = "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'";

/// A letter is sent for the last time after 630 ms, by when most sessions have connected.
const PAUSES_MS: [u64; 7] = [10, 20, 40, 80, 160, 320, 640];
/// A session that took longer to connect may have missed a letter.
pub(super) const AWAITED: Duration = Duration::from_millis(500);

fn is_true(answers: &Answers, place: usize) -> bool {
    answers.first(place).is_some_and(|row| row.is_true(0))
}

fn locks_in(answers: &Answers) -> Vec<i64> {
    let lock = |row: &Row| row.text(0)?.parse().ok();
    answers.rows(0).iter().filter_map(lock).collect()
}

/// A lock is held if it cannot be shared; the look costs the same, however many locks others have.
fn held(locks: &[i64]) -> String {
    format!(
        "SELECT wanted FROM unnest({}) AS wanted WHERE NOT pg_try_advisory_xact_lock_shared(wanted)",
        numbers(locks)
    )
}

/// A lock in the server's list of them, as one number.
const NUMBER: &str = "(classid::bigint << 32 | objid::bigint)";
/// The locks in the server's list that somebody holds alone. A context that only looks at a lock shares it for a moment.
const HELD: &str = "FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted AND objsubid = 1 \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// The same, from the server's list, which takes longer. It also finds locks that are held on the very connection that asks, which a pooler
/// may give to several sessions.
fn listed(locks: &[i64]) -> String {
    format!("SELECT {NUMBER} {HELD} AND {NUMBER} = ANY({})", numbers(locks))
}

/// An expression in SQL: whether the connection that asks holds this lock.
fn is_own(lock: i64) -> String {
    format!("EXISTS (SELECT {HELD} AND pid = pg_backend_pid() AND {NUMBER} = {lock})")
}
