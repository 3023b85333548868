//! How a [sweep](super::super::sweep) asks Redis.

use std::{
    collections::HashMap,
    string::{String, ToString},
    sync::{Arc, atomic::AtomicBool},
    vec::Vec,
};

use async_trait::async_trait;
use redis::{Cmd, FromRedisValue, cmd};
use tokio::time::Instant;

use super::{
    RedisStore,
    attempt::Place,
    failure::{self, Stage},
    listing::key_of,
};
use crate::machine::{Batch, Key, Row, SessionId, StoreError, StoreNow};
use crate::store::sweep::{MANY, PAGE, PATIENCE, Page, Shelf};

/// The records of one connection.
pub(super) struct Records {
    pub(super) store: RedisStore,
    pub(super) now: StoreNow,
}

impl Records {
    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        let Place { link, .. } = &*self.store.place;
        let nothing_to_lose = AtomicBool::new(false);
        let asked = link.within(PATIENCE, &nothing_to_lose, link.send(command, Stage::Reading));
        redis::from_redis_value(asked.await?).map_err(|_| failure::of_answer(Stage::Reading))
    }
}

#[async_trait]
impl Shelf for Records {
    /// The sessions count, too: Redis knows only how many rows there are.
    async fn has_many(&self) -> Result<bool, StoreError> {
        let rows: usize = self.ask(cmd("HLEN").arg(&self.store.place.rows)).await?;
        Ok(rows > MANY)
    }

    /// Redis keeps no order, and gives random rows instead.
    async fn page(&self, _after: Option<Key>) -> Result<Page, StoreError> {
        let mut some = cmd("HRANDFIELD");
        some.arg(&self.store.place.rows).arg(PAGE).arg("WITHVALUES");
        let rows: HashMap<Vec<u8>, Vec<u8>> = self.ask(&some).await?;
        let record = |(name, text)| Some((key_of(name)?, String::from_utf8(text).ok()?));
        let records: Vec<_> = rows.into_iter().filter_map(record).collect();
        let next = records.first().map(|(key, _)| key.clone());
        Ok(Page { records, next })
    }

    async fn sessions(&self, sessions: &[SessionId]) -> Result<Vec<(SessionId, String)>, StoreError> {
        let names: Vec<_> = sessions.iter().map(|id| Row::Session(*id).to_string()).collect();
        let texts: Vec<Option<Vec<u8>>> = self.ask(cmd("HMGET").arg(&self.store.place.rows).arg(&names)).await?;
        let row = |(id, text): (&SessionId, Option<Vec<u8>>)| {
            text.map(|text| (*id, String::from_utf8_lossy(&text).into_owned()))
        };
        Ok(sessions.iter().zip(texts).filter_map(row).collect())
    }

    async fn forget(&self, batch: Batch) -> Result<(), StoreError> {
        let (link, writing, deadline) = (&self.store.place.link, AtomicBool::new(false), Instant::now() + PATIENCE);
        link.within(PATIENCE, &writing, self.store.apply(&batch, self.now, &writing, deadline)).await.map(drop)
    }

    fn is_over(&self) -> bool {
        self.store.place.link.check().is_err() || Arc::strong_count(&self.store.place) == 1
    }
}
