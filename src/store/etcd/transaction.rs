//! A batch as an optimistic transaction: it goes by rows that were read, and writes only if all of them are still the same.

mod commit;

use core::time::Duration;
use std::{format, vec::Vec};

use etcd_client::{Txn, TxnResponse};
use tokio::time::{Instant, sleep};

use super::{
    super::reserving::{FAILURES, LEAST_TRIP, writes_in_any_case},
    failure::Load,
    look,
    reservation::{Reservations, Sightings},
    rows::{Memory, Names, Seen, View, gets, others},
    servers::Servers,
    signals::Bin,
};
use crate::machine::{Batch, Records, Reply, Row, StoreError, StoreErrorKind, StoreId, StoreNow};

/// After each attempt that others were faster than, it waits a random time that grows up to this.
const LONGEST_PAUSE_US: u64 = 32_000;
/// A context that opens its session with more rows than this reads the other sessions in a separate transaction: etcd limits the
/// operations of a transaction.
const FEW_ROWS: usize = 32;

/// What a handle has for its transactions.
pub(super) struct Desk<'a> {
    pub(super) servers: &'a Servers,
    pub(super) names: &'a Names,
    pub(super) memory: &'a Memory,
    pub(super) sightings: &'a Sightings,
    /// The etcd lease of the messages that are sent with a transaction.
    pub(super) bin: Option<&'a Bin>,
}

/// What a batch made of the rows.
struct Outcome {
    reply: Reply,
    /// The rows that decided something, without those that were only read for `status`.
    used: Vec<Row>,
    records: Records,
    changed: Vec<Row>,
    /// Whether `status` needs more rows than one transaction reads.
    is_wide: bool,
}

/// Who writes the records next.
#[derive(Clone, Copy)]
struct Next<'a> {
    reservations: &'a Reservations<'a>,
    /// How many attempts failed before.
    attempt: u32,
    /// How long the last answer took, if this attempt is to make reservations; else `None`.
    reserves: Option<Duration>,
}

impl Desk<'_> {
    /// Applies a batch, as often as others were faster, until the deadline.
    pub(super) async fn transact(&self, batch: &Batch, now: StoreNow, deadline: Instant) -> Result<Reply, StoreError> {
        let reply = self.compete(batch, now, deadline).await;
        self.sightings.pace.note_end(batch, reply.is_err());
        reply
    }

    async fn compete(&self, batch: &Batch, now: StoreNow, deadline: Instant) -> Result<Reply, StoreError> {
        let mut view = View::default();
        let reply = self.compete_with(&mut view, batch, now, deadline).await;
        if reply.as_ref().is_err_and(|error| error.kind == StoreErrorKind::Busy) {
            // Keep the rows, so that the next transaction goes on where this one had to stop.
            self.memory.keep(view.rows);
        }
        reply
    }

    async fn compete_with(
        &self,
        view: &mut View,
        batch: &Batch,
        now: StoreNow,
        deadline: Instant,
    ) -> Result<Reply, StoreError> {
        let (mut memory, began) = (Some(self.memory), Instant::now());
        let mut reservations = Reservations::of(batch, self.names, self.sightings);
        let (may_reserve, mut trip) = (writes_in_any_case(batch), self.sightings.pace.trip());
        let failures = if self.sightings.pace.has_failed() { 0 } else { FAILURES };
        for attempt in 0_u32.. {
            let mut outcome = self.apply(batch, now, (&mut *view, memory), deadline).await?;
            if outcome.changed.is_empty() && view.is_of_one_moment() {
                self.withdraw(&reservations, deadline).await;
                self.memory.keep(core::mem::take(view).rows);
                return Ok(outcome.reply);
            }
            let asked_at = Instant::now();
            // Only after a wait: otherwise one slow answer would make every later transaction give up before its first attempt.
            let has_waited = asked_at - began > trip / 2;
            let least = if attempt == 0 { trip } else { trip.max(LEAST_TRIP) };
            if has_waited && deadline < asked_at + least {
                // A write sent now would be answered after the deadline, so nobody would know in time whether it took effect.
                break;
            }
            let asked = outcome.used.clone();
            let may_reserve = may_reserve && reservations.fit(asked.len());
            let reserves = (attempt >= failures && may_reserve).then_some(trip);
            let next = Next { reservations: &reservations, attempt, reserves };
            let answer = self.commit(batch.session, &mut outcome, (&*view, next), deadline).await?;
            trip = asked_at.elapsed();
            self.sightings.pace.note_trip(trip);
            if answer.succeeded() {
                if !outcome.changed.is_empty() && reservations.fit(asked.len()) {
                    reservations.ended();
                }
                self.remember(&outcome, core::mem::take(view), &answer);
                return Ok(outcome.reply);
            }
            // What it went by has changed; the answer says how it is now.
            (*view, memory) = (core::mem::take(view).anew(), None);
            if !outcome.is_wide {
                view.take(asked, &answer);
            }
            if !outcome.changed.is_empty() {
                reservations.learn(&answer.op_responses());
            }
            // The first time it knows better already, and is likely to succeed. So it is with a reservation of its own.
            if attempt > 0 && !(may_reserve && reservations.are_free()) {
                self.pause(attempt).await?;
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        Err(too_late())
    }

    /// Takes back reservations that are of no use any more, so that nobody waits for their end.
    async fn withdraw(&self, reservations: &Reservations<'_>, deadline: Instant) {
        if let Some(withdrawal) = reservations.withdrawal() {
            // If it fails, others wait until they have seen the reservation for long enough.
            drop(self.run(withdrawal, Load::default(), false, deadline).await);
        }
    }

    /// Reads what is not known yet, and applies the batch to it.
    async fn apply(
        &self,
        batch: &Batch,
        now: StoreNow,
        (view, memory): (&mut View, Option<&Memory>),
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        let mut used: Vec<_> = batch.keys().into_iter().map(Row::Record).collect();
        used.extend([Row::Store, Row::Session(batch.session)]);
        self.begin(view, &used, (batch, memory), deadline).await?;
        let mut records = load(batch, view)?;
        let is_wide = look::is_wide(batch, used.len() + records.sessions_of(batch).len());
        if is_wide {
            records = self.look(view, &used, batch, deadline).await?;
        }
        let sessions = records.sessions_of(batch);
        let decides = if is_wide { records.sessions_of(&look::without_looks(batch)) } else { sessions.clone() };
        used.extend(decides.into_iter().filter(|session| *session != batch.session).map(Row::Session));
        self.complete(view, &used, memory, deadline).await?;
        for session in &sessions {
            records.load_session(*session, view.text(&Row::Session(*session)));
        }
        for (session, text) in view.peers.iter().filter(|(session, _)| !sessions.contains(session)) {
            records.load_session(*session, Some(text));
        }
        let reply = batch.apply(&mut records, now);
        let changed = records.take_changed();
        Ok(Outcome { reply, used, records, changed, is_wide })
    }

    /// Reads the rows that are not in the view, and for a session that opens also some of the other sessions. An opening always reads
    /// its own row, which nobody knows yet.
    pub(super) async fn begin(
        &self,
        view: &mut View,
        wanted: &[Row],
        (batch, memory): (&Batch, Option<&Memory>),
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let missing = view.recall(wanted, memory);
        let peers = if view.peers.is_empty() { batch.peers() } else { 0 };
        if missing.is_empty() || peers == 0 {
            return self.read_into(view, missing, deadline).await;
        }
        let others = others(self.names, batch.session, peers);
        if missing.len() > FEW_ROWS {
            // These may be read at another moment, because nothing depends on them.
            let load = Load { rows: others.len(), bytes: 0 };
            let answer = self.run(Txn::new().and_then(others), load, false, deadline).await?;
            view.meet(self.names, 0, peers, &answer);
            return self.read_into(view, missing, deadline).await;
        }
        let mut gets = gets(self.names, &missing);
        gets.extend(others);
        let load = Load { rows: gets.len(), bytes: 0 };
        let answer = self.run(Txn::new().and_then(gets), load, false, deadline).await?;
        view.meet(self.names, missing.len(), peers, &answer);
        view.take(missing, &answer);
        Ok(())
    }

    /// Reads the rows that are not in the view, all at one moment.
    async fn complete(
        &self,
        view: &mut View,
        wanted: &[Row],
        memory: Option<&Memory>,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let missing = view.recall(wanted, memory);
        self.read_into(view, missing, deadline).await
    }

    async fn read_into(&self, view: &mut View, missing: Vec<Row>, deadline: Instant) -> Result<(), StoreError> {
        if !missing.is_empty() {
            let answer = self.read(&missing, deadline).await?;
            view.take(missing, &answer);
        }
        Ok(())
    }

    /// Reads rows, all at one moment.
    pub(super) async fn read(&self, rows: &[Row], deadline: Instant) -> Result<TxnResponse, StoreError> {
        let txn = Txn::new().and_then(gets(self.names, rows));
        self.run(txn, Load { rows: rows.len(), bytes: 0 }, false, deadline).await
    }

    /// Runs a transaction. Where certainly nothing was written, another server is asked.
    pub(super) async fn run(
        &self,
        txn: Txn,
        load: Load,
        is_write: bool,
        deadline: Instant,
    ) -> Result<TxnResponse, StoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let is_last = tries > self.servers.many();
            let failure = match self.servers.txn(txn.clone(), load, self.limit(is_last, deadline)).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let may_repeat = failure.error.retry && !(is_write && failure.in_doubt);
            if is_last || !may_repeat || Instant::now() >= deadline {
                // What is remembered saves a read to whoever has little time. It is compared in any case.
                if failure.error.kind != StoreErrorKind::Busy {
                    self.memory.forget();
                }
                return Err(if is_write { failure.of_write() } else { failure.error });
            }
        }
    }

    /// A server that hangs leaves half of the time to the others.
    fn limit(&self, is_last: bool, deadline: Instant) -> Instant {
        let now = Instant::now();
        let left = deadline.saturating_duration_since(now);
        if is_last || self.servers.many() == 1 { deadline } else { now + left / 2 }
    }

    /// The rows are now as the batch made them.
    fn remember(&self, outcome: &Outcome, view: View, answer: &TxnResponse) {
        let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        let mut rows = view.rows;
        for row in &outcome.changed {
            let text = outcome.records.text(row);
            let seen = if text.is_some() { Seen { text, revision } } else { Seen::default() };
            rows.insert(row.clone(), seen);
        }
        self.memory.keep(rows);
    }

    /// Lets the others go on.
    async fn pause(&self, attempt: u32) -> Result<(), StoreError> {
        let longest = (250_u64 << attempt.min(16)).min(LONGEST_PAUSE_US);
        let pause = u64::try_from(random()? % u128::from(longest)).unwrap_or(longest);
        sleep(Duration::from_micros(pause)).await;
        Ok(())
    }
}

/// The store's row and the records of a batch.
pub(super) fn load(batch: &Batch, view: &View) -> Result<Records, StoreError> {
    let mut records = Records::new();
    let stored = view.text(&Row::Store);
    let fresh = if stored.is_none() { random()? } else { 0 };
    records.load_store(stored, StoreId(fresh))?;
    for key in batch.keys() {
        let row = Row::Record(key.clone());
        records.load(key, view.text(&row));
    }
    Ok(records)
}

fn too_late() -> StoreError {
    StoreError::busy("other contexts kept changing the same rows of etcd until the time limit")
}

/// Random bits of the system.
pub(super) fn random() -> Result<u128, StoreError> {
    let mut bits = [0; 16];
    let filled = getrandom::fill(&mut bits);
    filled.map_err(|why| StoreError::transient(format!("the system gives no random bits ({why})")))?;
    Ok(u128::from_ne_bytes(bits))
}
