//! What must hold of every single commit.

use std::collections::BTreeSet;

use leasehold::machine::{Answer, Batch, Record, Records, Reply, Session, SessionId, SessionStep};
use leasehold_invariants::{ended_are_gone, only_looks};

use crate::support::ghost::short;

/// Whatever was done at a key left no grant to those who were gone before, and nobody such at the head of its queue.
pub(super) fn is_cleaned(
    records: &Records,
    batch: &Batch,
    answers: &[Answer],
    gone: &BTreeSet<SessionId>,
) -> Result<(), String> {
    for (operation, answer) in batch.operations.iter().zip(answers) {
        if only_looks(&operation.action, &answer.outcome) {
            continue;
        }
        let left = Batch::new(batch.session, vec![operation.clone()]).keys().into_iter();
        let mut left = left
            .filter_map(|key| records.peek(&key))
            .filter(|record| !ended_are_gone(record, |one| gone.contains(&one)));
        if let Some(record) = left.next() {
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
