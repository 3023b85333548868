//! Those who are measured beside each other, by their names in `benches/browser/contestants.mjs`.

use leasehold_browser_tests::Server;

/// One of them.
#[derive(Debug)]
pub(crate) struct Contestant {
    /// Its name in the page.
    pub(crate) name: &'static str,
    /// What the names of its figures begin with.
    pub(crate) prefix: &'static str,
    /// What it calls a turn that nobody contends for.
    pub(crate) turn: &'static str,
    /// How long it takes to see that a holder is dead.
    pub(crate) wake: Wake,
    /// How many turns each of the crowd takes; the slow ones take fewer.
    pub(crate) crowd: u32,
}

/// How a waiter learns that the holder is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// The browser tells it.
    Told,
    /// It polls, or the lock runs out: that takes seconds.
    Polls,
}

const ALWAYS: [Contestant; 7] = [
    contestant("leasehold", "", "cold_acquire_release", Wake::Told, 100),
    contestant("weblocks", "weblocks_", "request", Wake::Told, 100),
    contestant("idb_mutex", "idb_mutex_", "lock_unlock", Wake::Polls, 100),
    contestant("browser_tabs_lock", "browser_tabs_lock_", "acquire_release", Wake::Polls, 2),
    contestant("locks_polyfill", "locks_polyfill_", "request", Wake::Polls, 10),
    contestant("broadcast_channel", "broadcast_channel_", "election", Wake::Told, 10),
    contestant("broadcast_channel_messages", "broadcast_channel_messages_", "election", Wake::Polls, 0),
];

/// An old build of leasehold. Each of its figures is named after the new build's. It is in no crowd: there the two would not take turns,
/// and the one that comes later finds tabs that are warm.
const OLD: Contestant = contestant("old_leasehold", OLD_PREFIX, "cold_acquire_release", Wake::Told, 0);
pub(crate) const OLD_PREFIX: &str = "old_";

/// All who take part.
pub(crate) fn contestants() -> impl Iterator<Item = &'static Contestant> {
    ALWAYS.iter().chain(Server::old_package().map(|_| &OLD))
}

const fn contestant(
    name: &'static str,
    prefix: &'static str,
    turn: &'static str,
    wake: Wake,
    crowd: u32,
) -> Contestant {
    Contestant { name, prefix, turn, wake, crowd }
}

impl Contestant {
    /// The name of one of its figures.
    pub(crate) fn figure(&self, what: &str) -> String {
        [self.prefix, what].concat()
    }
}
