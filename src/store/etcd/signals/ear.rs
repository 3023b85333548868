//! The task that hears messages. It goes on where it was when its connection breaks.

use core::{mem, time::Duration};
use std::string::{String, ToString};

use etcd_client::{Client, Error, Event, ResponseHeader, WatchFilterType, WatchOptions, WatchResponse, WatchStream};
use tokio::time::{Instant, sleep};

use super::{Hearing, Post};
use crate::machine::{Message, SessionId};
use crate::signal::Notice;
use crate::store::{
    backoff::Backoff,
    etcd::failure::{Failure, Load},
};

/// How long a watch may take to begin.
const LIMIT: Duration = Duration::from_secs(5);
/// The shortest pause between two attempts to watch.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);

/// Hears until the context rests, from this revision on.
pub(super) async fn listen(post: Post, session: SessionId, hearing: Hearing, since: i64) {
    let keys = [Some(session), None].map(|to| (post.names.message(to), since));
    let mut ear = Ear { post, session, hearing, keys, is_refused: false };
    let mut backoff = Backoff::new(SHORTEST_PAUSE);
    while !ear.hearing.is_over() {
        if let Ok(mut stream) = ear.watch().await {
            let since = Instant::now();
            ear.hear(&mut stream).await;
            backoff.stood(since.elapsed());
        }
        sleep(backoff.next()).await;
    }
}

struct Ear {
    post: Post,
    session: SessionId,
    hearing: Hearing,
    /// The key of this session and the one of all; and for each the first revision that was not heard yet.
    keys: [(String, i64); 2],
    /// Whether the server refused the latest watch.
    is_refused: bool,
}

impl Ear {
    /// Watches both keys by one stream.
    async fn watch(&self) -> Result<WatchStream, Failure> {
        // That a message goes away is no message.
        let options = |since| WatchOptions::new().with_start_revision(since).with_filters([WatchFilterType::NoDelete]);
        let [(own, since), (all, all_since)] = self.keys.clone();
        let begin = |mut client: Client| async move {
            let mut stream = client.watch(own, Some(options(since))).await?;
            stream.watch(all, Some(options(all_since))).await?;
            Ok::<_, Error>(stream)
        };
        self.post.servers.ask(Load::default(), Instant::now() + LIMIT, begin).await
    }

    /// Hears until the stream ends.
    async fn hear(&mut self, stream: &mut WatchStream) {
        while let Ok(Some(response)) = stream.message().await {
            if self.hearing.is_over() || !self.take(&response) {
                return;
            }
        }
    }

    /// Takes what came. Whether the watch goes on.
    fn take(&mut self, response: &WatchResponse) -> bool {
        if response.canceled() {
            // Messages that were compacted away cannot be received any more, so the context reads the store.
            for (_, next) in &mut self.keys {
                *next = response.compact_revision().max(*next);
            }
            if response.compact_revision() > 0 {
                self.hearing.tell(Notice::Reconnected);
            } else if !mem::replace(&mut self.is_refused, true) {
                // The token of the connection may have expired. Unlike other calls, a watch with an expired token begins, and is canceled
                // later. So the first refusal costs the connection. After a second one, the user may not read messages, and a new
                // connection would not help.
                self.post.servers.forget();
            }
            return false;
        }
        self.is_refused = false;
        if response.created() && self.is_ahead_of(response) {
            return false;
        }
        for event in response.events() {
            if let Some(message) = self.message(event) {
                self.hearing.tell(Notice::Message(message));
            }
        }
        true
    }

    /// Whether the watch waits for revisions that come late or never, because the cluster was wiped or restored from a backup and counts
    /// again. The watch then starts anew at the cluster's revision.
    fn is_ahead_of(&mut self, response: &WatchResponse) -> bool {
        let newest = response.header().map_or(i64::MAX - 1, ResponseHeader::revision);
        if newest < self.post.servers.revision() {
            // The cluster may have lost a grant. If the server merely lags behind, this costs one query.
            self.hearing.tell(Notice::Reconnected);
        }
        let is_ahead = self.keys.iter().any(|(_, next)| *next > newest + 1);
        for (_, next) in &mut self.keys {
            *next = (newest + 1).min(*next);
        }
        is_ahead
    }

    /// A message, unless it is one of this context's own.
    fn message(&mut self, event: &Event) -> Option<Message> {
        let found = event.kv()?;
        let key = self.keys.iter_mut().find(|(name, _)| name.as_bytes() == found.key());
        let (_, next) = key?;
        *next = found.mod_revision() + 1;
        let text = found.value_str().ok()?;
        let (sender, text) = text.split_once(' ')?;
        (sender != self.session.to_string()).then(|| Message::decode(text))?
    }
}
