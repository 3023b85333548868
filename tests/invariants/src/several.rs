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
        let has = has(batch.session, asks, record);
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

/// What came after it in the same transaction may have changed what it did: only the last operation counts.
fn asked(batch: &Batch) -> Option<&[(Key, Acquire)]> {
    match &batch.operations.last()?.action {
        Action::AcquireAll(asks) => Some(asks),
        _ => None,
    }
}

/// What stands under the requests: grants and places.
fn has<'a>(
    session: SessionId,
    asks: &[(Key, Acquire)],
    record: impl Fn(&Key) -> Option<&'a Record>,
) -> Vec<(Key, RequestId)> {
    let named = asks.iter().filter(|(key, ask)| {
        let own = |holder, request| (holder, request) == (session, ask.request);
        record(key).is_some_and(|record| {
            record.grants.iter().any(|grant| own(grant.holder, grant.request))
                || record.queue.iter().any(|waiter| own(waiter.holder, waiter.request))
        })
    });
    named.map(|(key, ask)| (key.clone(), ask.request)).collect()
}
