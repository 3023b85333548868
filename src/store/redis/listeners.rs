//! The contexts that are notified when the store has reconnected.

use core::fmt;
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    vec::Vec,
};

use crate::executor::WeakShared;
use crate::signal::{Inbox, Notice};

/// A server that took over or was restarted may have lost a grant and kept the session that holds it. No heartbeat would show that, so
/// all contexts are notified, and check their grants.
#[derive(Default)]
pub(super) struct Listeners {
    /// The number of the latest connection that they were notified of.
    told: AtomicU64,
    all: Mutex<Vec<Listener>>,
}

/// A context, until it rests.
struct Listener {
    inbox: WeakShared<dyn Inbox>,
    resting: Arc<AtomicBool>,
}

impl Listener {
    fn hears(&self) -> bool {
        !self.resting.load(SeqCst) && self.inbox.strong_count() > 0
    }
}

impl Listeners {
    pub(super) fn join(&self, inbox: WeakShared<dyn Inbox>, resting: Arc<AtomicBool>) {
        // Nothing outside is called under the lock, so a poisoned one guards sound listeners.
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(Listener::hears);
        all.push(Listener { inbox, resting });
    }

    /// The store was answered while this was its latest connection.
    pub(super) fn heed(&self, connection: u64) {
        if self.told.fetch_max(connection, SeqCst) >= connection {
            return;
        }
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let inboxes: Vec<_> = all.iter().filter(|one| one.hears()).filter_map(|one| one.inbox.upgrade()).collect();
        drop(all);
        inboxes.iter().for_each(|inbox| inbox.notice(Notice::Reconnected));
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Listeners").field(&self.told).finish()
    }
}
