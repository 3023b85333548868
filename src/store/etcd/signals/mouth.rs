//! The task that sends messages: each is a put, and goes away with an etcd lease.

use core::time::Duration;
use std::format;

use etcd_client::{Client, Error, PutOptions};
use futures::{FutureExt, StreamExt, channel::mpsc::Receiver};
use tokio::time::Instant;

use super::{Letter, Post};
use crate::machine::SessionId;
use crate::store::etcd::failure::{Failure, Load};

/// How long a message stays at least, in seconds. Whoever lost its connection for a moment still finds it.
const TTL: i64 = 30;
/// An etcd lease is used for new messages so long.
const USED: Duration = Duration::from_secs(15);
/// A message that takes longer has come too late.
const LIMIT: Duration = Duration::from_secs(5);

/// The etcd lease that messages go away with.
#[derive(Clone, Copy)]
struct Bin {
    lease: i64,
    since: Instant,
}

/// Sends until nobody can send any more. What cannot be sent is lost, with all that waits behind it: messages are hints, and old
/// ones are of no use.
pub(super) async fn send(post: Post, session: SessionId, mut letters: Receiver<Letter>) {
    let mut bin = None;
    while let Some(letter) = letters.next().await {
        let mut sent = put(&post, session, &letter, bin).await;
        if sent.is_err() {
            // Once more: by another server, and with another etcd lease.
            sent = put(&post, session, &letter, None).await;
        }
        bin = sent.ok();
        while bin.is_none() && letters.next().now_or_never().flatten().is_some() {}
    }
}

async fn put(post: &Post, session: SessionId, letter: &Letter, bin: Option<Bin>) -> Result<Bin, Failure> {
    let now = Instant::now();
    let name = post.names.message(letter.to);
    let text = format!("{session} {}", letter.text);
    let put = |client: Client| async move {
        let bin = match bin.filter(|bin| bin.since + USED > now) {
            Some(bin) => bin,
            None => Bin { lease: granted(client.clone()).await?, since: now },
        };
        client.kv_client().put(name, text, Some(PutOptions::new().with_lease(bin.lease))).await?;
        Ok(bin)
    };
    post.servers.ask(Load::default(), now + LIMIT, put).await
}

async fn granted(mut client: Client) -> Result<i64, Error> {
    Ok(client.lease_grant(TTL, None).await?.id())
}
