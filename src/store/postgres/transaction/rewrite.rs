//! A transaction in one round trip: it decides by [memory](super::super::memory), and writes only if the rows are still as remembered.

use std::sync::atomic::Ordering;

use super::{
    super::{
        carrier::Round,
        literal::{bytes, numbers, text},
        memory::{Decision, Left, Premises},
        names::{bytes_of, bytes_of_key},
        often::{Often, keep_plans},
        rows::Changed,
    },
    Attempt, Fault, Read, settings,
};
use crate::machine::Reply;

impl Attempt<'_> {
    /// Decides by memory, and writes if the rows are still as remembered. Returns `None` if it wrote nothing.
    pub(super) async fn rewrite(&mut self) -> Result<Option<Reply>, Fault> {
        let batch = &self.work.batch;
        // If another session waits at the key, its row matters too, and the statement does not compare that.
        let may_rewrite = self.by_name
            && !self.contested.has_any()
            && self.place.neighbours.at(&batch.keys(), batch.session).is_empty();
        let Some(premises) = may_rewrite.then(|| self.memory.take(batch)).flatten() else { return Ok(None) };
        let Some(decision) = premises.decide(batch, self.work.now) else { return Ok(None) };
        let mut round = Round::new(self.by_name);
        settings::begin_at_once(self.work.limit, &mut round);
        keep_plans(&mut round);
        round.run(Often::Lock, self.names, &[&numbers(&self.locks(core::slice::from_ref(&premises.key)))]);
        let written = self.add_rewrite(&premises, &decision, &mut round);
        let first_letter = round.count();
        let answers = self.commit(round, first_letter).await?;
        if answers.rows(written).is_empty() {
            // Nothing was written, so nothing is unknown.
            self.committing.store(false, Ordering::Relaxed);
            self.memory.failed(batch.session);
            return Ok(None);
        }
        self.memory.held(premises, &decision);
        Ok(Some(decision.reply))
    }

    fn add_rewrite(&self, premises: &Premises, decision: &Decision, round: &mut Round) -> usize {
        let (key, session) = (bytes(&bytes_of_key(&premises.key)), bytes(&bytes_of(self.work.batch.session)));
        let [was, becomes, own, facts] =
            [&premises.record, &decision.record, &premises.session, &decision.store].map(|value| text(value));
        round.run(Often::Rewrite, self.names, &[&key, &was, &becomes, &session, &own, &facts])
    }

    /// Keeps the rows as the transaction left them.
    pub(super) fn remember(&self, read: &Read, changed: &Changed) {
        // Only connections with prepared statements decide by memory.
        if !self.by_name {
            return;
        }
        let batch = &self.work.batch;
        let record = match &batch.keys()[..] {
            [key] => changed.record_after(key, read.record.as_deref()),
            _ => None,
        };
        let (records, session) = (&read.records, changed.session_after(batch.session, read.session.as_deref()));
        let store = changed.store.as_deref().or(read.store.as_deref());
        self.memory.learn(&Left { batch, records, session, record, store });
    }
}
