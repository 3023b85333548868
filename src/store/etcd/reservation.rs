//! The right to be the next to write some records. A context that came too late a few times reserves them while it reads them. Nobody else
//! writes them then, so its next attempt succeeds. Without that, a context far away would always come too late where near ones write a
//! record all the time.
//!
//! A reservation is a key of its own, which the write deletes. Its maker may die before. So a context that has seen the same reservation
//! for a while replaces it. No lease depends on that: every write compares the rows, too.

use core::time::Duration;
use std::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use etcd_client::{Compare, CompareOp, GetResponse, Txn, TxnOp, TxnOpResponse};
use tokio::time::Instant;

use super::{rows::Names, transaction::random};
use crate::machine::{Batch, StoreError};

/// A reservation that stands for so long is one of a context that died, or that takes longer for its requests.
const PATIENCE: Duration = Duration::from_millis(500);
/// A batch for more keys than this competes without reservations.
const MOST: usize = 8;

/// What one transaction knows of the reservations of its records. All of them are made at once, or none.
pub(super) struct Reservations {
    /// The name of this transaction, which no other one has.
    own: String,
    records: Vec<Reserved>,
}

/// The reservation of one record.
struct Reserved {
    key: String,
    /// Whose name was read there, and since when it has stood.
    seen: Option<(String, Instant)>,
}

impl Reservations {
    pub(super) fn of(batch: &Batch, names: &Names) -> Result<Self, StoreError> {
        let mut keys = batch.keys();
        if keys.len() > MOST {
            keys.clear();
        }
        let records = keys.iter().map(|key| Reserved { key: names.reservation(key), seen: None }).collect();
        Ok(Self { own: format!("{:032x}", random()?), records })
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether nobody else has reserved a record, or has done so for too long.
    pub(super) fn are_free(&self) -> bool {
        let is_free = |(name, since): &(String, Instant)| *name == self.own || since.elapsed() >= PATIENCE;
        self.records.iter().all(|record| record.seen.as_ref().is_none_or(is_free))
    }

    /// That the keys still are as they were read, and must not keep this transaction from writing.
    pub(super) fn compares(&self) -> Vec<Compare> {
        let are_free = self.are_free();
        let compare = |record: &Reserved| match record.seen.as_ref().filter(|_| are_free) {
            Some((name, _)) => Compare::value(record.key.as_str(), CompareOp::Equal, name.as_str()),
            None => Compare::version(record.key.as_str(), CompareOp::Equal, 0),
        };
        self.records.iter().map(compare).collect()
    }

    /// Deletes what was read, which the write makes obsolete.
    pub(super) fn ends(&self) -> Vec<TxnOp> {
        let seen = self.records.iter().filter(|record| record.seen.is_some());
        seen.map(|record| TxnOp::delete(record.key.as_str(), None)).collect()
    }

    /// Reads the keys. If that is wanted and they are free, it makes the reservations first.
    pub(super) fn question(&self, are_wanted: bool) -> TxnOp {
        let reads: Vec<_> = self.records.iter().map(|record| TxnOp::get(record.key.as_str(), None)).collect();
        if !are_wanted || !self.are_free() {
            return TxnOp::txn(Txn::new().and_then(reads));
        }
        let makes = self.records.iter().map(|record| TxnOp::put(record.key.as_str(), self.own.as_str(), None));
        let makes = makes.chain(reads.clone()).collect::<Vec<_>>();
        TxnOp::txn(Txn::new().when(self.compares()).and_then(makes).or_else(reads))
    }

    /// Takes the answer to the question, which was the last one of a transaction.
    pub(super) fn learn(&mut self, answers: &[TxnOpResponse]) {
        let Some(TxnOpResponse::Txn(answer)) = answers.last() else { return };
        let found = answer.op_responses().into_iter().filter_map(|answer| match answer {
            TxnOpResponse::Get(found) => Some(found),
            _ => None,
        });
        for (record, found) in self.records.iter_mut().zip(found) {
            record.seen = name_in(&found).map(|name| match record.seen.take() {
                Some((known, since)) if known == name => (known, since),
                _ => (name, Instant::now()),
            });
        }
    }
}

fn name_in(found: &GetResponse) -> Option<String> {
    found.kvs().first().map(|found| found.value_str().unwrap_or_default().to_string())
}
