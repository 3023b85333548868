//! Messages on their way: each goes out by PUBLISH.

use core::{convert::Infallible, pin::pin, time::Duration};
use std::string::String;

use futures::{
    FutureExt, Stream, StreamExt,
    channel::mpsc::{Receiver, Sender},
    future::{Either, pending, select},
    stream::FuturesUnordered,
};
use redis::cmd;
use tokio::time::{sleep, timeout};

use super::{attempt::Place, failure::Stage};

/// The store gives up on a message that takes longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pauses before a message for one session is sent again because nobody heard it. Their sum exceeds the time to subscribe.
const PAUSES_MS: [u64; 7] = [10, 20, 40, 80, 160, 320, 640];

/// A message, and the channel for it.
pub(super) struct Letter {
    channel: String,
    text: String,
    /// How often it may be sent again.
    left: usize,
    /// While this exists, closing the store waits. `None` if nobody needs the message once its sender has closed the store.
    _under_way: Option<Sender<Infallible>>,
}

impl Letter {
    /// A session that has just begun to wait may be in the queue before it is subscribed, and would hear nothing until its next heartbeat.
    /// So a message for one session is sent again until somebody hears it.
    pub(super) fn new(channel: String, text: String, is_for_one: bool, under_way: Option<Sender<Infallible>>) -> Self {
        Self { channel, text, left: if is_for_one { PAUSES_MS.len() } else { 0 }, _under_way: under_way }
    }

    /// How many heard it; `None` if it could not be sent.
    async fn publish(&self, place: &Place) -> Option<u64> {
        let mut publish = cmd("PUBLISH");
        publish.arg(&self.channel).arg(&self.text);
        let answer = timeout(PATIENCE, place.link.send(&publish, Stage::Reading)).await.ok()?.ok()?;
        redis::from_redis_value(answer).ok()
    }

    /// Returns this message after the next pause.
    async fn later(mut self) -> Self {
        let pause = PAUSES_MS[PAUSES_MS.len() - self.left];
        self.left -= 1;
        sleep(Duration::from_millis(pause)).await;
        self
    }
}

/// Sends until no more messages come, and all were heard or given up.
pub(super) async fn send_all(place: &Place, mut waiting: Receiver<Letter>) {
    let (mut unheard, mut is_over) = (FuturesUnordered::new(), false);
    loop {
        let letter = if is_over {
            let Some(letter) = unheard.next().await else { return };
            letter
        } else {
            match select(waiting.next(), pin!(next_of(&mut unheard))).await {
                Either::Left((Some(letter), _)) | Either::Right((letter, _)) => letter,
                Either::Left((None, _)) => {
                    is_over = true;
                    continue;
                }
            }
        };
        match letter.publish(place).await {
            Some(0) if letter.left > 0 => unheard.push(letter.later()),
            Some(_) => {}
            // The messages behind one that failed would come too late. A context that cannot be notified reads the store.
            None => {
                unheard.clear();
                while waiting.next().now_or_never().flatten().is_some() {}
            }
        }
    }
}

/// The next one, as soon as there is any.
async fn next_of(letters: &mut (impl Stream<Item = Letter> + Unpin)) -> Letter {
    match letters.next().await {
        Some(letter) => letter,
        None => pending().await,
    }
}
