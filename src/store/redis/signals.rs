//! Messages between contexts by PUBLISH and SUBSCRIBE.

use core::{fmt, pin::pin, time::Duration};
use std::{
    format,
    string::{String, ToString},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::{
    StreamExt,
    channel::mpsc::{Sender, channel},
    future::{OptionFuture, join, select},
};
use redis::{RedisError, Value, aio::PubSub, cmd};
use tokio::{runtime::Handle, time};

use super::{
    attempt::Place,
    compare::Enclosed,
    failure::Stage,
    lua::LONGEST_ENCLOSED,
    memory::Text,
    outbox::{Letter, send_all},
    setup,
};
use crate::executor::{Mutex, WeakShared, timers_run_here};
use crate::machine::{Body, Message, Promotion, Reply, Row, SessionId};
use crate::signal::{Beacons, Inbox, Notice, Signals};
use crate::store::{backoff::Backoff, inside::io_runs_here};

/// How many messages wait for a slow server. Further ones are dropped: messages are hints.
const WAITING: usize = 1_024;
/// A message that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(2);
/// The shortest pause before a broken connection is opened again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
/// A connection that receives nothing for this long is checked with a ping.
const QUIET: Duration = Duration::from_secs(15);

/// The signals of one context. Each has a connection of its own to hear by, and sends by that of its store.
pub(super) struct RedisSignals {
    place: Arc<Place>,
    /// For calls that come from no runtime with timers and I/O: the runtime that the manager was made in or, if that one lacks them too,
    /// the runtime of the store.
    home: Handle,
    awake: Mutex<Option<Awake>>,
}

/// What stands between [`wake`](Signals::wake) and [`rest`](Signals::rest).
struct Awake {
    session: SessionId,
    /// When it goes, the task sends what waits, and ends.
    outbox: Sender<Letter>,
    resting: Arc<AtomicBool>,
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.resting.store(true, Ordering::SeqCst);
    }
}

impl RedisSignals {
    pub(super) fn new(place: Arc<Place>) -> Self {
        let home = here_unless(&place.runtime).unwrap_or_else(|| place.runtime.clone());
        Self { place, home, awake: Mutex::default() }
    }
}

impl Signals for RedisSignals {
    fn beacons(&self) -> Beacons {
        // A connection may break while its context lives: its end proves nothing.
        Beacons::None
    }

    fn wake(&self, session: SessionId, _beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool {
        let runtime = here_unless(&self.home).unwrap_or_else(|| self.home.clone());
        let (outbox, waiting) = channel(WAITING);
        let resting = Arc::new(AtomicBool::new(false));
        let ear = Ear { place: Arc::clone(&self.place), session, inbox, resting: Arc::clone(&resting) };
        self.place.listeners.join(WeakShared::clone(&ear.inbox), Arc::clone(&resting));
        let place = Arc::clone(&self.place);
        runtime.spawn(async move {
            let (hear, send) = (pin!(ear.hear()), pin!(send_all(&place, waiting)));
            select(hear, send).await;
        });
        let earlier = self.awake.lock().replace(Awake { session, outbox, resting });
        drop(earlier);
        false
    }

    fn rest(&self) {
        let awake = self.awake.lock().take();
        drop(awake);
    }

    fn send(&self, message: &Message) {
        let mut awake = self.awake.lock();
        let Some(Awake { session, outbox, .. }) = &mut *awake else { return };
        let recipient = message.body.recipient();
        if recipient != Some(*session) {
            // Who cannot be told now looks into the store.
            let text = format!("{session} {}{}", message.encode(), enclosed(&self.place, *session, message));
            // A store that closes does not wait for messages that nobody needs once their sender has closed.
            let under_way = message.body.outlives_its_sender().then(|| self.place.under_way.one_more());
            let channel = channel_of(&self.place, recipient);
            let _ = outbox.try_send(Letter::new(channel, text, recipient.is_some(), under_way));
        }
    }

    fn watch(&self, _watch: u64, _session: SessionId) {}

    fn unwatch(&self, _watch: u64) {}
}

/// The runtime that this is called in, unless it is `known` or has no timers or no I/O.
fn here_unless(known: &Handle) -> Option<Handle> {
    Handle::try_current().ok().filter(|here| here.id() != known.id() && timers_run_here() && io_runs_here())
}

/// The messages that go out with the transaction that grants the leases. Sent separately, they would cost one more round trip.
///
/// The record goes with the message. Otherwise the new holder's next transaction would begin with an outdated guess, and its refusal would
/// send the same text. In a cluster the record stays behind, because the cluster passes each message on to all its nodes.
pub(super) fn letters(place: &Place, session: SessionId, reply: &Reply) -> Vec<Enclosed> {
    let letter = |promotion: &Promotion| {
        let message = promotion.message(reply.store);
        let row = if place.link.is_cluster() { String::new() } else { record_of(&message) };
        let channel = channel_of(place, Some(promotion.holder));
        Enclosed { channel, text: format!("{session} {}", message.encode()), row }
    };
    reply.answers.iter().flat_map(|answer| &answer.promoted).map(letter).collect()
}

/// The rows that go with a message, a line for each. A waiter that tells a holder of itself has just written itself into the record. The
/// holder's release will rest on this record, and on the waiter's session.
fn enclosed(place: &Place, session: SessionId, message: &Message) -> String {
    if place.link.is_cluster() || !matches!(message.body, Body::Wanted { tries: false, .. }) {
        return String::new();
    }
    let rows = [record_of(message), Row::Session(session).to_string()].map(|name| place.memory.guess(&name));
    let [Some(record), Some(own)] = rows.map(|row| row.map(|row| row.text())) else { return String::new() };
    if record.len() > LONGEST_ENCLOSED { String::new() } else { format!("\n{record}\n{own}") }
}

/// The name of the record that a message is about.
fn record_of(message: &Message) -> String {
    Row::Record(message.key.clone()).to_string()
}

/// Notes which of these [`letters`] had a listener.
pub(super) fn note_heard(reply: &mut Reply, heard: Value) {
    let heard: Vec<u64> = redis::from_redis_value(heard).unwrap_or_default();
    reply.promotions_mut().zip(heard).for_each(|(promotion, listeners)| promotion.told = listeners > 0);
}

/// The channel of one context, or that of all. Redis' channels do not belong to a database, so they name it.
fn channel_of(place: &Place, recipient: Option<SessionId>) -> String {
    let (prefix, database) = (&place.prefix, place.link.database());
    recipient
        .map_or_else(|| format!("{{{prefix}}}:{database}:all"), |session| format!("{{{prefix}}}:{database}:{session}"))
}

/// What a context hears by.
struct Ear {
    place: Arc<Place>,
    session: SessionId,
    inbox: WeakShared<dyn Inbox>,
    resting: Arc<AtomicBool>,
}

impl Ear {
    /// Receives messages until the context is gone, and subscribes again whenever the connection broke. Messages sent meanwhile are lost,
    /// so the context then reads the store.
    async fn hear(&self) {
        let (mut backoff, mut again) = (Backoff::new(SHORTEST_PAUSE), false);
        while self.inbox.strong_count() > 0 && self.place.link.check().is_ok() {
            if let Some((connection, address)) = self.subscribe(again).await {
                let since = time::Instant::now();
                let hears = async {
                    // Another server may be announced, although this one still answers.
                    select(pin!(self.hear_by(connection, &address)), pin!(self.place.link.until_replaced())).await;
                    since.elapsed()
                };
                // The store's connection may be silent. Messages do not wait for it.
                let (stood, _) = join(hears, OptionFuture::from(again.then(|| self.tell_of_gap()))).await;
                backoff.stood(stood);
            }
            again = true;
            time::sleep(backoff.next()).await;
        }
        // Whoever has closed the store, or dropped the context, may still have something to say.
        futures::future::pending::<()>().await;
    }

    async fn subscribe(&self, again: bool) -> Option<(PubSub, String)> {
        let subscribe = async {
            let (mut connection, address) = self.place.link.listen(again).await?;
            let channels = [channel_of(&self.place, None), channel_of(&self.place, Some(self.session))];
            let subscribed = connection.subscribe(&channels).await;
            subscribed.map_err(|refusal| self.warn_of(&refusal)).ok()?;
            Some((connection, address))
        };
        time::timeout(PATIENCE, subscribe).await.ok().flatten()
    }

    /// Notifies the context that messages may have been lost. Whatever cut the connection for messages may also have cut the store's. If
    /// the store found that out only at its next request, the context would be notified again, and would ask about everything twice.
    async fn tell_of_gap(&self) {
        let Place { link, listeners, .. } = &*self.place;
        let ping = async || link.send(&cmd("PING"), Stage::Reading).await.is_ok();
        // The first ping may do no more than find out that the connection is cut.
        let answered = time::timeout(PATIENCE, async { ping().await || ping().await }).await;
        if !(answered == Ok(true) && listeners.heed(link.opened())) {
            self.tell(Notice::Reconnected);
        }
    }

    fn warn_of(&self, refusal: &RedisError) {
        if refusal.code() == Some("NOPERM") && !self.place.has_warned.swap(true, Ordering::Relaxed) {
            setup::warn_of_deafness(&self.place.link);
        }
    }

    async fn hear_by(&self, connection: PubSub, address: &str) {
        let (mut sink, mut messages) = connection.split();
        loop {
            match time::timeout(QUIET, messages.next()).await {
                Ok(Some(message)) => self.take(&String::from_utf8_lossy(message.get_payload_bytes())),
                Ok(None) => return,
                Err(_) => {
                    if self.is_replaced(address).await {
                        return;
                    }
                    let answer = time::timeout(PATIENCE, sink.ping::<Value>()).await;
                    if !matches!(answer, Ok(Ok(_))) {
                        return;
                    }
                }
            }
        }
    }

    /// Whether another server keeps the rows now. The one at this address may still answer, but gets no more messages.
    async fn is_replaced(&self, address: &str) -> bool {
        let link = &self.place.link;
        if !link.has_successors() {
            return false;
        }
        let mut look = cmd("HGET");
        look.arg(&self.place.rows).arg(format!("{}", Row::Store));
        let _ = time::timeout(PATIENCE, link.send(&look, Stage::Reading)).await;
        *link.address() != *address
    }

    fn take(&self, said: &str) {
        let Some((sender, text)) = said.split_once(' ') else { return };
        if self.resting.load(Ordering::SeqCst) || sender == format!("{}", self.session) {
            return;
        }
        let mut lines = text.split('\n');
        if let Some(message) = lines.next().and_then(Message::decode) {
            let sender = SessionId::from_digits(sender).map(|sender| Row::Session(sender).to_string());
            let names = [Some(record_of(&message)), sender];
            for (name, row) in names.into_iter().flatten().zip(lines) {
                // As with any other guess, the server compares this text before it writes anything that rests on it.
                self.place.memory.learn(&name, Some(Text::new(row.as_bytes().to_vec())));
            }
            self.tell(Notice::Message(message));
        }
    }

    fn tell(&self, notice: Notice) {
        if let Some(inbox) = self.inbox.upgrade().filter(|_| !self.resting.load(Ordering::SeqCst)) {
            inbox.notice(notice);
        }
    }
}

impl fmt::Debug for RedisSignals {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RedisSignals({}, {{{}}})", self.place.link.address(), self.place.prefix)
    }
}
