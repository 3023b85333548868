//! Deletes records that nobody uses, if a store has very many. Otherwise they stay, so that a store can tell who held a key last.

use core::{cmp::Reverse, time::Duration};
use std::{boxed::Box, string::String, vec::Vec};

use async_trait::async_trait;
use tokio::time::sleep;

use crate::machine::{Batch, Key, Records, SessionId, StoreError, StoreErrorKind};

/// Only a store with more records than this is swept.
pub(super) const MANY: usize = 512;
/// How many records are read at once.
pub(super) const PAGE: usize = 256;
/// One connection reads at most this many pages, because a store may have a million records in use, and ten thousand connections. This is
/// enough for programs that leave one record for each connection.
const PAGES: usize = 8;
/// One transaction forgets at most this many records. It has a row for each of these records, and for each session that they name.
const AT_ONCE: usize = 8;
/// The pause between two transactions. Each may change the store's own row, which the transactions of all contexts use.
const PAUSE: Duration = Duration::from_millis(10);
/// How long each request may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Some of a store's records, as a [`sweep`] reads them.
#[derive(Default)]
pub(super) struct Page {
    pub(super) records: Vec<(Key, String)>,
    /// After which record the next page begins, if these were not the last ones.
    pub(super) next: Option<Key>,
}

/// What a sweep needs of a store over a network.
#[async_trait]
pub(super) trait Shelf: Send + Sync {
    /// Whether there are more than [`MANY`] records. A store that has counted them before need not count again.
    async fn has_many(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    /// Up to [`PAGE`] records that follow the one of this key, in an order of the store's own; `None` for the first ones.
    async fn page(&self, after: Option<Key>) -> Result<Page, StoreError>;

    /// The rows of those of these sessions that have one.
    async fn sessions(&self, sessions: &[SessionId]) -> Result<Vec<(SessionId, String)>, StoreError>;

    /// A transaction.
    async fn forget(&self, batch: Batch) -> Result<(), StoreError>;

    /// Whether nobody uses the connection any more.
    fn is_over(&self) -> bool;
}

/// Forgets records that nobody uses, in the name of a session, once for each connection. The sweep begins after the `own` key, and goes on
/// from the first key after the last one, so connections with other keys begin elsewhere. Records that it cannot forget stay until a
/// program connects again.
pub(super) async fn sweep(shelf: impl Shelf, session: SessionId, own: Option<Key>) {
    // If it fails, a later connection sweeps again.
    drop(look_through(&shelf, session, own).await);
}

async fn look_through(shelf: &impl Shelf, session: SessionId, own: Option<Key>) -> Result<(), StoreError> {
    if !shelf.has_many().await? {
        return Ok(());
    }
    let (mut after, mut rounds) = (own, 0);
    for _ in 0..PAGES {
        let Page { records, next } = shelf.page(after.take()).await?;
        for keys in unused(shelf, session, records).await?.chunks(AT_ONCE) {
            if shelf.is_over() {
                return Ok(());
            }
            let forgets = keys.to_vec();
            match shelf.forget(Batch { forgets, ..Batch::new(session, Vec::new()) }).await {
                // Some may have too many sessions for one transaction. The others can go all the same.
                Err(error) if !error.retry && error.kind != StoreErrorKind::TooLarge => return Err(error),
                Ok(()) | Err(_) => sleep(PAUSE).await,
            }
        }
        rounds += usize::from(next.is_none());
        if rounds == 2 || shelf.is_over() {
            break;
        }
        after = next;
    }
    Ok(())
}

/// Which of these records nobody uses. The transaction that forgets them looks again. The one with the largest token comes first: it raises
/// the store's floor of tokens, and the others of the page then leave the store's own row as it is. A context that acquires a key without a
/// record depends on that row, and from far away it would find the row changed each time.
async fn unused(shelf: &impl Shelf, session: SessionId, stored: Vec<(Key, String)>) -> Result<Vec<Key>, StoreError> {
    let mut records = Records::new();
    let mut batch = Batch::new(session, Vec::new());
    for (key, text) in stored {
        records.load(key.clone(), Some(&text));
        batch.forgets.push(key);
    }
    let named = records.sessions_of(&batch);
    let found = shelf.sessions(&named).await?;
    for id in named {
        let text = found.iter().find(|(known, _)| *known == id).map(|(_, text)| text.as_str());
        records.load_session(id, text);
    }
    batch.forgets.retain(|key| records.is_unused(key));
    batch.forgets.sort_by_key(|key| Reverse(records.peek(key).map(|record| record.last_token)));
    Ok(batch.forgets)
}

#[cfg(test)]
mod tests {
    use std::{
        format,
        sync::{Mutex, MutexGuard},
    };

    use tokio::runtime::Builder;

    use super::*;
    use crate::machine::{
        Acquire, Action, Beat, Now, Operation, Outcome, RequestId, Row, SessionStep, StoreClock, StoreId, StoreNow,
    };

    const LIVING: SessionId = SessionId(1);
    const ENDED: SessionId = SessionId(2);

    /// A store, and what a sweep did with it.
    struct Fake {
        store: Mutex<Records>,
        keys: Vec<Key>,
        looked_at: Mutex<Vec<Key>>,
        /// For each transaction.
        refusal: Option<StoreError>,
        tried: Mutex<usize>,
        /// How often the store's own row was written.
        raised: Mutex<usize>,
        /// After this many transactions nobody uses the connection.
        over_after: usize,
    }

    impl Fake {
        /// Of the records, the first is held by somebody, the second by a session that has ended; the others are idle.
        fn with(records: usize) -> Self {
            let fake = Self {
                store: Mutex::new(Records::whole(StoreId(1))),
                keys: (0..records).map(|number| Key::new(&format!("k{number:05}")).unwrap()).collect(),
                looked_at: Mutex::default(),
                refusal: None,
                tried: Mutex::new(0),
                raised: Mutex::new(0),
                over_after: usize::MAX,
            };
            for session in [LIVING, ENDED] {
                let step =
                    SessionStep::Open { beat: Beat { lease_ms: 1_000, ..Beat::default() }, instance: String::new() };
                fake.apply(&Batch { step, ..Batch::new(session, Vec::new()) });
            }
            for (number, key) in fake.keys.clone().into_iter().enumerate() {
                let request = RequestId(u64::try_from(number).unwrap() + 1);
                let operation = |action| Vec::from([Operation { key: key.clone(), action }]);
                let session = if number == 1 { ENDED } else { LIVING };
                let ask = operation(Action::Acquire(Acquire::new(request, request.0)));
                let Some(Outcome::Granted(granted)) = fake.apply(&Batch::new(session, ask)) else { panic!("{key}") };
                if number > 1 {
                    let release = operation(Action::Release { token: granted.block.first, request });
                    fake.apply(&Batch::new(session, release));
                }
            }
            fake.apply(&Batch { step: SessionStep::Close, ..Batch::new(ENDED, Vec::new()) });
            fake
        }

        fn store(&self) -> MutexGuard<'_, Records> {
            self.store.lock().unwrap()
        }

        fn apply(&self, batch: &Batch) -> Option<Outcome> {
            let reply = batch.apply(&mut self.store(), StoreNow::new(StoreClock::Observed, Now::default()));
            reply.answers.into_iter().next().map(|answer| answer.outcome)
        }

        fn sweep_from(&self, own: Option<usize>) {
            let runtime = Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(sweep(self, LIVING, own.map(|number| self.keys[number].clone())));
        }
    }

    #[async_trait]
    impl Shelf for &Fake {
        async fn has_many(&self) -> Result<bool, StoreError> {
            Ok(self.store().len() > MANY)
        }

        async fn page(&self, after: Option<Key>) -> Result<Page, StoreError> {
            let follow = self.keys.iter().filter(|key| after.as_ref().is_none_or(|after| *key > after));
            let text = |key: &Key| Some((key.clone(), self.store().text(&Row::Record(key.clone()))?));
            let records: Vec<_> = follow.filter_map(text).take(PAGE).collect();
            self.looked_at.lock().unwrap().extend(records.iter().map(|(key, _)| key.clone()));
            let next = records.last().filter(|_| records.len() == PAGE).map(|(key, _)| key.clone());
            Ok(Page { records, next })
        }

        async fn sessions(&self, sessions: &[SessionId]) -> Result<Vec<(SessionId, String)>, StoreError> {
            let row = |id: &SessionId| Some((*id, self.store().text(&Row::Session(*id))?));
            Ok(sessions.iter().filter_map(row).collect())
        }

        async fn forget(&self, batch: Batch) -> Result<(), StoreError> {
            *self.tried.lock().unwrap() += 1;
            if let Some(refusal) = &self.refusal {
                return Err(refusal.clone());
            }
            let floor = || self.store().text(&Row::Store);
            let before = floor();
            self.apply(&batch);
            *self.raised.lock().unwrap() += usize::from(floor() != before);
            Ok(())
        }

        fn is_over(&self) -> bool {
            *self.tried.lock().unwrap() >= self.over_after
        }
    }

    #[test]
    fn a_small_store_is_not_even_looked_through() {
        let fake = Fake::with(MANY);
        fake.sweep_from(None);
        assert_eq!(fake.store().len(), MANY);
        assert!(fake.looked_at.lock().unwrap().is_empty());
    }

    #[test]
    fn what_nobody_uses_is_forgotten_wherever_the_sweep_begins() {
        let fake = Fake::with(MANY + 1);
        fake.sweep_from(Some(100));
        let left = fake.store();
        assert_eq!((left.len(), left.keys("")), (1, Vec::from([fake.keys[0].clone()])));
    }

    #[test]
    fn a_large_store_is_looked_through_in_parts_behind_the_own_key() {
        let fake = Fake::with(3 * PAGES * PAGE);
        fake.sweep_from(Some(PAGE));
        let looked_at = fake.looked_at.lock().unwrap();
        assert_eq!((looked_at.len(), &looked_at[0]), (PAGES * PAGE, &fake.keys[PAGE + 1]));
        assert_eq!(fake.store().len(), 2 * PAGES * PAGE);
    }

    /// As if the keys had been used in their order: with dates in their names, for instance.
    #[test]
    fn the_store_s_own_row_is_written_once_for_each_page() {
        let fake = Fake::with(PAGES * PAGE);
        for (number, key) in fake.keys.iter().enumerate().skip(2) {
            let (mut store, token) = (fake.store(), 64 * number);
            let text = store.text(&Row::Record(key.clone())).unwrap();
            store.load(key.clone(), Some(&text.replace("\"last_token\":64", &format!("\"last_token\":{token}"))));
        }
        fake.sweep_from(None);
        assert_eq!(fake.store().len(), 1);
        assert_eq!(*fake.raised.lock().unwrap(), PAGES);
    }

    #[test]
    fn it_ends_when_nobody_needs_the_connection_or_nothing_may_be_written() {
        let closed = Fake { over_after: 2, ..Fake::with(MANY * 2) };
        closed.sweep_from(None);
        assert_eq!(*closed.tried.lock().unwrap(), 2);
        let tried_if = |refusal| {
            let fake = Fake { refusal: Some(refusal), over_after: 9, ..Fake::with(MANY * 2) };
            fake.sweep_from(None);
            *fake.tried.lock().unwrap()
        };
        assert_eq!(tried_if(StoreError::permanent(StoreErrorKind::Unsupported, "may not write")), 1);
        assert_eq!(tried_if(StoreError::permanent(StoreErrorKind::TooLarge, "so many sessions")), 9);
        assert_eq!(tried_if(StoreError::transient("busy")), 9);
    }
}
