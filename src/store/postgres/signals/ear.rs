//! The task of a session's signals: it hears, speaks, and looks at the beacons that are watched.

use core::{pin::pin, time::Duration};
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::{Either, select};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    super::{
        Place,
        carrier::{Exchange, Round},
        standing::Stands,
    },
    alarm::Alarm,
    hearing,
    link::{AWAITED, Event, Link},
    outbox::Outbox,
    watches::Watches,
};
use crate::executor::{Shared, WeakShared};
use crate::machine::{Message, SessionId};
use crate::signal::{Inbox, Notice};
use crate::store::backoff::Backoff;

/// The shortest pause between two attempts to connect.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// Many contexts doubt a server at once, and each tells all others. One question answers all of them.
const OFTEN_ENOUGH: Duration = Duration::from_secs(1);
/// A question on a connection that takes longer shows that it is cut.
const LIMIT: Duration = Duration::from_secs(5);

/// Of the own session.
enum Beacon {
    /// It is to be raised.
    Wanted,
    Stands {
        _noted: Stands,
    },
    /// None is wanted, or it is lost for ever.
    None,
}

pub(super) struct Ear {
    exchange: Shared<dyn Exchange>,
    place: Shared<Place>,
    session: SessionId,
    inbox: WeakShared<dyn Inbox>,
    /// The session rests, and hears nothing from then on.
    pub(super) over: Shared<AtomicBool>,
    beacon: Beacon,
    /// Whether it has heard the notification that tries out its connection.
    hears: bool,
    pub(super) watches: Shared<Watches>,
    outbox: Outbox,
}

/// The session rests: the task ends.
struct Rests;

/// The next event; `None` if the alarm goes off before.
async fn heard_before(alarm: impl Future<Output = ()>, heard: &mut UnboundedReceiver<Event>) -> Option<Option<Event>> {
    match select(pin!(heard.recv()), pin!(alarm)).await {
        Either::Left((event, _)) => Some(event),
        Either::Right(_) => None,
    }
}

/// Whether the server answers on this connection.
async fn answers(link: &Link) -> bool {
    timeout(LIMIT, link.line().carry(Round::one("SELECT"))).await.is_ok_and(|answer| answer.is_ok())
}

impl Ear {
    pub(super) fn new(
        exchange: Shared<dyn Exchange>,
        place: Shared<Place>,
        session: SessionId,
        beacon: bool,
        inbox: WeakShared<dyn Inbox>,
    ) -> Self {
        let beacon = if beacon { Beacon::Wanted } else { Beacon::None };
        let (over, watches) = (Shared::default(), Shared::new(Watches::new()));
        Self { exchange, place, session, inbox, over, beacon, hears: false, watches, outbox: Outbox::default() }
    }

    /// Until the session rests, and what it said last was sent.
    pub(super) async fn live(mut self, events: UnboundedSender<Event>, mut heard: UnboundedReceiver<Event>) {
        self.listen(events, &mut heard).await;
        self.outbox.finish().await;
    }

    async fn listen(&mut self, events: UnboundedSender<Event>, heard: &mut UnboundedReceiver<Event>) {
        self.place.ears.add(events.clone());
        let (mut backoff, woke) = (Backoff::new(SHORTEST_PAUSE), Instant::now());
        for number in 1.. {
            let connected = match self.connect(number, &events, heard).await {
                Ok(link) => link,
                Err(Rests) => return,
            };
            if let Some(link) = connected {
                let since = Instant::now();
                self.watches.connected();
                if number > 1 || woke.elapsed() > AWAITED {
                    // A message may be lost. A standby that took over may also lack the latest writes, if replication is asynchronous.
                    self.notice(Notice::Reconnected);
                }
                if let Err(Rests) = self.serve(&link, &events, heard).await {
                    return;
                }
                backoff.stood(since.elapsed());
            }
            self.lose_beacon();
            if let Err(Rests) = self.meanwhile(sleep(backoff.next()), heard).await {
                return;
            }
        }
    }

    /// Does what needs no connection, until something is done.
    async fn meanwhile<T>(
        &mut self,
        work: impl Future<Output = T>,
        heard: &mut UnboundedReceiver<Event>,
    ) -> Result<T, Rests> {
        let mut work = pin!(work);
        loop {
            match select(work.as_mut(), pin!(heard.recv())).await {
                Either::Left((done, _)) => return Ok(done),
                Either::Right((event, _)) => self.take(event, None)?,
            };
        }
    }

    async fn connect(
        &mut self,
        number: u64,
        events: &UnboundedSender<Event>,
        heard: &mut UnboundedReceiver<Event>,
    ) -> Result<Option<Link>, Rests> {
        let (exchange, place) = (self.exchange.clone(), self.place.clone());
        let mut opening =
            pin!(timeout(LIMIT, Link::open(&*exchange, &place.names, self.session, number, events.clone())));
        match self.meanwhile(opening.as_mut(), heard).await {
            Ok(opened) => Ok(opened.ok().and_then(Result::ok)),
            Err(Rests) => {
                // A context that was there for one short lease has somebody to tell of its end.
                if self.outbox.waits()
                    && let Ok(Ok(link)) = opening.await
                {
                    self.outbox.flush(&link);
                }
                Err(Rests)
            }
        }
    }

    /// Until the connection is cut.
    async fn serve(
        &mut self,
        link: &Link,
        events: &UnboundedSender<Event>,
        heard: &mut UnboundedReceiver<Event>,
    ) -> Result<(), Rests> {
        if matches!(self.beacon, Beacon::Wanted) {
            let raised = self.raise(link, heard).await;
            if !matches!(raised, Ok(true)) {
                // If the session rests now, this tells others of its end.
                self.outbox.flush(link);
                return raised.map(drop);
            }
        }
        self.outbox.flush(link);
        // They end with this connection.
        let mut errands = JoinSet::new();
        if !self.place.hearing.is_known() {
            errands.spawn(hearing::try_out(self.place.clone(), self.session, link.line()));
        }
        let (mut alarm, mut asked_at, mut is_to_ask) = (Alarm::new(), Instant::now(), false);
        loop {
            let event = match self.watches.next() {
                None => heard.recv().await,
                Some(moments) => {
                    alarm.set(moments);
                    match heard_before(alarm.goes_off(), heard).await {
                        Some(event) => event,
                        None if self.look(link).await => continue,
                        None => return Ok(()),
                    }
                }
            };
            if matches!(event, Some(Event::Cut { number }) if number == link.number) {
                return Ok(());
            }
            if let Some(Event::Doubt { at }) = event {
                if at > asked_at + OFTEN_ENOUGH {
                    (asked_at, is_to_ask) = (Instant::now(), false);
                    if !answers(link).await {
                        return Ok(());
                    }
                } else if at > asked_at && !core::mem::replace(&mut is_to_ask, true) {
                    // There may be no later doubt: the next transactions may go to another server.
                    let events = events.clone();
                    errands.spawn(async move {
                        sleep(OFTEN_ENOUGH * 2).await;
                        let _ = events.send(Event::Doubt { at: Instant::now() });
                    });
                }
            }
            self.take(event, Some(link))?;
        }
    }

    /// Tries out the connection, and raises the beacon if a notification arrives. Returns false if the connection is to be given up.
    /// Meanwhile nothing else is sent, because a pooler may happen to pass a notification on to a connection that is busy.
    async fn raise(&mut self, link: &Link, heard: &mut UnboundedReceiver<Event>) -> Result<bool, Rests> {
        let until = Instant::now() + hearing::PATIENCE;
        let trial = timeout(LIMIT, hearing::try_when_idle(self.place.clone(), self.session));
        if !matches!(self.meanwhile(trial, heard).await?, Ok(Ok(()))) {
            return Ok(false);
        }
        while !self.hears {
            let Some(event) = heard_before(sleep_until(until), heard).await else { break };
            self.take(event, None)?;
        }
        if !self.hears {
            self.place.hearing.is_deaf(&self.place.names);
            self.lose_beacon();
            // Its end may be among the events that were taken meanwhile.
            return Ok(answers(link).await);
        }
        let raised = timeout(LIMIT, link.raise(self.place.names.beacon(self.session))).await;
        let Ok(Ok(Some(run))) = raised else { return Ok(false) };
        self.beacon = Beacon::Stands { _noted: self.place.standing.note(self.session, run) };
        self.notice(Notice::BeaconStands(self.session));
        Ok(true)
    }

    /// Does what an event asks for.
    fn take(&mut self, event: Option<Event>, link: Option<&Link>) -> Result<(), Rests> {
        match event {
            None | Some(Event::Rest) => return Err(Rests),
            Some(Event::Heard { payload }) => self.hear(&payload),
            Some(Event::Send(letter)) => self.outbox.send(letter, link),
            // The watches changed, so the loop computes the next look anew. Or the end of an earlier connection arrived late.
            Some(Event::Watches | Event::Doubt { .. } | Event::Cut { .. }) => {}
        }
        Ok(())
    }

    /// The server sends to whoever listens, the sender too.
    fn hear(&mut self, payload: &str) {
        let Some((sender, text)) = payload.split_once(' ') else { return };
        if sender == self.session.to_string() {
            if text == hearing::TRIAL {
                self.hears = true;
                self.place.hearing.heard();
            }
        } else if let Some(message) = Message::decode(text) {
            self.place.neighbours.heard(&message);
            self.notice(Notice::Message(message));
        }
    }

    /// Looks at all watched beacons, and tells other contexts if this one has begun or stopped waiting. Returns false if the connection
    /// does not answer, or if a beacon is missing and the connection belongs to another session.
    async fn look(&self, link: &Link) -> bool {
        let Some(look) = self.watches.look() else { return true };
        let Ok(Ok(Some(mut sight))) = timeout(LIMIT, link.look(&look, self.place.names.waits(self.session))).await
        else {
            return false;
        };
        let missed = self.watches.missed(&look, &sight);
        if !missed.is_empty() {
            let asked = timeout(LIMIT, link.ask_elsewhere(&self.place.names, &missed)).await;
            let Ok(Ok(elsewhere)) = asked else { return false };
            sight.elsewhere = elsewhere;
        }
        for watch in self.watches.gone(&look, &sight) {
            self.notice(Notice::BeaconGone { watch });
        }
        true
    }

    fn lose_beacon(&mut self) {
        if !matches!(core::mem::replace(&mut self.beacon, Beacon::None), Beacon::None) {
            self.notice(Notice::BeaconLost(self.session));
        }
    }

    fn notice(&self, notice: Notice) {
        if let Some(inbox) = self.inbox.upgrade().filter(|_| !self.over.load(Ordering::SeqCst)) {
            inbox.notice(notice);
        }
    }
}
