//! The beacons that a context watches: one look for all of them together.
//!
//! In a queue, each context watches the one before it. Only the holder's death is urgent, and each look is a query. So a context that
//! watches another one also takes an advisory lock, which says that it waits. A context looks seldom if those it watches wait and
//! its connection is older than `GRACE`, and rarely if it has also watched them for longer than `STILL`. It looks often if one of them does
//! not wait, such as the holder.

use core::time::Duration;
use std::{
    sync::{LazyLock, MutexGuard},
    vec::Vec,
};

use tokio::time::Instant;

use crate::executor::Mutex;
use crate::machine::SessionId;

/// The pause between two looks if a watched context does not wait, if nothing is watched any more, or if the connection is young.
const OFTEN: Duration = Duration::from_millis(50);
/// The pause between two looks of an older connection if all watched contexts wait.
const SELDOM: Duration = Duration::from_millis(500);
/// The same in a queue that has not moved for `STILL`. Nobody in it has been granted anything meanwhile, so hardly anybody will die as a
/// new holder before the next look.
const RARELY: Duration = Duration::from_secs(2);
/// A context that has watched the same ones for this long is in a queue that does not move.
const STILL: Duration = Duration::from_secs(10);
/// A cut ends the beacons of living contexts. These get this long to record the loss in the store.
const GRACE: Duration = Duration::from_secs(10);

/// Watches by number, with the advisory locks of each watched session, and when this connection last looked at them.
///
/// No connection outlives a restart of its server. So a beacon that a connection has seen was not lost in a restart. If the
/// connection never saw a beacon, its absence counts as a death only if the session's row names this run of the server, and the connection
/// is older than `GRACE`: a cut may have ended the beacon. The server's clock proves nothing: it may jump.
#[derive(Debug)]
pub(super) struct Watches(Mutex<Watched>);

#[derive(Debug)]
struct Watched {
    locks: Vec<Watch>,
    /// Watches that ended after the last look. A new heartbeat of the watched context ends a watch, and another one follows at once.
    ended: Vec<Watch>,
    /// When this connection looked last.
    looked: Option<Instant>,
    /// From this time on, an absent beacon proves that its context ended, even if this connection never saw it.
    proves_from: Instant,
    /// The beacons that this connection has seen, the latest one last. Entries outlive their watches: if the store does not accept that a
    /// context is dead, because it had sent a heartbeat just before, the same beacon is watched again.
    seen: Vec<i64>,
    /// Whether this connection has the lock that says that its context waits.
    says_waits: bool,
}

/// How many beacons are remembered.
const REMEMBERED: usize = 256;

#[derive(Debug)]
struct Watch {
    number: u64,
    locks: Locks,
    /// Whether the watched context waits itself, as far as this connection has seen.
    waits: bool,
    /// Since when the context has been watched, by this watch and the ones that it followed.
    since: Instant,
}

/// The advisory locks of a session that others look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Locks {
    pub(super) session: SessionId,
    /// The session holds it while it lives.
    pub(super) beacon: i64,
    /// The session holds it while it waits.
    pub(super) waits: i64,
}

/// What a look asks the server.
#[derive(Debug, Default)]
pub(super) struct Look {
    watches: Vec<(u64, Locks)>,
    /// `Some(true)`: say that this context waits. `Some(false)`: say that it no longer waits. `None`: others know already.
    pub(super) says_waits: Option<bool>,
}

impl Look {
    pub(super) fn locks(&self) -> Vec<i64> {
        self.watches.iter().flat_map(|(_, locks)| [locks.beacon, locks.waits]).collect()
    }

    pub(super) fn finds_all_beacons(&self, sight: &Sight) -> bool {
        self.watches.iter().all(|(_, locks)| sight.held.contains(&locks.beacon))
    }
}

/// What the server answers to a look.
#[derive(Debug, Default)]
pub(super) struct Sight {
    /// Which of the locks are held.
    pub(super) held: Vec<i64>,
    /// Sessions of which this server has no beacon because it [stood elsewhere](super::super::standing).
    pub(super) elsewhere: Vec<SessionId>,
    /// Whether the `waits` lock was taken or given up as the look asked. Taking it fails while another context is looking at it.
    pub(super) has_said: bool,
}

impl Watched {
    fn note_seen(&mut self, beacon: i64) {
        if self.seen.contains(&beacon) {
            return;
        }
        if self.seen.len() >= REMEMBERED {
            self.seen.remove(0);
        }
        self.seen.push(beacon);
    }

    /// On a young connection, only a beacon that was seen can be found gone. So the context looks often: if a watched waiter dies, the
    /// context moves on to the holder's beacon soon, and has seen that one before the holder dies, too.
    fn pause(&self, now: Instant) -> Duration {
        let all_wait = !self.locks.is_empty() && self.locks.iter().all(|watch| watch.waits);
        let is_still = self.locks.iter().all(|watch| now >= watch.since + STILL);
        match (all_wait && now >= self.proves_from, is_still) {
            (false, _) => OFTEN,
            (true, false) => SELDOM,
            (true, true) => RARELY,
        }
    }

    /// What to tell others about this context's waiting, as [`Look::says_waits`].
    fn says_waits(&self) -> Option<bool> {
        let waits = !self.locks.is_empty();
        (waits != self.says_waits).then_some(waits)
    }
}

/// All contexts of a process look at the same ticks: an idle machine takes much longer to wake up than to look.
static FIRST_TICK: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The first moment after `looked` that is a whole number of pauses from the first tick.
fn tick_after(looked: Instant, pause: Duration) -> Instant {
    let since_tick = looked.saturating_duration_since(*FIRST_TICK).as_nanos() % pause.as_nanos();
    // The rest is less than a pause, so it fits into a u64.
    looked + pause - Duration::from_nanos(u64::try_from(since_tick).unwrap_or_default())
}

impl Watches {
    pub(super) fn new() -> Self {
        let proves_from = Instant::now() + GRACE;
        let (locks, ended, seen) = (Vec::new(), Vec::new(), Vec::new());
        Self(Mutex::new(Watched { locks, ended, looked: None, proves_from, seen, says_waits: false }))
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.0.lock()
    }

    pub(super) fn add(&self, watch: u64, locks: Locks) {
        let mut watched = self.watched();
        let before = watched.ended.iter().find(|ended| ended.locks == locks);
        let (waits, since) = before.map_or_else(|| (false, Instant::now()), |ended| (ended.waits, ended.since));
        watched.locks.push(Watch { number: watch, locks, waits, since });
    }

    /// What is under way reports nothing any more.
    pub(super) fn remove(&self, watch: u64) {
        let Watched { locks, ended, .. } = &mut *self.watched();
        ended.extend(locks.extract_if(.., |known| known.number == watch));
    }

    /// When to look, if there is anything to do, and when to look again after that.
    pub(super) fn next(&self) -> Option<[Instant; 2]> {
        let (watched, now) = (self.watched(), Instant::now());
        let (has_task, pause) = (!watched.locks.is_empty() || watched.says_waits, watched.pause(now));
        let next = watched.looked.map_or(now, |looked| tick_after(looked, pause));
        has_task.then(|| [next, tick_after(next, pause)])
    }

    /// Notes a new connection, which has seen no beacon yet.
    pub(super) fn connected(&self) {
        let mut watched = self.watched();
        (watched.looked, watched.proves_from) = (None, Instant::now() + GRACE);
        watched.seen.clear();
        watched.ended.clear();
        watched.says_waits = false;
    }

    /// What to look at and what to say. `None` if there is nothing: the last watch may have ended meanwhile.
    pub(super) fn look(&self) -> Option<Look> {
        let watched = self.watched();
        let watches: Vec<_> = watched.locks.iter().map(|watch| (watch.number, watch.locks)).collect();
        let says_waits = watched.says_waits();
        (!watches.is_empty() || says_waits.is_some()).then_some(Look { watches, says_waits })
    }

    /// The sessions whose beacons are absent and were never seen by this connection, if it is older than `GRACE`. Their rows still have to
    /// be asked.
    pub(super) fn missed(&self, look: &Look, sight: &Sight) -> Vec<SessionId> {
        let watched = self.watched();
        if Instant::now() < watched.proves_from {
            return Vec::new();
        }
        let is_missed = |locks: &Locks| !sight.held.contains(&locks.beacon) && !watched.seen.contains(&locks.beacon);
        look.watches
            .iter()
            .map(|(_, locks)| locks)
            .filter(|locks| is_missed(locks))
            .map(|locks| locks.session)
            .collect()
    }

    /// Ends and returns those of these watches whose contexts have ended, because their beacons are gone.
    pub(super) fn gone(&self, look: &Look, sight: &Sight) -> Vec<u64> {
        let (mut watched, now) = (self.watched(), Instant::now());
        watched.looked = Some(now);
        watched.ended.clear();
        watched.says_waits = look.says_waits.filter(|_| sight.has_said).unwrap_or(watched.says_waits);
        let proves = now >= watched.proves_from;
        let is_held = |lock: i64| sight.held.contains(&lock);
        look.watches
            .iter()
            .filter(|(_, locks)| is_held(locks.beacon))
            .for_each(|(_, locks)| watched.note_seen(locks.beacon));
        let Watched { locks: watches, seen, .. } = &mut *watched;
        let is_gone = |watch: &mut Watch| {
            let Locks { session, beacon, waits } = watch.locks;
            if !look.watches.contains(&(watch.number, watch.locks)) {
                return false;
            }
            watch.waits = is_held(waits);
            let is_missed = proves && !sight.elsewhere.contains(&session);
            (is_missed || seen.contains(&beacon)) && !is_held(beacon)
        };
        watches.extract_if(.., is_gone).map(|watch| watch.number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: Locks = Locks { session: SessionId(7), beacon: 7, waits: 70 };

    /// A look that finds these locks held.
    fn look(watches: &Watches, held: &[i64]) -> Vec<u64> {
        let look = watches.look().expect("there is something to do");
        watches.gone(&look, &Sight { held: held.to_vec(), has_said: true, ..Sight::default() })
    }

    #[test]
    fn a_beacon_that_was_seen_is_known_to_a_later_watch_of_the_same_connection() {
        let watches = Watches::new();
        watches.add(1, SESSION);
        assert!(look(&watches, &[SESSION.beacon]).is_empty(), "it stands");
        watches.remove(1);
        watches.add(2, SESSION);
        assert_eq!(look(&watches, &[]), [2]);
    }

    #[test]
    fn a_beacon_that_only_an_earlier_connection_saw_may_have_been_lost_in_a_restart() {
        let watches = Watches::new();
        watches.add(1, SESSION);
        assert!(look(&watches, &[SESSION.beacon]).is_empty(), "it stands");
        // The earlier connection was old enough for a missing beacon to be proof.
        watches.watched().proves_from = Instant::now();
        watches.connected();
        assert_eq!(watches.look().unwrap().says_waits, Some(true), "the new connection has not said that it waits");
        assert!(look(&watches, &[]).is_empty());
    }

    #[test]
    fn a_context_says_that_it_waits_as_long_as_it_watches() {
        let watches = Watches::new();
        let says = |watches: &Watches| watches.look().and_then(|look| look.says_waits);
        watches.add(1, SESSION);
        watches.add(2, SESSION);
        assert_eq!(says(&watches), Some(true));
        look(&watches, &[SESSION.beacon]);
        watches.remove(1);
        assert_eq!(says(&watches), None, "it has said so already");
        watches.remove(2);
        assert_eq!(says(&watches), Some(false));
        look(&watches, &[]);
        assert_eq!(watches.next(), None, "there is nothing left to do");
    }

    #[test]
    fn what_could_not_be_said_is_said_by_the_next_look() {
        let watches = Watches::new();
        watches.add(1, SESSION);
        let first = watches.look().unwrap();
        watches.gone(&first, &Sight { held: vec![SESSION.beacon], ..Sight::default() });
        assert_eq!(watches.look().unwrap().says_waits, Some(true));
    }

    #[test]
    fn the_looks_of_a_process_meet_on_the_same_ticks() {
        let (early, late) = (*FIRST_TICK + OFTEN.mul_f64(7.1), *FIRST_TICK + OFTEN.mul_f64(7.9));
        assert_eq!(tick_after(early, OFTEN), tick_after(late, OFTEN));
        assert_eq!(tick_after(late, OFTEN), *FIRST_TICK + OFTEN * 8);
        assert_eq!(tick_after(late, SELDOM), *FIRST_TICK + SELDOM, "each rare look falls on a frequent one, too");
        assert_eq!(tick_after(late, RARELY), *FIRST_TICK + RARELY, "so does each very rare one");
        assert_eq!(tick_after(*FIRST_TICK + SELDOM, SELDOM), *FIRST_TICK + SELDOM * 2, "never twice on one tick");
    }

    #[test]
    fn contexts_that_wait_are_looked_at_seldom_once_the_connection_is_old() {
        let watches = Watches::new();
        let pause = || watches.watched().pause(Instant::now());
        watches.add(1, SESSION);
        look(&watches, &[SESSION.beacon, SESSION.waits]);
        assert_eq!(pause(), OFTEN, "the connection is young");
        watches.watched().proves_from = Instant::now();
        assert_eq!(pause(), SELDOM, "it waits");
        look(&watches, &[SESSION.beacon]);
        assert_eq!(pause(), OFTEN, "it waits no longer");
        look(&watches, &[SESSION.beacon, SESSION.waits]);
        assert_eq!(pause(), SELDOM, "it waits again");
        watches.add(2, Locks { session: SessionId(8), beacon: 8, waits: 80 });
        assert_eq!(pause(), OFTEN, "this one may hold");
    }

    /// A connection that is old, and has watched a waiting context for longer than `STILL`.
    fn still() -> Watches {
        let watches = Watches::new();
        watches.add(1, SESSION);
        look(&watches, &[SESSION.beacon, SESSION.waits]);
        let mut watched = watches.watched();
        watched.proves_from = Instant::now();
        watched.locks[0].since -= STILL;
        drop(watched);
        watches
    }

    #[test]
    fn contexts_in_a_queue_that_does_not_move_are_looked_at_rarely() {
        let watches = still();
        let pause = || watches.watched().pause(Instant::now());
        assert_eq!(pause(), RARELY);
        look(&watches, &[SESSION.beacon]);
        assert_eq!(pause(), OFTEN, "the one ahead waits no longer");
        look(&watches, &[SESSION.beacon, SESSION.waits]);
        watches.remove(1);
        let next = Locks { session: SessionId(8), beacon: 8, waits: 80 };
        watches.add(2, next);
        look(&watches, &[next.beacon, next.waits]);
        assert_eq!(pause(), SELDOM, "another one is ahead");
    }

    #[test]
    fn a_heartbeat_of_the_watched_context_changes_nothing_in_the_pace() {
        let watches = still();
        let pause = || watches.watched().pause(Instant::now());
        for beat in 2..5 {
            watches.remove(beat - 1);
            watches.add(beat, SESSION);
            assert_eq!(pause(), RARELY, "after heartbeat {beat}");
        }
        watches.remove(4);
        look(&watches, &[]);
        watches.add(5, SESSION);
        assert_eq!(pause(), OFTEN, "it was not watched in between");
    }
}
