//! A store that reads and writes rows one by one, as databases do: it does the same as one that has everything at hand.

use leasehold::machine::{Batch, Records, Reply, Row, SessionId, StoreId, StoreNow};

/// Whether a batch does the same where only the rows are read that it says it needs, through their texts.
pub(crate) fn suffice(
    batch: &Batch,
    now: StoreNow,
    before: &Records,
    (after, changed): (&Records, &[Row]),
    reply: &Reply,
) -> bool {
    let Some(mut read) = read(batch, before) else { return false };
    let answered = batch.apply(&mut read, now);
    let mut rows = read.take_changed();
    rows.extend_from_slice(changed);
    let same = (&answered.robbed, &answered.answers) == (&reply.robbed, &reply.answers);
    same && rows.iter().all(|row| read.text(row) == after.text(row))
}

/// Whether a batch that is sure of its session does the same where the records alone are read, or is not done there at all.
pub(crate) fn record_suffices(
    batch: &Batch,
    now: StoreNow,
    before: &Records,
    (after, changed): (&Records, &[Row]),
    reply: &Reply,
) -> bool {
    let mut read = Records::new();
    load(batch, before, &mut read);
    let Some(answered) = batch.apply_alone(&mut read, before.store(), now) else { return true };
    let mut rows = read.take_changed();
    rows.extend_from_slice(changed);
    answered.answers == reply.answers && rows.iter().all(|row| read.text(row) == after.text(row))
}

fn load(batch: &Batch, stored: &Records, read: &mut Records) {
    for key in batch.keys() {
        let text = stored.text(&Row::Record(key.clone()));
        read.load(key, text.as_deref());
    }
}

/// The sessions whose rows a batch needs, by the records as they are now.
pub(crate) fn sessions_of(batch: &Batch, stored: &Records) -> Vec<SessionId> {
    let mut read = Records::new();
    load(batch, stored, &mut read);
    read.sessions_of(batch)
}

fn read(batch: &Batch, stored: &Records) -> Option<Records> {
    let mut read = Records::new();
    read.load_store(stored.text(&Row::Store).as_deref(), StoreId(0)).ok()?;
    load(batch, stored, &mut read);
    for session in read.sessions_of(batch) {
        read.load_session(session, stored.text(&Row::Session(session)).as_deref());
    }
    Some(read)
}
