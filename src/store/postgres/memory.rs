//! The store remembers what the last transaction at a key left there. It decides the next transaction by that, and sends a single
//! statement, which writes only if the rows are still the same. So the transaction takes one round trip to the server instead of two.
//!
//! What is remembered is a guess. The statement compares every row that the decision rests on, under the same locks as any other
//! transaction. If a row differs, nothing is written, and the transaction begins anew by reading.

use std::{collections::HashMap, hash::Hash, string::String, sync::MutexGuard};

use crate::executor::Mutex;
use crate::machine::{Batch, FORMAT, Key, Records, Reply, Row, SessionId, SessionStep, StoreId, StoreNow};

/// At most this many records, and as many sessions, are remembered. The limit saves memory: the record of a key that nobody else uses
/// takes a few hundred bytes.
const MOST_REMEMBERED: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Texts>);

/// The texts of rows.
#[derive(Debug, Default)]
struct Texts {
    store: String,
    records: HashMap<Key, String>,
    sessions: HashMap<SessionId, String>,
}

/// The rows as a transaction left them.
pub(super) struct Left<'a> {
    pub(super) batch: &'a Batch,
    pub(super) records: &'a Records,
    /// The row of the batch's session.
    pub(super) session: Option<&'a str>,
    /// The record of the batch's only key.
    pub(super) record: Option<&'a str>,
    /// The store's own row; `None` if the store is new.
    pub(super) store: Option<&'a str>,
}

/// The rows that a decision rests on.
pub(super) struct Premises {
    pub(super) key: Key,
    store: String,
    pub(super) record: String,
    pub(super) session: String,
}

/// What a batch does if the premises hold.
pub(super) struct Decision {
    pub(super) reply: Reply,
    /// The new record.
    pub(super) record: String,
    /// What the store's own row must contain. Its floor of tokens does not matter to a record that exists.
    pub(super) store: String,
}

impl Memory {
    fn texts(&self) -> MutexGuard<'_, Texts> {
        self.0.lock()
    }

    /// The rows that a batch needs, if all of them are remembered. The record is forgotten until the batch's outcome is known.
    pub(super) fn take(&self, batch: &Batch) -> Option<Premises> {
        let is_plain = batch.step == SessionStep::Stay && batch.ends.is_empty() && batch.forgets.is_empty();
        let [key] = <[Key; 1]>::try_from(batch.keys()).ok().filter(|_| is_plain)?;
        let mut texts = self.texts();
        let session = texts.sessions.get(&batch.session)?.clone();
        let record = texts.records.remove(&key)?;
        Some(Premises { key, store: texts.store.clone(), record, session })
    }

    /// The premises held, and the server wrote the decision.
    pub(super) fn held(&self, premises: Premises, decision: &Decision) {
        put(&mut self.texts().records, premises.key, Some(decision.record.clone()));
    }

    /// One of the premises did not hold, and nobody knows which. The record is forgotten already; now the session is, too.
    pub(super) fn failed(&self, session: SessionId) {
        self.texts().sessions.remove(&session);
    }

    /// A transaction was committed, or wrote nothing. The record of a key is remembered only if nobody but the session uses the key: any
    /// other context would soon change it.
    pub(super) fn learn(&self, left: &Left<'_>) {
        let Left { batch, records, session, record, store } = *left;
        let mut texts = self.texts();
        put(&mut texts.sessions, batch.session, session.map(String::from));
        if let (Ok([key]), Some(store)) = (<[Key; 1]>::try_from(batch.keys()), store) {
            store.clone_into(&mut texts.store);
            let record = record.filter(|_| is_used_only_by(batch.session, records, &key));
            put(&mut texts.records, key, record.map(String::from));
        }
    }
}

fn is_used_only_by(session: SessionId, records: &Records, key: &Key) -> bool {
    let is_own = |holder| holder == session;
    records
        .peek(key)
        .is_some_and(|record| record.queue.is_empty() && record.grants.iter().all(|grant| is_own(grant.holder)))
}

fn put<K: Eq + Hash>(texts: &mut HashMap<K, String>, name: K, text: Option<String>) {
    let Some(text) = text else {
        texts.remove(&name);
        return;
    };
    if texts.len() >= MOST_REMEMBERED && !texts.contains_key(&name) {
        texts.clear();
    }
    texts.insert(name, text);
}

impl Premises {
    /// Decides the batch by these rows. Returns `None` if the batch needs other rows, writes anything but the record, or grants the lease
    /// to another session, which is to be notified.
    pub(super) fn decide(&self, batch: &Batch, now: StoreNow) -> Option<Decision> {
        let mut records = Records::new();
        records.load_store(Some(&self.store), StoreId::default()).ok()?;
        records.load(self.key.clone(), Some(&self.record));
        records.load_session(batch.session, Some(&self.session));
        if records.sessions_of(batch) != [batch.session] {
            return None;
        }
        let mut reply = batch.apply(&mut records, now);
        let writes_only_the_record = matches!(&records.take_changed()[..], [Row::Record(_)]);
        if !writes_only_the_record || reply.promotions_mut().next().is_some() {
            return None;
        }
        let record = records.text(&Row::Record(self.key.clone()))?;
        let store = format!("{{\"format\":{FORMAT},\"store\":\"{}\"}}", records.store());
        Some(Decision { reply, record, store })
    }
}
