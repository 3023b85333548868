//! Sentries: threads that sleep in the lock of a beacon. So a wait of days costs nothing, and a death is seen at the moment when it
//! happens.

use std::{
    io,
    path::{Path, PathBuf},
    thread,
};

use super::{beacon, listener::Listener};
use crate::executor::{WeakShared, process_wide};
use crate::machine::SortedMap;

/// The largest number of sentries in one process. Nothing can stop a sentry: it ends when its beacon falls.
const MOST: usize = 16;
/// The stack of a sentry, in bytes. It makes few nested calls.
const STACK: usize = 128 * 1024;

/// Who is told when the beacon at a path falls.
type Posts = SortedMap<PathBuf, Vec<(WeakShared<Listener>, u64)>>;

process_wide!(with_posts, Posts, SortedMap::new());

/// Has a sentry tell the listener when this beacon falls. False if none can be had: then the listener must look for itself.
pub(super) fn post(path: &PathBuf, listener: WeakShared<Listener>, watch: u64) -> bool {
    with_posts(|posts| {
        let mut posts = posts.lock();
        if let Some(told) = posts.get_mut(path) {
            told.retain(|(listener, _)| listener.strong_count() > 0);
            told.push((listener, watch));
            return true;
        }
        if posts.len() >= MOST {
            return false;
        }
        let place = path.clone();
        let sentry = thread::Builder::new().name("leasehold beacon".into()).stack_size(STACK);
        let stands = sentry.spawn(move || stand(&place)).is_ok();
        if stands {
            posts.insert(path.clone(), vec![(listener, watch)]);
        }
        stands
    })
}

/// Stops notifying this listener for that watch. The sentry stays, because nothing can stop it.
pub(super) fn dismiss(path: &PathBuf, listener: &WeakShared<Listener>, watch: u64) {
    with_posts(|posts| {
        if let Some(told) = posts.lock().get_mut(path) {
            told.retain(|(known, number)| *number != watch || !known.ptr_eq(listener));
        }
    });
}

#[cfg(all(test, unix))]
pub(super) fn posts_at(path: &PathBuf) -> usize {
    with_posts(|posts| posts.lock().get(path).map_or(0, Vec::len))
}

/// Stands at a beacon until it falls, or cannot be seen.
fn stand(path: &PathBuf) {
    let fell = wait(path).is_ok();
    let told = with_posts(|posts| posts.lock().remove(path)).unwrap_or_default();
    for (listener, watch) in told {
        if let Some(listener) = listener.upgrade() {
            listener.relieved(watch, fell);
        }
    }
}

/// Ends when the beacon is gone. An error proves nothing, and nor does a file that is missing at one moment.
fn wait(path: &Path) -> io::Result<()> {
    let file = beacon::open(path)?;
    loop {
        match file.lock_shared() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A shared one: all sentries leave together.
            locked => return locked,
        }
    }
}
