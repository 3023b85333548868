//! The thread of a context that is awake: it hears messages, and looks at the beacons that the context watches.

use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    Ear,
    beacon::{Beacon, Sight},
};
use crate::executor::WeakShared;
use crate::machine::{Message, SessionId};
use crate::signal::{Inbox, Notice};

/// Between two looks at the beacons that are watched. Such a look costs about a microsecond each.
const LOOK: Duration = Duration::from_millis(40);
/// Between two looks at the own beacon, while none is watched.
const IDLE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Listener {
    directory: PathBuf,
    session: SessionId,
    inbox: WeakShared<dyn Inbox>,
    over: AtomicBool,
    held: Mutex<Held>,
    ear: Ear,
}

#[derive(Debug)]
struct Held {
    beacon: Option<Beacon>,
    /// By number.
    watches: Vec<(u64, Sight)>,
}

impl Listener {
    pub(super) fn new(
        directory: &Path,
        session: SessionId,
        ear: Ear,
        beacon: Option<Beacon>,
        inbox: WeakShared<dyn Inbox>,
    ) -> Self {
        let held = Mutex::new(Held { beacon, watches: Vec::new() });
        Self { directory: directory.to_owned(), session, inbox, over: AtomicBool::new(false), held, ear }
    }

    /// Nothing outside is called under the lock, so a poisoned one guards a sound value.
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lowers the beacon, ends the watches and the thread.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        let mut held = self.held();
        let (beacon, watches) = (held.beacon.take(), core::mem::take(&mut held.watches));
        drop(held);
        drop((beacon, watches));
        self.ear.wake();
    }

    pub(super) fn watch(&self, watch: u64, session: SessionId) {
        self.held().watches.push((watch, Sight::new(&self.directory, session)));
        self.ear.wake();
    }

    pub(super) fn unwatch(&self, watch: u64) {
        self.held().watches.retain(|(known, _)| *known != watch);
    }

    pub(super) fn listen(&self) {
        while !self.over.load(Ordering::SeqCst) && self.inbox.strong_count() > 0 {
            let idle = self.held().watches.is_empty();
            if let Some(message) = self.ear.hear(if idle { IDLE } else { LOOK }).as_deref().and_then(Message::decode) {
                self.notice(Notice::Message(message));
            }
            self.look();
        }
    }

    /// Tells of the beacons that are gone, each once; and of the own one, if somebody took it away.
    fn look(&self) {
        let mut gone = Vec::new();
        let mut held = self.held();
        held.watches.retain_mut(|(watch, sight)| {
            let is_gone = sight.is_gone();
            if is_gone {
                gone.push(*watch);
            }
            !is_gone
        });
        let lost = held.beacon.take_if(|beacon| !beacon.stands());
        drop(held);
        if lost.is_some() {
            self.notice(Notice::BeaconLost(self.session));
        }
        gone.into_iter().for_each(|watch| self.notice(Notice::BeaconGone { watch }));
    }

    fn notice(&self, notice: Notice) {
        if let Some(inbox) = self.inbox.upgrade().filter(|_| !self.over.load(Ordering::SeqCst)) {
            inbox.notice(notice);
        }
    }
}
