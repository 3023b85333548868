//! The thread of a context that is awake: it hears messages, and looks at the beacons that the context watches.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    Ear,
    beacon::{self, Beacon, Sight},
    sentry,
};
use crate::executor::WeakShared;
use crate::machine::{Message, SessionId};
use crate::signal::{Inbox, Notice};

/// Between two looks at the beacons that no sentry stands at. Such a look costs about a microsecond each.
const LOOK: Duration = Duration::from_millis(40);
/// Between two looks at the own beacon.
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
    watches: Vec<(u64, Watch)>,
}

/// How a beacon is watched.
#[derive(Debug)]
enum Watch {
    /// A sentry at this path tells.
    Guarded(PathBuf),
    /// It is looked at.
    Looked(Sight),
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

    pub(super) fn watch(self: &Arc<Self>, watch: u64, session: SessionId) {
        let path = beacon::path(&self.directory, session);
        // Noted first: a sentry may tell at once.
        self.held().watches.push((watch, Watch::Guarded(path.clone())));
        if !sentry::post(&path, Arc::downgrade(self), watch) {
            self.relieved(watch, false);
        }
    }

    /// A sentry is there no more: the beacon fell, or must be looked at.
    pub(super) fn relieved(&self, watch: u64, fell: bool) {
        let mut held = self.held();
        let Some(at) = held.watches.iter().position(|(known, _)| *known == watch) else { return };
        if fell {
            held.watches.swap_remove(at);
        } else if let Watch::Guarded(path) = &held.watches[at].1 {
            held.watches[at].1 = Watch::Looked(Sight::new(path));
        }
        drop(held);
        if fell {
            self.notice(Notice::BeaconGone { watch });
        } else {
            self.ear.wake();
        }
    }

    pub(super) fn unwatch(&self, watch: u64) {
        self.held().watches.retain(|(known, _)| *known != watch);
    }

    pub(super) fn listen(&self) {
        while !self.over.load(Ordering::SeqCst) && self.inbox.strong_count() > 0 {
            let idle = !self.held().watches.iter().any(|(_, watch)| matches!(watch, Watch::Looked(_)));
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
        held.watches.retain_mut(|(number, watch)| {
            let is_gone = match watch {
                Watch::Looked(sight) => sight.is_gone(),
                Watch::Guarded(_) => false,
            };
            if is_gone {
                gone.push(*number);
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
