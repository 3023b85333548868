//! The task that sends messages: each is a put, and goes away with an etcd lease.

use core::time::Duration;
use std::{
    format,
    sync::{Arc, MutexGuard},
};

use etcd_client::{Client, Error, PutOptions};
use futures::{FutureExt, StreamExt, channel::mpsc::Receiver};
use tokio::time::Instant;

use super::{Letter, Post};
use crate::executor::Mutex;
use crate::machine::SessionId;
use crate::store::etcd::failure::{Failure, Load};

/// How long a message stays at least, in seconds. Whoever lost its connection for a moment still finds it.
const TTL: i64 = 30;
/// An etcd lease is used for new messages for this long.
const USED: Duration = Duration::from_secs(15);
/// A message that takes longer has come too late.
const LIMIT: Duration = Duration::from_secs(5);

/// The etcd lease that removes all messages of a store when it ends.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Bin(Arc<Mutex<Option<(i64, Instant)>>>);

impl Bin {
    /// The lease, unless it is too old for new messages.
    pub(in super::super) fn lease(&self) -> Option<i64> {
        self.lock().filter(|(_, since)| *since + USED > Instant::now()).map(|(lease, _)| lease)
    }

    /// Forgets the lease, because the server no longer has it or does not answer.
    pub(in super::super) fn forget(&self) {
        *self.lock() = None;
    }

    fn keep(&self, lease: i64, since: Instant) {
        *self.lock() = Some((lease, since));
    }

    fn lock(&self) -> MutexGuard<'_, Option<(i64, Instant)>> {
        self.0.lock()
    }
}

/// Sends until nobody can send any more. What cannot be sent is lost, with all that waits behind it: messages are hints, and old
/// ones are of no use.
pub(super) async fn send(post: Post, session: SessionId, mut letters: Receiver<Letter>) {
    while let Some(letter) = letters.next().await {
        let mut sent = put(&post, session, &letter).await;
        if sent.is_err() {
            // Once more: by another server, and with another etcd lease.
            post.bin.forget();
            sent = put(&post, session, &letter).await;
        }
        while sent.is_err() && letters.next().now_or_never().flatten().is_some() {}
    }
}

async fn put(post: &Post, session: SessionId, letter: &Letter) -> Result<(), Failure> {
    let now = Instant::now();
    let (name, text) = (post.names.message(letter.to), format!("{session} {}", letter.text));
    let put = |client: Client| async move {
        let lease = match post.bin.lease() {
            Some(lease) => lease,
            None => {
                let lease = granted(client.clone()).await?;
                post.bin.keep(lease, now);
                lease
            }
        };
        client.kv_client().put(name, text, Some(PutOptions::new().with_lease(lease))).await?;
        Ok(())
    };
    post.servers.ask(Load::default(), now + LIMIT, put).await
}

async fn granted(mut client: Client) -> Result<i64, Error> {
    Ok(client.lease_grant(TTL, None).await?.id())
}
