//! The thread of a context that is awake: it hears messages, and looks at the beacons that the context watches.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    Ear, Names,
    beacon::{self, Beacon, Sight},
    ear, sentry,
    sweep::sweep,
};
use crate::executor::{Mutex, WeakShared};
use crate::machine::{Message, SessionId};
use crate::signal::{Inbox, Notice};

/// Between two looks at the beacons that no sentry stands at. Such a look costs about a microsecond each.
const LOOK: Duration = Duration::from_millis(40);
/// Between two looks at the own beacon and socket.
pub(super) const IDLE: Duration = Duration::from_secs(1);
/// A context that is awake for this long sweeps.
const SWEEP_AFTER: Duration = Duration::from_secs(10);
/// More messages for all do not wait at once. Each has the directory open, and a lost one costs time only.
const MOST_BROADCASTS: usize = 16;

#[derive(Debug)]
pub(super) struct Listener {
    directory: PathBuf,
    session: SessionId,
    inbox: WeakShared<dyn Inbox>,
    over: AtomicBool,
    /// Locked while files are made again. Once it is over none is, for the user may delete the directory then.
    keeping: Mutex<()>,
    held: Mutex<Held>,
    ear: Ear,
}

#[derive(Debug)]
struct Held {
    beacon: Option<Beacon>,
    /// By number.
    watches: Vec<(u64, Watch)>,
    /// Messages for those whose files have these names.
    broadcasts: Vec<(Names, String)>,
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
        let held = Mutex::new(Held { beacon, watches: Vec::new(), broadcasts: Vec::new() });
        Self {
            directory: directory.to_owned(),
            session,
            inbox,
            over: AtomicBool::new(false),
            keeping: Mutex::new(()),
            held,
            ear,
        }
    }

    /// Has the file of the beacon stay when the beacon is lowered.
    pub(super) fn leave_file(&self) {
        if let Some(beacon) = &mut self.held.lock().beacon {
            beacon.leave_file();
        }
    }

    /// Lowers the beacon, ends the watches and the thread.
    pub(super) fn end(self: &Arc<Self>) {
        let keeping = self.keeping.lock();
        self.over.store(true, Ordering::SeqCst);
        drop(keeping);
        let mut held = self.held.lock();
        let (beacon, watches) = (held.beacon.take(), core::mem::take(&mut held.watches));
        drop(held);
        drop(beacon);
        watches.into_iter().for_each(|(number, watch)| self.dismiss(number, &watch));
        self.ear.wake();
    }

    pub(super) fn watch(self: &Arc<Self>, watch: u64, session: SessionId) {
        let path = beacon::path(&self.directory, session);
        // Noted first: a sentry may tell at once.
        self.held.lock().watches.push((watch, Watch::Guarded(path.clone())));
        if !sentry::post(&path, Arc::downgrade(self), watch) {
            self.relieved(watch, false);
        }
    }

    /// A sentry is there no more: the beacon fell, or must be looked at.
    pub(super) fn relieved(&self, watch: u64, fell: bool) {
        let mut held = self.held.lock();
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

    pub(super) fn unwatch(self: &Arc<Self>, watch: u64) {
        let mut held = self.held.lock();
        let Some(at) = held.watches.iter().position(|(known, _)| *known == watch) else { return };
        let (_, ended) = held.watches.swap_remove(at);
        drop(held);
        self.dismiss(watch, &ended);
    }

    /// Dismisses the sentry, which may still stand for days.
    fn dismiss(self: &Arc<Self>, number: u64, watch: &Watch) {
        if let Watch::Guarded(path) = watch {
            sentry::dismiss(path, &Arc::downgrade(self), number);
        }
    }

    /// Has the thread send a message to all whose files have these names.
    pub(super) fn tell_all(&self, names: Names, text: String) {
        let mut held = self.held.lock();
        if held.broadcasts.len() < MOST_BROADCASTS {
            held.broadcasts.push((names, text));
        }
        drop(held);
        self.ear.wake();
    }

    /// Runs until the end.
    pub(super) fn listen(&self) {
        let (began, mut swept) = (clock(), false);
        while !self.over.load(Ordering::SeqCst) && self.inbox.strong_count() > 0 {
            let limit = if self.looks() { LOOK } else { IDLE };
            if let Some(message) = self.ear.hear(limit).as_deref().and_then(Message::decode) {
                self.notice(Notice::Message(message));
            }
            self.send_broadcasts();
            self.keep();
            self.look(clock());
            if !swept && clock().duration_since(began) >= SWEEP_AFTER {
                swept = self.sweep_beside();
            }
        }
        self.send_broadcasts();
    }

    /// Whether there is a beacon to look at.
    pub(super) fn looks(&self) -> bool {
        self.held.lock().watches.iter().any(|(_, watch)| matches!(watch, Watch::Looked(_)))
    }

    /// Whether there was something to hear, or a reason to wake.
    #[cfg(all(test, unix))]
    pub(super) fn hears(&self, limit: Duration) -> bool {
        self.ear.hear(limit).is_some()
    }

    fn send_broadcasts(&self) {
        let broadcasts = core::mem::take(&mut self.held.lock().broadcasts);
        for (names, text) in broadcasts {
            ear::tell_all(&self.directory, names, self.session, &text, usize::MAX);
        }
    }

    /// Sweeps on another thread: among thousands of files that takes long, and this one must hear and look meanwhile.
    fn sweep_beside(&self) -> bool {
        let directory = self.directory.clone();
        thread::Builder::new().name("leasehold sweep".into()).spawn(move || sweep(&directory)).is_ok()
    }

    /// Makes the own files again if somebody deleted them, and tells if the beacon cannot be raised again.
    pub(super) fn keep(&self) {
        let keeping = self.keeping.lock();
        if self.over.load(Ordering::SeqCst) {
            return;
        }
        self.ear.keep_open();
        let is_lost = self.held.lock().beacon.as_mut().is_some_and(|beacon| {
            beacon.mark();
            beacon.gets_lost()
        });
        drop(keeping);
        if is_lost {
            self.notice(Notice::BeaconLost(self.session));
        }
    }

    /// Reports the beacons that are gone, each once.
    pub(super) fn look(&self, now: Instant) {
        let mut gone = Vec::new();
        let mut held = self.held.lock();
        held.watches.retain_mut(|(number, watch)| {
            let is_gone = match watch {
                Watch::Looked(sight) => sight.is_gone(now),
                Watch::Guarded(_) => false,
            };
            if is_gone {
                gone.push(*number);
            }
            !is_gone
        });
        drop(held);
        gone.into_iter().for_each(|watch| self.notice(Notice::BeaconGone { watch }));
    }

    fn notice(&self, notice: Notice) {
        if let Some(inbox) = self.inbox.upgrade().filter(|_| !self.over.load(Ordering::SeqCst)) {
            inbox.notice(notice);
        }
    }
}

/// Only for how long a file has been missing, and when to sweep. Decisions about leases are given the time.
#[expect(clippy::disallowed_methods, reason = "a thread that waits measures for itself how long")]
pub(super) fn clock() -> Instant {
    Instant::now()
}
