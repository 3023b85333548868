//! What a session has to say: it waits for a connection, and then for the server's answer.

use core::time::Duration;
use std::{collections::VecDeque, string::String};

use tokio::{task::JoinSet, time::timeout};

use super::link::Link;

/// More than a session says before it is connected. Of what waits longer the oldest is lost, as hints may be.
const MOST: usize = 128;
/// For so long a session that rests waits for what it said last.
const LIMIT: Duration = Duration::from_secs(1);

/// A notification.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) channel: String,
    pub(super) payload: String,
    /// If it is for one session, the advisory lock that this one has while it listens.
    pub(super) ear: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Letter>,
    on_their_way: JoinSet<()>,
}

impl Outbox {
    /// Sends by this connection; without one the letter waits.
    pub(super) fn send(&mut self, letter: Letter, link: Option<&Link>) {
        match link {
            Some(link) => {
                while self.on_their_way.try_join_next().is_some() {}
                self.on_their_way.spawn(link.notify(letter));
            }
            None => {
                if self.waiting.len() == MOST {
                    self.waiting.pop_front();
                }
                self.waiting.push_back(letter);
            }
        }
    }

    /// Sends what waits.
    pub(super) fn flush(&mut self, link: &Link) {
        for letter in core::mem::take(&mut self.waiting) {
            self.send(letter, Some(link));
        }
    }

    /// Whether anything waits for a connection.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Waits until the server has what was sent.
    pub(super) async fn finish(&mut self) {
        let sent = async { while self.on_their_way.join_next().await.is_some() {} };
        // A server that does not answer is not waited for.
        let _ = timeout(LIMIT, sent).await;
    }
}
