//! The right to be the next to write some records. A context that came too late a few times reserves them while it reads them. Nobody else
//! writes them then, so its next attempt succeeds. Without that, a context far away would always come too late where near ones write a
//! record all the time.
//!
//! A reservation is a key of its own, which the write deletes. It names the session that made it, and says for how many ms others should
//! respect it. A random number distinguishes it from all others, even of the same session. The session may die before it writes. So a
//! context that has seen the same reservation for that long replaces it. No lease depends on that: every write compares the rows, too.

use core::time::Duration;
use std::{
    collections::HashMap,
    format,
    string::{String, ToString},
    vec::Vec,
};

use etcd_client::{Compare, CompareOp, GetResponse, Txn, TxnOp, TxnOpResponse};
use tokio::time::Instant;

use super::{
    super::reserving::{Pace, contested},
    rows::Names,
    transaction::random,
};
use crate::executor::Mutex;
use crate::machine::{Batch, Key, SessionId, StoreError};

/// No reservation is shorter, in ms: a context whose runtime is busy needs that long.
const SHORTEST_MS: u64 = 250;
/// Nobody respects a reservation for longer, whatever it says. So a context may starve if its answers take longer than a second.
const LONGEST_MS: u64 = 3_000;
/// A batch for more keys than this competes without reservations.
const MOST: usize = 8;
/// etcd accepts at most this many operations in a transaction, unless it was started with another `--max-txn-ops`. Those of a nested
/// transaction count. A transaction that has no room for reservations beside its own operations competes without them.
pub(super) const MOST_OPERATIONS: usize = 128;
/// Once this many reservations are remembered, all are forgotten.
const REMEMBERED: usize = 1_024;

/// The reservations that this handle has seen, and since when each has stood unchanged. A transaction may have less time than a reservation
/// takes to end, so all transactions of a handle share what they have seen.
#[derive(Debug, Default)]
pub(super) struct Sightings {
    standing: Mutex<HashMap<String, (String, Instant)>>,
    pub(super) pace: Pace,
}

impl Sightings {
    /// When this handle first saw the reservation with this text.
    fn since(&self, key: &str, text: &str) -> Instant {
        let (mut seen, now) = (self.standing.lock(), Instant::now());
        if let Some((_, since)) = seen.get(key).filter(|(known, _)| known == text) {
            return *since;
        }
        if seen.len() >= REMEMBERED {
            seen.clear();
        }
        seen.insert(key.to_string(), (text.to_string(), now));
        now
    }

    /// The reservation that was last seen at this key, and since when.
    fn latest(&self, key: &str) -> Option<(String, Instant)> {
        self.standing.lock().get(key).cloned()
    }

    fn forget(&self, key: &str) {
        self.standing.lock().remove(key);
    }
}

/// What one transaction knows of the reservations of its records. All of them are made at once, or none.
pub(super) struct Reservations<'a> {
    own: SessionId,
    records: Vec<Reserved>,
    sightings: &'a Sightings,
}

/// The reservation of one record.
struct Reserved {
    key: String,
    /// What was read there, and since when it has stood.
    seen: Option<(String, Instant)>,
}

impl<'a> Reservations<'a> {
    /// Starts with the reservations that earlier transactions of the session made, and had no time left to use.
    pub(super) fn of(batch: &Batch, names: &Names, sightings: &'a Sightings) -> Self {
        let reserved = |key: &Key| {
            let key = names.reservation(key);
            let seen = sightings.latest(&key).filter(|(text, _)| parts(text).0 == Some(batch.session));
            Reserved { key, seen }
        };
        let records = contested(batch, MOST).iter().map(reserved).collect();
        Self { own: batch.session, records, sightings }
    }

    /// Whether a transaction of that many operations has room for reservations. Each key takes a compare, and two operations of the nested
    /// transaction, for which etcd leaves what the other compares and operations do not need.
    pub(super) fn fit(&self, operations: usize) -> bool {
        !self.records.is_empty() && operations + 1 + 3 * self.records.len() <= MOST_OPERATIONS
    }

    /// Whether the transaction relies on a reservation that an earlier one of its session made. Others may have replaced it since.
    pub(super) fn are_remembered(&self) -> bool {
        self.records.iter().any(|record| record.seen.is_some())
    }

    /// How many operations of a transaction must stay free for the one that is nested in it, which makes and reads reservations.
    pub(super) fn nested_operations(&self) -> usize {
        2 * self.records.len()
    }

    /// Whether nobody else has reserved a record, or has done so for too long.
    pub(super) fn are_free(&self) -> bool {
        let is_free = |(text, since): &(String, Instant)| {
            let (name, span) = parts(text);
            name == Some(self.own) || since.elapsed() >= span
        };
        self.records.iter().all(|record| record.seen.as_ref().is_none_or(is_free))
    }

    /// That the keys still are as they were read, and must not keep this transaction from writing.
    pub(super) fn compares(&self) -> Vec<Compare> {
        let are_free = self.are_free();
        let compare = |record: &Reserved| match record.seen.as_ref().filter(|_| are_free) {
            Some((text, _)) => Compare::value(record.key.as_str(), CompareOp::Equal, text.as_str()),
            None => Compare::version(record.key.as_str(), CompareOp::Equal, 0),
        };
        self.records.iter().map(compare).collect()
    }

    /// The keys of the reservations that were read. The write makes them obsolete.
    pub(super) fn obsolete(&self) -> Vec<String> {
        let seen = self.records.iter().filter(|record| record.seen.is_some());
        seen.map(|record| record.key.clone()).collect()
    }

    /// Forgets the reservations of these records. Call it only after a write that deleted them.
    pub(super) fn ended(&self) {
        self.records.iter().for_each(|record| self.sightings.forget(&record.key));
    }

    /// Deletes the reservations that this session made, if any. For a transaction that has nothing to write.
    pub(super) fn withdrawal(&self) -> Option<Txn> {
        let is_own = |record: &&Reserved| record.seen.as_ref().is_some_and(|(text, _)| parts(text).0 == Some(self.own));
        let own: Vec<_> = self.records.iter().filter(is_own).collect();
        let stands = own.iter().filter_map(|record| {
            let (text, _) = record.seen.as_ref()?;
            Some(Compare::value(record.key.as_str(), CompareOp::Equal, text.as_str()))
        });
        let compares: Vec<_> = stands.collect();
        let ends: Vec<_> = own.iter().map(|record| TxnOp::delete(record.key.as_str(), None)).collect();
        (!own.is_empty()).then(|| Txn::new().when(compares).and_then(ends))
    }

    /// Reads the reservations. If `trip` is given and nobody else has reserved the records, it makes the reservations first. `trip` is how
    /// long the last answer took: a context further away gets more time.
    pub(super) fn question(&self, trip: Option<Duration>) -> Result<TxnOp, StoreError> {
        let reads: Vec<_> = self.records.iter().map(|record| TxnOp::get(record.key.as_str(), None)).collect();
        let Some(trip) = trip.filter(|_| self.are_free()) else { return Ok(TxnOp::txn(Txn::new().and_then(reads))) };
        let text = format!("{} {} {:x}", self.own, span_ms(trip), random()?);
        let makes = self.records.iter().map(|record| TxnOp::put(record.key.as_str(), text.as_str(), None));
        let makes = makes.chain(reads.clone()).collect::<Vec<_>>();
        Ok(TxnOp::txn(Txn::new().when(self.compares()).and_then(makes).or_else(reads)))
    }

    /// Takes the answer to the question, which was the last one of a transaction.
    pub(super) fn learn(&mut self, answers: &[TxnOpResponse]) {
        let Some(TxnOpResponse::Txn(answer)) = answers.last() else { return };
        let found = answer.op_responses().into_iter().filter_map(|answer| match answer {
            TxnOpResponse::Get(found) => Some(found),
            _ => None,
        });
        for (record, found) in self.records.iter_mut().zip(found) {
            let text = text_in(&found);
            if text.is_none() {
                self.sightings.forget(&record.key);
            }
            record.seen = text.map(|text| {
                let since = self.sightings.since(&record.key, &text);
                (text, since)
            });
        }
    }
}

/// For how many ms others should respect a reservation.
fn span_ms(trip: Duration) -> u64 {
    // The next attempt may read the session of a new holder before it writes. That takes two answers; the third leaves a margin.
    u64::try_from(3 * trip.as_millis()).unwrap_or(LONGEST_MS).clamp(SHORTEST_MS, LONGEST_MS)
}

/// The maker of a reservation, and for how long it is respected.
fn parts(text: &str) -> (Option<SessionId>, Duration) {
    let mut words = text.split(' ');
    let name = words.next().and_then(SessionId::from_digits);
    let span_ms = words.next().and_then(|span| span.parse().ok()).unwrap_or(LONGEST_MS);
    (name, Duration::from_millis(span_ms.min(LONGEST_MS)))
}

fn text_in(found: &GetResponse) -> Option<String> {
    found.kvs().first().map(|found| found.value_str().unwrap_or_default().to_string())
}
