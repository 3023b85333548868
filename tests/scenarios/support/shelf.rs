//! A store that keeps texts, as databases do, and the ways in which such a store can be wrong.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc, Mutex as Lock, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    thread,
    time::Duration,
};

use futures::{future::poll_fn, lock::Mutex};
use leasehold::{
    Mode,
    machine::{
        Batch, Key, Now, Record, Records, Reply, Row, SessionId, StoreClock, StoreError, StoreErrorKind, StoreId,
        StoreNow,
    },
    store::{Reach, Store},
};

/// How a shelf runs its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Under a lock, as a pessimistic database does. It yields while it has the lock.
    Locks,
    /// It reads, yields, and writes only if nobody wrote meanwhile. Else it says that nothing was applied.
    Compares,
    /// Wrong: it reads, yields and writes.
    Races,
    /// Wrong: the same, but it blocks its thread where others yield.
    Blocks,
    /// Wrong: one transaction for each key of a batch.
    LocksEachKey,
    /// Wrong: what a connection wrote is seen once it asks again.
    AnswersEarly,
    /// Wrong: each connection draws an id of the store.
    NewIdEachConnection,
    /// Wrong: each transaction does.
    NewIdEachTime,
    /// Wrong: what it cannot read counts as absent.
    Overwrites,
    /// Without a future, as a store that waits for nothing does.
    AnswersAtOnce,
    /// Wrong: it does so in the midst of a transaction that yields.
    InterruptsAtOnce,
    /// Wrong: a transaction without operations does nothing, so no heartbeat is written.
    SkipsHeartbeats,
    /// Wrong: no row is ever deleted.
    KeepsRows,
    /// Wrong: it stores texts as ASCII, with a question mark for each other character.
    KeepsAscii,
    /// Wrong: a list of keys ignores case.
    ListsAnyCase,
    /// Wrong: a list has only keys with an exclusive holder.
    HidesShared,
    /// Wrong: a list has only keys with a holder.
    HidesWaiters,
    /// Wrong: a list has only keys whose records it can read.
    HidesUnreadable,
    /// Wrong: under its lock it yields between two rows that it writes, and rolls nothing back if it is dropped there.
    WritesRowByRow,
    /// Under a lock, and with one monotonic clock for everybody: deadlines stand in the texts of sessions.
    TrustsItsClock,
    /// Wrong: the same, but no deadline stands there.
    LosesDeadlines,
    /// Wrong: the same, but it reads its clock only when a connection is used for the first time.
    ReadsItsClockOnce,
    /// Wrong: it ends sessions by their deadlines, and says that its clock is not to be trusted.
    HidesItsClock,
    /// Wrong: it writes the store's own row only if none is there.
    WritesItsRowOnce,
    /// Wrong: each connection reads the store's own row only once.
    ReadsItsRowOnce,
    /// Wrong: each connection reads the row of another session only once.
    RemembersSessions,
    /// Wrong: what a dropped transaction was about to write is written by the next one of the same connection.
    CommitsLate,
    /// Wrong: it reads the rows of those who hold a key, and not of those who wait for it.
    ForgetsWaiters,
}

impl Habit {
    /// Whether a list has the key whose record is this text.
    fn lists(self, text: &str) -> bool {
        let Ok(record) = Record::decode(text) else { return self != Self::HidesUnreadable };
        match self {
            // It may.
            Self::Compares => true,
            Self::HidesShared => record.grants.iter().any(|grant| grant.mode == Mode::Exclusive),
            Self::HidesWaiters => !record.grants.is_empty(),
            _ => !record.is_idle(),
        }
    }
}

/// A connection to a shelf. Clones are one connection.
#[derive(Clone, Debug)]
pub(crate) struct ShelfStore {
    shelf: Arc<Shelf>,
    habit: Habit,
    own: Arc<Own>,
}

/// What all connections share.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    texts: Lock<BTreeMap<String, String>>,
    transaction: Mutex<()>,
    writes: AtomicU64,
    connections: AtomicU64,
}

#[derive(Debug, Default)]
struct Own {
    number: u64,
    transactions: AtomicU64,
    late: Lock<Vec<(Row, Option<String>)>>,
    first: OnceLock<Now>,
    /// What it remembers of the rows that it has read.
    known: Lock<BTreeMap<String, String>>,
    closed: AtomicBool,
}

/// What a transaction is about to write, unless it is dropped.
struct Pending<'a> {
    own: &'a Own,
    changed: Vec<(Row, Option<String>)>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.own.late.lock().unwrap().append(&mut self.changed);
    }
}

impl Shelf {
    pub(crate) fn open(self: &Arc<Self>, habit: Habit) -> ShelfStore {
        let number = self.connections.fetch_add(1, Relaxed);
        ShelfStore { shelf: self.clone(), habit, own: Arc::new(Own { number, ..Own::default() }) }
    }

    /// What stands there for a key.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        self.row(&Row::Record(Key::new(key).unwrap()))
    }

    pub(crate) fn put(&self, key: &str, text: &str) {
        self.put_row(&Row::Record(Key::new(key).unwrap()), Some(text.to_owned()));
    }

    /// What stands there for all sessions.
    pub(crate) fn sessions(&self) -> Vec<String> {
        let texts = self.texts.lock().unwrap();
        texts.iter().filter(|(name, _)| name.starts_with("session:")).map(|(_, text)| text.clone()).collect()
    }

    fn row(&self, row: &Row) -> Option<String> {
        self.texts.lock().unwrap().get(&row.to_string()).cloned()
    }

    fn put_row(&self, row: &Row, text: Option<String>) {
        let mut texts = self.texts.lock().unwrap();
        match text {
            Some(text) => texts.insert(row.to_string(), text),
            None => texts.remove(&row.to_string()),
        };
    }
}

/// Lets everybody else go first, once.
async fn pause() {
    let mut paused = false;
    let pause = poll_fn(|context| {
        if std::mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    });
    pin!(pause).await;
}

/// Whether a session holds one of the keys.
fn holds(records: &Records, keys: &[Key], session: SessionId) -> bool {
    let records = keys.iter().filter_map(|key| records.peek(key));
    records.flat_map(|record| &record.grants).any(|grant| grant.holder == session)
}

impl ShelfStore {
    fn id(&self) -> StoreId {
        let number = match self.habit {
            Habit::NewIdEachConnection => self.own.number,
            Habit::NewIdEachTime => self.own.transactions.load(Relaxed),
            _ => 0,
        };
        StoreId(u128::from(number) + 1)
    }

    /// A row as this connection sees it.
    fn row(&self, row: &Row, own: SessionId) -> Option<String> {
        let once = match self.habit {
            Habit::ReadsItsRowOnce => *row == Row::Store,
            Habit::RemembersSessions => matches!(row, Row::Session(session) if *session != own),
            _ => false,
        };
        let mut known = self.own.known.lock().unwrap();
        let remembered = known.get(&row.to_string()).filter(|_| once).cloned();
        let text = remembered.or_else(|| self.shelf.row(row))?;
        known.insert(row.to_string(), text.clone());
        Some(text)
    }

    fn read(&self, batch: &Batch) -> Result<Records, StoreError> {
        let mut records = Records::new();
        let keeps_id = !matches!(self.habit, Habit::NewIdEachConnection | Habit::NewIdEachTime);
        let text = self.row(&Row::Store, batch.session).filter(|_| keeps_id);
        records.load_store(text.as_deref(), self.id())?;
        for key in batch.keys() {
            let text = self.shelf.row(&Row::Record(key.clone()));
            let readable = |text: &&str| text.contains("\"format\":1,");
            let text = text.as_deref().filter(|text| self.habit != Habit::Overwrites || readable(text));
            records.load(key, text);
        }
        let keys = batch.keys();
        for session in records.sessions_of(batch) {
            let is_read =
                self.habit != Habit::ForgetsWaiters || session == batch.session || holds(&records, &keys, session);
            let text = is_read.then(|| self.row(&Row::Session(session), batch.session)).flatten();
            records.load_session(session, text.as_deref());
        }
        Ok(records)
    }

    fn write(&self, changed: Vec<(Row, Option<String>)>) {
        for (row, text) in changed {
            let is_skipped = match self.habit {
                Habit::KeepsRows => text.is_none(),
                Habit::WritesItsRowOnce => row == Row::Store && self.shelf.row(&row).is_some(),
                _ => false,
            };
            if is_skipped {
                continue;
            }
            let text = match self.habit {
                Habit::KeepsAscii => text.map(|text| text.replace(|letter: char| !letter.is_ascii(), "?")),
                _ => text,
            };
            self.shelf.put_row(&row, text);
            self.shelf.writes.fetch_add(1, Relaxed);
        }
    }

    /// The time by which it decides.
    fn time(&self, now: Now) -> StoreNow {
        match self.habit {
            Habit::LosesDeadlines => StoreNow::new(StoreClock::Observed, now),
            Habit::ReadsItsClockOnce => StoreNow::new(self.clock(), *self.own.first.get_or_init(|| now)),
            Habit::HidesItsClock => StoreNow::new(StoreClock::Trusted, now),
            _ => StoreNow::new(self.clock(), now),
        }
    }

    /// Reads, lets others go first, and writes.
    async fn run(&self, batch: &Batch, now: Now) -> Result<Reply, StoreError> {
        let seen = self.shelf.writes.load(Relaxed);
        let mut records = self.read(batch)?;
        match self.habit {
            Habit::Blocks => thread::sleep(Duration::from_millis(1)),
            _ => pause().await,
        }
        let reply = batch.apply(&mut records, self.time(now));
        let changed = records.take_changed().into_iter().map(|row| (row.clone(), records.text(&row))).collect();
        match self.habit {
            Habit::Compares if self.shelf.writes.load(Relaxed) != seen => {
                return Err(StoreError::transient("somebody else wrote meanwhile"));
            }
            Habit::AnswersEarly => self.own.late.lock().unwrap().extend(changed),
            Habit::WritesRowByRow => {
                for row in changed {
                    self.write(vec![row]);
                    pause().await;
                }
            }
            Habit::CommitsLate => {
                let mut pending = Pending { own: &self.own, changed };
                pause().await;
                self.write(std::mem::take(&mut pending.changed));
            }
            _ => self.write(changed),
        }
        Ok(reply)
    }

    /// Reads and writes before anybody else can.
    fn at_once(&self, batch: &Batch, now: Now) -> Result<Reply, StoreError> {
        self.check_open()?;
        let mut records = self.read(batch)?;
        let reply = batch.apply(&mut records, StoreNow::new(self.clock(), now));
        self.write(records.take_changed().into_iter().map(|row| (row.clone(), records.text(&row))).collect());
        Ok(reply)
    }

    fn check_open(&self) -> Result<(), StoreError> {
        match self.own.closed.load(Relaxed) {
            true => Err(StoreError::permanent(StoreErrorKind::Closed, "this connection was closed")),
            false => Ok(()),
        }
    }

    async fn each_key(&self, batch: Batch, now: Now) -> Result<Reply, StoreError> {
        let (mut all, mut step) = (None::<Reply>, batch.step);
        for operation in batch.operations {
            let transaction = self.shelf.transaction.lock().await;
            let step = std::mem::take(&mut step);
            let one = Batch { step, ..Batch::new(batch.session, vec![operation]) };
            let mut reply = self.run(&one, now).await?;
            drop(transaction);
            match &mut all {
                Some(all) => all.answers.append(&mut reply.answers),
                None => all = Some(reply),
            }
            // As between two statements that a database answers.
            pause().await;
        }
        all.ok_or_else(|| StoreError::transient("nothing was asked"))
    }
}

#[async_trait::async_trait]
impl Store for ShelfStore {
    async fn transact(&self, batch: Batch, now: Now, _: Duration) -> Result<Reply, StoreError> {
        self.check_open()?;
        self.own.transactions.fetch_add(1, Relaxed);
        let late = std::mem::take(&mut *self.own.late.lock().unwrap());
        self.write(late);
        match self.habit {
            Habit::SkipsHeartbeats if batch.operations.is_empty() => {
                let (store, robbed, peers, answers) = (self.id(), None, vec![], vec![]);
                Ok(Reply { store, robbed, peers, answers })
            }
            Habit::Races | Habit::Blocks | Habit::Compares => self.run(&batch, now).await,
            Habit::LocksEachKey => self.each_key(batch, now).await,
            Habit::AnswersAtOnce => self.at_once(&batch, now),
            _ => {
                let _transaction = self.shelf.transaction.lock().await;
                self.run(&batch, now).await
            }
        }
    }

    fn transact_at_once(&self, batch: &Batch, now: Now) -> Option<Result<Reply, StoreError>> {
        matches!(self.habit, Habit::AnswersAtOnce | Habit::InterruptsAtOnce).then(|| self.at_once(batch, now))
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let texts = self.shelf.texts.lock().unwrap();
        let as_listed =
            |text: &str| if self.habit == Habit::ListsAnyCase { text.to_lowercase() } else { text.to_owned() };
        let listed = texts.iter().filter(|(_, text)| self.habit.lists(text));
        let keys = listed.filter_map(|(name, _)| Key::new(name.strip_prefix("lease:")?).ok());
        Ok(keys.filter(|key| as_listed(key.as_str()).starts_with(&as_listed(prefix))).collect())
    }

    async fn close(&self) {
        self.own.closed.store(true, Relaxed);
    }

    fn clock(&self) -> StoreClock {
        match self.habit {
            Habit::TrustsItsClock | Habit::LosesDeadlines | Habit::ReadsItsClockOnce => StoreClock::Trusted,
            _ => StoreClock::Observed,
        }
    }

    fn reach(&self) -> Reach {
        Reach::Named("shelf".into())
    }
}
