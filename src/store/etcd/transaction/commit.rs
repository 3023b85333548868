//! What an attempt writes, on the condition that the rows are still as they were read.

use std::{format, string::String, vec::Vec};

use etcd_client::{Compare, PutOptions, Txn, TxnOp, TxnResponse};
use tokio::time::Instant;

use super::super::{
    failure::Load,
    reservation::MOST_OPERATIONS,
    rows::{View, gets},
    signals::Bin,
};
use super::{Desk, Next, Outcome};
use crate::machine::{Applied, Promotion, Row, SessionId, StoreError, StoreErrorKind};

impl Desk<'_> {
    /// Writes what changed if all rows are still as they were read; otherwise reads them again. Messages to the waiters that
    /// were granted a lease go along, which saves a request.
    pub(super) async fn commit(
        &self,
        session: SessionId,
        outcome: &mut Outcome,
        (view, next): (&View, Next<'_>),
        deadline: Instant,
    ) -> Result<TxnResponse, StoreError> {
        let letters = self.letters(session, outcome);
        if letters.is_empty() {
            return self.write(outcome, (view, next), letters, deadline).await;
        }
        match self.write(outcome, (view, next), letters, deadline).await {
            // A message is a hint, so nothing may fail because of it.
            Err(error) if error.applied == Applied::No => {
                self.bin.into_iter().for_each(Bin::forget);
                outcome.reply.promotions_mut().for_each(|promotion| promotion.told = false);
                self.write(outcome, (view, next), Vec::new(), deadline).await
            }
            answer => answer,
        }
    }

    /// One message to each session that was granted a lease, because etcd writes a key only once in a transaction.
    fn letters(&self, session: SessionId, outcome: &mut Outcome) -> Vec<TxnOp> {
        let Some(lease) = self.bin.and_then(Bin::lease) else { return Vec::new() };
        let (store, mut told) = (outcome.reply.store, Vec::new());
        let letter = |promotion: &mut Promotion| {
            let holder = promotion.holder;
            promotion.told = holder != session && !told.contains(&holder);
            told.push(holder);
            let text = || format!("{session} {}", promotion.message(store).encode());
            let options = Some(PutOptions::new().with_lease(lease));
            promotion.told.then(|| TxnOp::put(self.names.message(Some(holder)), text(), options))
        };
        outcome.reply.promotions_mut().filter_map(letter).collect()
    }

    async fn write(
        &self,
        outcome: &Outcome,
        (view, next): (&View, Next<'_>),
        letters: Vec<TxnOp>,
        deadline: Instant,
    ) -> Result<TxnResponse, StoreError> {
        let mut compares = self.premises(outcome, view);
        let (mut writes, bytes) = self.changes(outcome);
        let is_write = !writes.is_empty();
        writes.extend(letters);
        let mut obsolete = self.orphans(outcome);
        let mut reads = gets(self.names, &outcome.used);
        let mut most = MOST_OPERATIONS;
        if is_write && next.reservations.fit(reads.len()) {
            most -= next.reservations.nested_operations();
            compares.extend(next.reservations.compares());
            // etcd refuses a transaction that writes the same key twice.
            let read = next.reservations.obsolete();
            obsolete.retain(|name| !read.contains(name));
            obsolete.splice(0..0, read);
            // Most first attempts succeed, so the first one is kept small. But only the answer to this question shows that an attempt
            // failed because a remembered reservation is gone.
            if next.attempt > 0 || next.reserves.is_some() || next.reservations.are_remembered() {
                reads.push(next.reservations.question(next.reserves)?);
            }
        }
        // If there is no room for all of them, some stay. The next context that writes such a record waits once, until it has seen the
        // reservation for long enough.
        obsolete.truncate(most.saturating_sub(writes.len()));
        writes.extend(obsolete.into_iter().map(|name| TxnOp::delete(name, None)));
        let load = Load { rows: reads.len().max(writes.len()), bytes };
        // The reads are there even without writes: a transaction without operations is compared by one server, which may be behind.
        let txn = Txn::new().when(compares).and_then(writes).or_else(reads);
        match self.run(txn, load, is_write, deadline).await {
            Err(error) if is_write && error.kind == StoreErrorKind::Quota => {
                Err(self.resolved(error, outcome, view, deadline).await)
            }
            answer => answer,
        }
    }

    /// What must still stand for the batch's decision to hold.
    fn premises(&self, outcome: &Outcome, view: &View) -> Vec<Compare> {
        // Forgetting a record writes the store's row. That should not make other contexts begin anew.
        let needs_store = outcome.changed.contains(&Row::Store) || !view.proves_store(&outcome.used);
        let rows = outcome.used.iter().filter(|row| needs_store || **row != Row::Store);
        let premise = |row: &Row| {
            let seen = view.rows.get(row).cloned().unwrap_or_default();
            seen.compare(row, self.names.of(row))
        };
        rows.map(premise).collect()
    }

    /// The rows that the batch changed, and how many bytes they are.
    fn changes(&self, outcome: &Outcome) -> (Vec<TxnOp>, usize) {
        let (mut writes, mut bytes) = (Vec::with_capacity(outcome.changed.len()), 0);
        for row in &outcome.changed {
            debug_assert!(outcome.used.contains(row), "a batch changes only rows that it went by");
            let (name, text) = (self.names.of(row), outcome.records.text(row));
            bytes += name.len() + text.as_ref().map_or(0, |text| text.len());
            writes.push(match text {
                Some(text) => TxnOp::put(name, text, None),
                None => TxnOp::delete(name, None),
            });
        }
        (writes, bytes)
    }

    /// The reservations of the records that are deleted: nobody may write such a record again, and so delete a reservation whose maker has
    /// died.
    fn orphans(&self, outcome: &Outcome) -> Vec<String> {
        let forgotten = outcome.changed.iter().filter(|row| outcome.records.text(row).is_none());
        let forgotten = forgotten.filter_map(|row| if let Row::Record(key) = row { Some(key) } else { None });
        forgotten.map(|key| self.names.reservation(key)).collect()
    }

    /// A server without room refuses a write, or has written it all the same. Either is over when it answers, so the rows show which
    /// happened.
    async fn resolved(&self, error: StoreError, outcome: &Outcome, view: &View, deadline: Instant) -> StoreError {
        let Ok(answer) = self.read(&outcome.used, deadline).await else { return error };
        let mut now = View::default();
        now.take(outcome.used.clone(), &answer);
        let is_as_before = outcome.used.iter().all(|row| now.rows.get(row) == view.rows.get(row));
        if is_as_before { StoreError { applied: Applied::No, ..error } } else { error }
    }
}
