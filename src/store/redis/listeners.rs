//! The contexts that are notified when the store has reconnected.

use core::fmt;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    vec::Vec,
};

use crate::executor::{Mutex, WeakShared};
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
        let mut all = self.all.lock();
        all.retain(Listener::hears);
        all.push(Listener { inbox, resting });
    }

    /// Notes that the store got an answer while this was its latest connection. If that connection is new, notifies all who are awake, and
    /// returns true.
    pub(super) fn heed(&self, connection: u64) -> bool {
        if self.told.fetch_max(connection, SeqCst) >= connection {
            return false;
        }
        let all = self.all.lock();
        let inboxes: Vec<_> = all.iter().filter(|one| one.hears()).filter_map(|one| one.inbox.upgrade()).collect();
        drop(all);
        inboxes.iter().for_each(|inbox| inbox.notice(Notice::Reconnected));
        true
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Listeners").field(&self.told).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Told(AtomicU64);

    impl Inbox for Told {
        fn notice(&self, notice: Notice) {
            assert_eq!(notice, Notice::Reconnected);
            self.0.fetch_add(1, SeqCst);
        }
    }

    impl Told {
        fn join(self: &Arc<Self>, listeners: &Listeners) -> Arc<AtomicBool> {
            let (inbox, resting): (Arc<dyn Inbox>, _) = (self.clone(), Arc::default());
            listeners.join(Arc::downgrade(&inbox), Arc::clone(&resting));
            resting
        }

        fn times(&self) -> u64 {
            self.0.load(SeqCst)
        }
    }

    #[test]
    fn whoever_is_awake_is_told_once_of_each_new_connection() {
        let listeners = Listeners::default();
        let (one, other) = (Arc::new(Told::default()), Arc::new(Told::default()));
        let _one = one.join(&listeners);
        let resting = other.join(&listeners);
        for (connection, times) in [(1, [1, 1]), (1, [1, 1]), (2, [2, 2]), (1, [2, 2]), (2, [2, 2]), (4, [3, 3])] {
            listeners.heed(connection);
            assert_eq!([one.times(), other.times()], times, "connection {connection}");
        }
        resting.store(true, SeqCst);
        listeners.heed(5);
        assert_eq!([one.times(), other.times()], [4, 3], "whoever rests is not told");
    }

    /// A store may outlive thousands of contexts.
    #[test]
    fn those_who_rest_or_are_gone_are_forgotten() {
        let listeners = Listeners::default();
        let stays = Arc::new(Told::default());
        let _stays = stays.join(&listeners);
        for round in 0..10 {
            let goes = Arc::new(Told::default());
            let resting = goes.join(&listeners);
            resting.store(round % 2 == 0, SeqCst);
        }
        let _again = stays.join(&listeners);
        assert_eq!(listeners.all.lock().len(), 2);
        listeners.heed(1);
        assert_eq!(stays.times(), 2);
    }
}
