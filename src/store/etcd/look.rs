//! `status` of a long queue reads the session of every waiter. Those may be more rows than etcd takes in one transaction.

use etcd_client::Txn;
use tokio::time::Instant;

use super::{
    failure::Load,
    rows::{View, gets_at},
    transaction::{Desk, load},
};
use crate::machine::{Action, Batch, Records, Row, StoreError};

/// How many rows are read at once. etcd takes 128 operations in a transaction by default.
pub(super) const AT_ONCE: usize = 100;

/// Whether a batch with this many rows is read in several transactions. Rows that decide something are all compared in one.
pub(super) fn is_wide(batch: &Batch, rows: usize) -> bool {
    rows > AT_ONCE && batch.operations.iter().any(|operation| matches!(operation.action, Action::Inspect))
}

/// The batch without the operations of `status`, which only report keys.
pub(super) fn without_looks(batch: &Batch) -> Batch {
    let mut batch = batch.clone();
    batch.operations.retain(|operation| !matches!(operation.action, Action::Inspect));
    batch
}

impl Desk<'_> {
    /// Reads the records of a batch, and the sessions that they name, all at one revision.
    pub(super) async fn look(
        &self,
        view: &mut View,
        wanted: &[Row],
        batch: &Batch,
        deadline: Instant,
    ) -> Result<Records, StoreError> {
        if !view.is_of_one_moment() {
            // Remembered rows belong to no known revision.
            *view = core::mem::take(view).anew();
            self.begin(view, wanted, (batch, None), deadline).await?;
        }
        let records = load(batch, view)?;
        let sessions: Vec<_> = records.sessions_of(batch).into_iter().map(Row::Session).collect();
        for rows in view.recall(&sessions, None).chunks(AT_ONCE) {
            let txn = Txn::new().and_then(gets_at(self.names, rows, view.revision));
            let answer = self.run(txn, Load { rows: rows.len(), bytes: 0 }, false, deadline).await?;
            view.take_of_same_moment(rows.to_vec(), &answer);
        }
        Ok(records)
    }
}
