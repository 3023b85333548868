//! The interface between the store's SQL and the driver that sends it.
//!
//! Everything is sent in rounds: a few statements that go to the server as one message of the simple query protocol. It takes one round
//! trip, and works behind a pooler. The values stand in the text, see [`literal`](super::literal). Some statements may be
//! [prepared](super::often).

use core::any::Any;
use std::{boxed::Box, string::String, vec::Vec};

use async_trait::async_trait;
use tokio::{runtime::Handle, time::Instant};

use super::often::Prepared;
use crate::executor::Shared;
use crate::machine::{StoreError, StoreErrorKind};

/// Statements that go out as one message. The server stops at the first one that fails.
#[derive(Default)]
pub(super) struct Round {
    text: String,
    count: usize,
    by_name: bool,
    /// How many rows the statements in these places write.
    written: Vec<(usize, usize)>,
}

impl Round {
    /// Adds one statement, and returns its index among the answers.
    pub(super) fn add(&mut self, statement: &str) -> usize {
        if self.count > 0 {
            self.text.push_str("; ");
        }
        self.text.push_str(statement);
        self.count += 1;
        self.count - 1
    }

    /// Notes that the statement with this index writes so many rows.
    pub(super) fn writes(&mut self, place: usize, rows: usize) {
        self.written.push((place, rows));
    }

    /// Whether the server wrote all rows. It reports no error if a trigger or a rule of the user's keeps it from writing one.
    pub(super) fn is_written(&self, answers: &Answers) -> bool {
        self.written.iter().all(|(place, rows)| answers.written(*place) == Some(*rows as u64))
    }

    /// A round for a connection. `by_name` says whether [the usual statements](super::often) are prepared there.
    pub(super) fn new(by_name: bool) -> Self {
        Self { by_name, ..Self::default() }
    }

    pub(super) fn one(statement: &str) -> Self {
        let mut round = Self::default();
        round.add(statement);
        round
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the connection has the usual statements prepared.
    pub(super) const fn by_name(&self) -> bool {
        self.by_name
    }

    /// How many statements it has.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// What a statement found: each column as text.
#[derive(Debug)]
pub(super) struct Row(pub(super) Vec<Option<String>>);

impl Row {
    /// The text in a column; `None` if it is NULL.
    pub(super) fn text(&self, column: usize) -> Option<&str> {
        self.0.get(column)?.as_deref()
    }

    /// Whether a column says `true`; NULL does not.
    pub(super) fn is_true(&self, column: usize) -> bool {
        self.text(column) == Some("t")
    }
}

/// The server's answer to a statement.
#[derive(Debug)]
struct Answer {
    rows: Vec<Row>,
    /// How many rows it found or wrote.
    count: u64,
}

/// The answer to each statement of a round.
#[derive(Debug, Default)]
pub(super) struct Answers(Vec<Answer>);

impl Answers {
    /// The rows of the statement in this place; none if it finds nothing by its nature.
    pub(super) fn rows(&self, place: usize) -> &[Row] {
        self.0.get(place).map_or(&[], |answer| &answer.rows)
    }

    /// How many rows the statement in this place wrote.
    fn written(&self, place: usize) -> Option<u64> {
        Some(self.0.get(place)?.count)
    }

    pub(super) const fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn first(&self, place: usize) -> Option<&Row> {
        self.rows(place).first()
    }
}

/// Gathers answers as they come in.
#[derive(Default)]
pub(super) struct Gathering {
    done: Answers,
    current: Vec<Row>,
}

impl Gathering {
    pub(super) fn row(&mut self, row: Row) {
        self.current.push(row);
    }

    /// One more statement is completed, which found or wrote so many rows.
    pub(super) fn completed(&mut self, count: u64) {
        self.done.0.push(Answer { rows: core::mem::take(&mut self.current), count });
    }

    pub(super) fn answers(self) -> Answers {
        self.done
    }

    pub(super) fn failed(self, code: Option<String>, said: String) -> Failure {
        Failure { code: code.unwrap_or_default(), said, is_of_policies: false, is_of_rules: false, before: self.done }
    }
}

/// Why a round failed.
#[derive(Debug)]
pub(super) struct Failure {
    /// The SQLSTATE of the server's answer; empty if the server did not answer.
    pub(super) code: String,
    /// The server's message, or what happened to the connection, for people to read.
    pub(super) said: String,
    /// Whether a row-level security policy refused a row, or hides some. No GRANT helps against that.
    pub(super) is_of_policies: bool,
    /// The server cannot rewrite the statement by the rules on its table. A standby refuses with the same code.
    pub(super) is_of_rules: bool,
    /// The answers of the statements before.
    pub(super) before: Answers,
}

/// The functions of the server that refuse a row because of a row-level security policy. The server's message depends on its language, and
/// its code is the same as for a missing right.
const REFUSING_BY_POLICIES: [&str; 2] = ["ExecWithCheckOptions", "check_enable_rls"];
/// The function of the server that rewrites a statement by rules.
const REWRITING_BY_RULES: &str = "RewriteQuery";

impl Failure {
    /// Notes which function of the server reported it.
    pub(super) fn by_routine(self, routine: Option<&str>) -> Self {
        let is_of_policies = routine.is_some_and(|routine| REFUSING_BY_POLICIES.contains(&routine));
        Self { is_of_policies, is_of_rules: routine == Some(REWRITING_BY_RULES), ..self }
    }

    /// The connection broke, or the server or a pooler ended it.
    pub(super) fn is_cut(&self) -> bool {
        self.code.is_empty() || ["08", "57P"].iter().any(|class| self.code.starts_with(class))
    }
}

/// Carries statements to the server: a connection, or the user's transaction.
#[async_trait]
pub(super) trait Carrier: Send {
    /// Sends a round, and waits for its answers. Dropping the future leaves the round under way.
    async fn carry(&mut self, round: &Round) -> Result<Answers, Failure>;
}

/// A connection that nobody else has. It is closed when this is dropped, and whatever it was in the middle of is rolled back.
pub(super) trait Loan: Carrier {
    /// What is prepared on this connection. `None` if others use it too, who may have prepared statements of their own, or if a pooler
    /// may stand between.
    fn prepared(&mut self) -> Option<&mut Prepared> {
        None
    }

    /// Gives the connection back, which is in no transaction.
    fn give_back(self: Box<Self>);
}

/// A pool of connections, the store's own or the application's.
#[async_trait]
pub(super) trait Lender: Send + Sync {
    /// Waits until a connection is free. The flag says that it was idle before, so it may have been cut meanwhile.
    async fn lend(&self) -> Result<(Box<dyn Loan + '_>, bool), StoreError>;

    /// Which pool this is, for people to read.
    fn name(&self) -> &'static str;

    /// How many connections it has at most.
    fn most(&self) -> usize;

    /// What to do if none becomes free in time.
    fn remedy(&self) -> &'static str {
        REMEDY
    }

    /// Whether the server is to blame if no connection becomes free. An application may use up all those of its pool.
    fn opens_what_it_is_asked_for(&self) -> bool {
        false
    }

    /// Closes idle connections: they are cut, or will be. The application's pool looks after its own.
    fn forget_idle(&self) {}

    /// Does the same, because the server has not answered a transaction that began at this time. If the URL names several servers, the next
    /// connection leads to another one if possible.
    fn forget_server(&self, _began: Instant) {
        self.forget_idle();
    }

    /// Another handle of the same connections.
    fn share(&self) {}

    /// Closes a handle. The last one closes the store's own connections.
    fn leave(&self) {}
}

/// Receives the payload of each notification, and `None` when the connection has ended.
pub(super) type Hear = Box<dyn FnMut(Option<String>) + Send>;

/// Opens connections for signals, which belong to one session each.
#[async_trait]
pub(super) trait Exchange: Send + Sync {
    async fn open(&self, hear: Hear) -> Result<Shared<dyn Line>, StoreError>;
}

/// A connection for signals. It is closed when this is dropped.
#[async_trait]
pub(super) trait Line: Send + Sync {
    async fn carry(&self, round: Round) -> Result<Answers, Failure>;
}

/// What a store is built over.
pub(super) struct Supply {
    pub(super) lender: Box<dyn Lender>,
    /// `None` if there are no connections for signals.
    pub(super) exchange: Option<Shared<dyn Exchange>>,
}

/// Where a store's connections come from, as its user chose it.
#[async_trait]
pub(super) trait Source: Send {
    async fn open(self: Box<Self>, runtime: Handle) -> Result<Supply, StoreError>;

    /// Takes a TLS connector for the connections that the store opens itself. False if it opens none, or if the connector is for another
    /// driver.
    fn encrypt(&mut self, _connector: &dyn Any) -> bool {
        false
    }
}

/// No connection became free.
pub(super) fn exhausted(name: &str, remedy: &str, waited: core::time::Duration) -> StoreError {
    let ms = waited.as_millis();
    StoreError::busy(format!("no connection of {name} became free within {ms} ms; {remedy}"))
}

/// For the application's pool.
pub(super) const REMEDY: &str =
    "allow it more connections, return them sooner, and check that the server accepts new ones";

/// The application closed its pool.
pub(super) fn pool_closed(name: &str) -> StoreError {
    StoreError::permanent(StoreErrorKind::Closed, format!("{name} was closed; close the store before it"))
}
