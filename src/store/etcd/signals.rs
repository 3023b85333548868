//! Messages between contexts: a key for each session and one for all, which whoever is awake watches.
//!
//! The records themselves are not watched. It would save the sender a write; but every context would then be told of every change of
//! every key, and would have to know which of them it waits for.

mod ear;
mod mouth;

pub(super) use mouth::Bin;

use core::convert::Infallible;
use std::{
    string::String,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use futures::channel::mpsc::{Sender, channel};
use tokio::{runtime::Handle, task::AbortHandle};

use super::{rows::Names, servers::Servers};
use crate::executor::{Mutex, WeakShared};
use crate::machine::{Message, SessionId};
use crate::signal::{Beacons, Inbox, Notice, Signals};
use crate::store::under_way::UnderWay;

/// Messages that wait to be sent. Further ones are lost.
const WAITING: usize = 1_024;

/// Messages by way of etcd. There are no beacons: a connection that breaks proves no death.
#[derive(Debug)]
pub(super) struct EtcdSignals {
    post: Post,
    runtime: Handle,
    awake: Mutex<Option<Awake>>,
}

/// Where messages go.
#[derive(Clone)]
struct Post {
    servers: Arc<Servers>,
    names: Names,
    bin: Bin,
    under_way: UnderWay,
}

impl core::fmt::Debug for Post {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_tuple("Post").field(&self.names.prefix).finish()
    }
}

/// A message on its way, and to whom.
#[derive(Debug)]
struct Letter {
    to: Option<SessionId>,
    text: String,
    /// Dropped together with the letter.
    _under_way: Sender<Infallible>,
}

/// What stands between [`wake`](Signals::wake) and [`rest`](Signals::rest).
#[derive(Debug)]
struct Awake {
    session: SessionId,
    hearing: Hearing,
    listening: AbortHandle,
    /// Once it is dropped, its task sends what waits, and ends.
    outbox: Sender<Letter>,
}

/// Who is told, as long as the context is awake.
#[derive(Clone)]
struct Hearing {
    inbox: WeakShared<dyn Inbox>,
    over: Arc<AtomicBool>,
}

impl core::fmt::Debug for Hearing {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_tuple("Hearing").field(&self.over).finish()
    }
}

impl Hearing {
    fn is_over(&self) -> bool {
        self.over.load(SeqCst) || self.inbox.strong_count() == 0
    }

    fn tell(&self, notice: Notice) {
        if let Some(inbox) = self.inbox.upgrade().filter(|_| !self.over.load(SeqCst)) {
            inbox.notice(notice);
        }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.hearing.over.store(true, SeqCst);
        self.listening.abort();
    }
}

impl EtcdSignals {
    pub(super) fn new(servers: Arc<Servers>, names: Names, bin: Bin, under_way: UnderWay, runtime: Handle) -> Self {
        Self { post: Post { servers, names, bin, under_way }, runtime, awake: Mutex::default() }
    }
}

impl Signals for EtcdSignals {
    fn beacons(&self) -> Beacons {
        Beacons::None
    }

    fn wake(&self, session: SessionId, _beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool {
        self.rest();
        let hearing = Hearing { inbox, over: Arc::default() };
        // Nobody can have a message for this session from before this revision.
        let since = self.post.servers.revision() + 1;
        let listening = self.runtime.spawn(ear::listen(self.post.clone(), session, hearing.clone(), since));
        let (outbox, letters) = channel(WAITING);
        self.runtime.spawn(mouth::send(self.post.clone(), session, letters));
        *self.awake.lock() = Some(Awake { session, hearing, listening: listening.abort_handle(), outbox });
        false
    }

    fn rest(&self) {
        let awake = self.awake.lock().take();
        drop(awake);
    }

    fn send(&self, message: &Message) {
        if let Some(awake) = &mut *self.awake.lock() {
            let to = message.body.recipient();
            if to != Some(awake.session) {
                // It fails if too many wait already.
                let letter = Letter { to, text: message.encode(), _under_way: self.post.under_way.one_more() };
                drop(awake.outbox.try_send(letter));
            }
        }
    }

    fn watch(&self, _watch: u64, _session: SessionId) {}

    fn unwatch(&self, _watch: u64) {}
}

impl Drop for EtcdSignals {
    fn drop(&mut self) {
        self.rest();
    }
}
