//! The check of a fence in a user's transaction. The lease's record stays locked until that transaction ends.

use core::task::{Context, Waker};
use std::{boxed::Box, vec::Vec};

use super::{
    super::{Fence, FenceError, Fenced},
    carrier::{Answers, Carrier, Failure, Round},
    failure,
    names::Names,
    options::{ask_database, is_by_cluster, name_of},
    rows::{Changed, Hold, SCHEMA, StoreText, load_records, text_of_session},
};
use crate::executor::{MaybeSendFuture, Shared};
use crate::machine::{Key, Records, StoreError, StoreId};

pub(super) type Verdict = Result<Fenced, FenceError>;

/// A driver's two statements. The first is sent before the check, and keeps the transaction from being committed. The second is sent once
/// the check has passed, and allows the commit again.
pub(super) type Bolt = [&'static str; 2];

/// Checks a lease in a transaction that stays open.
pub(super) fn check<'a>(
    transaction: impl Carrier + 'a,
    fence: Shared<dyn Fence>,
    bolt: Option<Bolt>,
) -> MaybeSendFuture<'a, Verdict> {
    // The gate is made before the first poll, so an answer that is dropped unpolled refuses the transaction, too.
    let mut gate = Gate::shut(transaction);
    Box::pin(async move {
        match judge(&*fence, &mut gate.transaction, bolt).await {
            Ok(()) => {
                gate.open();
                Ok(Fenced::passed(fence))
            }
            Err(why) => {
                let why = gate.refuse(why).await;
                fence.over();
                Err(why)
            }
        }
    })
}

/// Refuses a transaction without a check.
pub(super) fn refuse<'a>(transaction: impl Carrier + 'a, why: FenceError) -> MaybeSendFuture<'a, Verdict> {
    let mut gate = Gate::shut(transaction);
    Box::pin(async move { Err(gate.refuse(why).await) })
}

/// A statement that fails, so that the transaction can then only be rolled back.
const REFUSAL: &str = "SELECT 'the fence of leasehold refused this transaction'::integer";

/// Until this gate is opened, nobody can commit the transaction.
struct Gate<C: Carrier> {
    transaction: C,
    is_open: bool,
}

impl<C: Carrier> Gate<C> {
    const fn shut(transaction: C) -> Self {
        Self { transaction, is_open: false }
    }

    const fn open(&mut self) {
        self.is_open = true;
    }

    async fn refuse(&mut self, why: FenceError) -> FenceError {
        // The answer is an error in any case, and without a connection nothing is committed.
        let _ = self.transaction.carry(&Round::one(REFUSAL)).await;
        self.open();
        why
    }
}

impl<C: Carrier> Drop for Gate<C> {
    /// A caller that drops the answer may go on to commit. The first poll sends the statement, before any other statement of the caller. If
    /// the driver sends nothing because it still awaits an answer, its [`Bolt`] holds.
    fn drop(&mut self) {
        if !self.is_open {
            let refusal = Round::one(REFUSAL);
            let mut sending = self.transaction.carry(&refusal);
            let _ = sending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}

async fn judge(fence: &dyn Fence, carrier: &mut dyn Carrier, bolt: Option<Bolt>) -> Result<(), FenceError> {
    let names = Names::of(&fence.reach()).ok_or_else(|| FenceError::Misuse(ELSEWHERE.into()))?;
    let mut check = Check { fence, names: &names, carrier };
    let [first, last] = bolt.map_or([None; 2], |bolt| bolt.map(Some));
    let (store, mut records) = check.read(first).await?;
    fence.judge(store, &mut records)?;
    check.write(&Changed::take(&mut records), last).await
}

const ELSEWHERE: &str = "the lease is not kept in the database of this transaction; begin the transaction in the database that the \
    lease's PostgresStore is connected to, by the same server and port; if the lease is in another kind of store, fence a transaction of that store";
const READ_ONLY: &str =
    "the transaction is read-only, so there is nothing to fence; begin it with read_only(false), on the primary";
const OVER: &str = "the transaction is over, so nothing would keep the lease until you write; call fence before COMMIT or ROLLBACK, and \
    execute no script with a COMMIT of its own in the transaction";
const OLDER: &str = "the snapshot of the transaction does not show the lease, which is newer than the snapshot, or lost; roll the transaction \
    back, and begin another one";
/// Whether the transaction may write, and its isolation level.
const MANNER: &str = "current_setting('transaction_read_only'), current_setting('transaction_isolation')";
/// Outside of a transaction, the server refuses a savepoint. Without one, it would take the locks of a fence and release them at once.
const IN_TRANSACTION: [&str; 2] = ["SAVEPOINT leasehold_fence", "RELEASE SAVEPOINT leasehold_fence"];

struct Check<'a> {
    fence: &'a dyn Fence,
    names: &'a Names,
    carrier: &'a mut dyn Carrier,
}

impl Check<'_> {
    /// Locks and reads the rows: all of them in one round trip, except a session's.
    async fn read(&mut self, first: Option<&str>) -> Result<(Option<StoreId>, Records), FenceError> {
        let (ticket, names) = (self.fence.ticket(), self.names);
        let keys: Vec<Key> = ticket.batch.keys();
        let mut round = Round::default();
        for statement in IN_TRANSACTION.into_iter().chain(first) {
            round.add(statement);
        }
        let place = round.add(&ask_database(is_by_cluster(&names.database), MANNER));
        let mut locks: Vec<i64> = keys.iter().map(|key| names.lock_of_key(key)).collect();
        locks.sort_unstable();
        round.add(&names.lock_shared(&locks));
        let found = round.add(&names.read_records(&keys, Hold::Share));
        let store = round.add(&names.read_store(Hold::Not));
        let answers = match self.carrier.carry(&round).await {
            Ok(answers) => answers,
            // Elsewhere there may be no such tables.
            Err(failure) if failure.before.count() > place => {
                self.check_place(&failure.before, place)?;
                return Err(failed(&failure, names));
            }
            Err(failure) => return Err(failed(&failure, names)),
        };
        self.check_place(&answers, place)?;
        let mut records = Records::new();
        load_records(&mut records, &keys, answers.rows(found));
        // A row that the snapshot shows has not changed since, or else locking it would have failed. Other rows may be newer.
        if answers.rows(found).len() < keys.len() && has_snapshot(&answers, place) {
            return Err(FenceError::Store(StoreError::transient(OLDER)));
        }
        let store = self.store_id(StoreText::of(&answers, store), &mut records)?;
        // Only the row of its own session, which takes the heartbeat, and tells why a grant is gone.
        if ticket.renews() || !ticket.finds_its_grant(&records) {
            let own = ticket.batch.session;
            let answers = self.carry(&Round::one(&names.read_sessions(&[own], Hold::Update))).await?;
            records.load_session(own, text_of_session(answers.rows(0), own));
        }
        Ok((store, records))
    }

    async fn carry(&mut self, round: &Round) -> Result<Answers, FenceError> {
        self.carrier.carry(round).await.map_err(|failure| failed(&failure, self.names))
    }

    fn check_place(&self, answers: &Answers, place: usize) -> Result<(), FenceError> {
        let elsewhere = || FenceError::Misuse(ELSEWHERE.into());
        let row = answers.first(place).ok_or_else(elsewhere)?;
        if name_of(row).as_ref() != Some(&self.names.database) {
            return Err(elsewhere());
        }
        if row.text(2) == Some("off") { Ok(()) } else { Err(FenceError::Misuse(READ_ONLY.into())) }
    }

    /// The id of the store. `None` if its row is missing or cannot be read, because no lease was granted in such a store.
    fn store_id(&self, store: Option<StoreText>, records: &mut Records) -> Result<Option<StoreId>, FenceError> {
        let Some(StoreText { schema, text: Some(text) }) = store else { return Ok(None) };
        if schema != SCHEMA {
            return Err(FenceError::Store(failure::other_schema(self.names, schema, SCHEMA)));
        }
        let is_known = records.load_store(Some(&text), StoreId::default()).is_ok();
        Ok(is_known.then(|| records.store()))
    }

    async fn write(&mut self, changed: &Changed, last: Option<&str>) -> Result<(), FenceError> {
        debug_assert!(changed.store.is_none(), "a fence forgets no record, so that it raises no floor");
        let mut round = Round::default();
        self.names.write(changed, None, &mut round);
        if let Some(last) = last {
            round.add(last);
        }
        if round.is_empty() {
            return Ok(());
        }
        let answers = self.carry(&round).await?;
        if round.is_written(&answers) { Ok(()) } else { Err(FenceError::Store(failure::not_written(self.names))) }
    }
}

/// Whether all statements of the transaction see the same snapshot.
fn has_snapshot(answers: &Answers, place: usize) -> bool {
    let level = answers.first(place).and_then(|row| row.text(3));
    level.is_some_and(|level| ["repeatable read", "serializable"].contains(&level))
}

fn failed(failure: &Failure, names: &Names) -> FenceError {
    match failure.code.as_str() {
        "25P01" => FenceError::Misuse(OVER.into()),
        "40001" => FenceError::Store(StoreError::transient(format!(
            "PostgreSQL cannot serialise the transaction, probably because the lease's rows have changed since its snapshot: {}; roll it \
             back, and begin another one",
            failure.said
        ))),
        "25006" => FenceError::Misuse(READ_ONLY.into()),
        "25P02" => FenceError::Store(StoreError::transient(
            "the transaction had failed before its fence was checked; roll it back and begin another one",
        )),
        _ => FenceError::Store(failure::of_statement(failure, names)),
    }
}
