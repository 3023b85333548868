//! What must hold of every single commit.

use std::collections::BTreeSet;

use leasehold::machine::{
    Acquire, Action, Answer, Batch, Key, Outcome, Record, Records, Reply, RequestId, Session, SessionId, SessionStep,
};

use crate::support::ghost::short;

/// Whatever was done at a key left no grant to those who were gone before, and nobody such at the head of its queue.
pub(super) fn is_cleaned(
    records: &Records,
    batch: &Batch,
    answers: &[Answer],
    gone: &BTreeSet<SessionId>,
) -> Result<(), String> {
    for (operation, answer) in batch.operations.iter().zip(answers) {
        let looks_only = matches!(operation.action, Action::Inspect | Action::Fence { .. })
            || matches!(answer.outcome, Outcome::NoSession | Outcome::Superseded | Outcome::TooLate);
        let Some(record) = records.peek(&operation.key).filter(|_| !looks_only) else { continue };
        let head = record.queue.first().map(|waiter| waiter.holder);
        let mut named = record.grants.iter().map(|grant| grant.holder).chain(head);
        if named.any(|session| gone.contains(&session)) {
            return Err(format!("{:?} left those who are gone: {}", operation.action, briefly(record, records)));
        }
    }
    Ok(())
}

/// Whoever beats is told whether its row is there, and all that was stolen from it.
pub(super) fn is_told(records: &Records, batch: &Batch, reply: &Reply) -> Result<(), String> {
    let robbed = records.session(batch.session).map(Session::robbed);
    if batch.step != SessionStep::Close && reply.robbed != robbed {
        return Err(format!("{:04x} is told {:?} of {robbed:?}", short(batch.session), reply.robbed));
    }
    Ok(())
}

/// A request for several keys has all of them, or nothing new.
pub(super) struct Several {
    /// What it had before.
    had: Vec<(Key, RequestId)>,
}

impl Several {
    pub(super) fn before(records: &Records, batch: &Batch) -> Self {
        Self { had: asked(batch).map_or_else(Vec::new, |asks| has(records, batch.session, asks)) }
    }

    pub(super) fn after(&self, records: &Records, batch: &Batch, reply: &Reply) -> Result<(), String> {
        let (Some(asks), Some(answer)) = (asked(batch), reply.answers.last()) else { return Ok(()) };
        let has = has(records, batch.session, asks);
        let all = matches!(answer.outcome, Outcome::GrantedAll(_));
        if all && has.len() != asks.len() {
            return Err(format!("{} of {} keys for {:?}", has.len(), asks.len(), answer.outcome));
        }
        match has.iter().find(|one| !all && !self.had.contains(one)) {
            Some((key, request)) => Err(format!("{key} is held by {request:?} after {:?}", answer.outcome)),
            None => Ok(()),
        }
    }
}

/// What came after it in the same transaction may have changed what it did: only the last one counts.
fn asked(batch: &Batch) -> Option<&[(Key, Acquire)]> {
    match &batch.operations.last()?.action {
        Action::AcquireAll(asks) => Some(asks),
        _ => None,
    }
}

fn has(records: &Records, session: SessionId, asks: &[(Key, Acquire)]) -> Vec<(Key, RequestId)> {
    let named = asks.iter().filter(|(key, ask)| {
        let own = |holder, request| (holder, request) == (session, ask.request);
        records.peek(key).is_some_and(|record| {
            record.grants.iter().any(|grant| own(grant.holder, grant.request))
                || record.queue.iter().any(|waiter| own(waiter.holder, waiter.request))
        })
    });
    named.map(|(key, ask)| (key.clone(), ask.request)).collect()
}

/// Who holds and who waits, and whose session has ended.
pub(super) fn briefly(record: &Record, records: &Records) -> String {
    let name = |session: SessionId| match records.session(session) {
        Some(row) => format!("{:04x} (beat {})", short(session), row.beat),
        None => format!("{:04x} (gone)", short(session)),
    };
    let grants = record.grants.iter().map(|grant| {
        let (first, request) = (grant.block.first.as_u64(), grant.request.0);
        format!("{} holds {first} {:?} by {request}", name(grant.holder), grant.mode)
    });
    let queue = record.queue.iter().map(|waiter| {
        let request = waiter.request.0;
        format!("{} waits {:?} by {request}", name(waiter.holder), waiter.mode)
    });
    grants.chain(queue).collect::<Vec<_>>().join(", ")
}
