//! Of a request for several keys.

use leasehold::machine::{Acquire, Action, Batch, Key, Outcome, Record, Reply, RequestId, SessionId};

/// I14: a request for several keys gets all of them, or nothing new.
#[derive(Debug)]
pub struct Several {
    /// What it had before.
    had: Vec<(Key, RequestId)>,
}

impl Several {
    /// Looks at the records before the batch.
    pub fn before<'a>(batch: &Batch, record: impl Fn(&Key) -> Option<&'a Record>) -> Self {
        Self { had: asked(batch).map_or_else(Vec::new, |asks| has(batch.session, asks, record)) }
    }

    /// Compares the records after the batch.
    ///
    /// # Errors
    /// What is wrong, for people to read.
    pub fn after<'a>(
        &self,
        batch: &Batch,
        reply: &Reply,
        record: impl Fn(&Key) -> Option<&'a Record>,
    ) -> Result<(), String> {
        let (Some(asks), Some(answer)) = (asked(batch), reply.answers.last()) else { return Ok(()) };
        if let Outcome::GrantedAll(told) = &answer.outcome {
            let granted = |(key, ask): &&(Key, Acquire)| {
                record(key).is_some_and(|record| has_grant(record, batch.session, ask.request))
            };
            let granted = asks.iter().filter(granted).count();
            return match (granted, told.len()) == (asks.len(), asks.len()) {
                true => Ok(()),
                false => Err(format!("{granted} of {} keys for {:?}", asks.len(), answer.outcome)),
            };
        }
        match has(batch.session, asks, record).iter().find(|one| !self.had.contains(one)) {
            Some((key, request)) => Err(format!("{key} has {request:?} after {:?}", answer.outcome)),
            None => Ok(()),
        }
    }
}

/// Only the last operation counts: a later one could have changed its result.
fn asked(batch: &Batch) -> Option<&[(Key, Acquire)]> {
    match &batch.operations.last()?.action {
        Action::AcquireAll(asks) => Some(asks),
        _ => None,
    }
}

/// The requests that have a grant or a queue entry.
fn has<'a>(
    session: SessionId,
    asks: &[(Key, Acquire)],
    record: impl Fn(&Key) -> Option<&'a Record>,
) -> Vec<(Key, RequestId)> {
    let named = asks.iter().filter(|(key, ask)| {
        let queues = |record: &Record| {
            record.queue.iter().any(|waiter| (waiter.holder, waiter.request) == (session, ask.request))
        };
        record(key).is_some_and(|record| has_grant(record, session, ask.request) || queues(record))
    });
    named.map(|(key, ask)| (key.clone(), ask.request)).collect()
}

fn has_grant(record: &Record, session: SessionId, request: RequestId) -> bool {
    record.grants.iter().any(|grant| (grant.holder, grant.request) == (session, request))
}
