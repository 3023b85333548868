//! The thread of a store, which does all work that blocks.

use std::{
    mem::forget,
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use super::{desk, failure::Trouble, file::LeaseFile, still};
use crate::executor::{Mutex, ProcessMark, WeakShared, this_process};
use crate::machine::{Batch, Key, Reply, StoreError, StoreErrorKind, StoreNow};
use crate::oneshot;
use crate::store::StoreWatcher;

pub(super) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// A job for the thread.
pub(super) enum Job {
    Transact { batch: Batch, now: StoreNow, deadline: Instant, answer: Answer<Reply> },
    Keys { prefix: String, answer: Answer<Vec<Key>> },
    Close { answer: Answer<()> },
}

/// The way to the thread. Dropped, the thread ends after what it was asked for so far.
#[derive(Debug)]
pub(super) struct Worker {
    /// `None` once it is closed.
    jobs: Mutex<Option<Sender<Job>>>,
    watchers: Watchers,
    /// The process that has the thread.
    process: ProcessMark,
}

impl Drop for Worker {
    /// A forked copy has no thread. Its parent's thread may have locked the channel at the moment of the fork, and nobody unlocks the copy:
    /// to drop the sender there would wait for ever.
    fn drop(&mut self) {
        if self.process != this_process() {
            forget(self.jobs.get_mut().take());
        }
    }
}

type Watchers = Arc<Mutex<Vec<WeakShared<dyn StoreWatcher>>>>;

/// A job waits for the write lock of SQLite by trying again after such a pause.
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(4);

/// Only for the time limits of jobs. Decisions about leases are given the time.
#[expect(clippy::disallowed_methods, reason = "a thread that blocks measures for itself how long it may")]
pub(super) fn clock() -> Instant {
    Instant::now()
}

/// Tries until the deadline, as long as another connection is in the way.
pub(super) fn patiently<T>(deadline: Instant, mut attempt: impl FnMut() -> Result<T, Trouble>) -> Result<T, Trouble> {
    let mut pause = SHORTEST_PAUSE;
    loop {
        match attempt() {
            Err(Trouble::Busy(_)) if clock() + pause < deadline => thread::sleep(pause),
            outcome => return outcome,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl Worker {
    pub(super) fn start(file: LeaseFile) -> Result<Self, StoreError> {
        let (jobs, asked) = mpsc::channel();
        let watchers = Watchers::default();
        let told = watchers.clone();
        let thread = thread::Builder::new().name("leasehold sqlite".into());
        thread
            .spawn(move || {
                let work = if file.is_still() { still::work } else { desk::work };
                let closed = work(&file, &asked, &|| tell_gone(&told));
                drop(file);
                if let Some(closed) = closed {
                    closed.send(Ok(()));
                }
                desk::refuse(&asked, &self::closed());
            })
            .map_err(|why| StoreError::transient(format!("the thread of the SQLite store could not start: {why}")))?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), watchers, process: this_process() })
    }

    /// Asks at the call; the answer is to be waited for.
    pub(super) async fn ask<T>(&self, job: impl FnOnce(Answer<T>) -> Job) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let Some(jobs) = self.jobs.lock().clone() else { return Err(closed()) };
        if jobs.send(job(answer)).is_err() {
            return Err(closed());
        }
        drop(jobs);
        answered.await.unwrap_or_else(|| Err(StoreError::unknown("the thread of the SQLite store ended")))
    }

    pub(super) fn watch(&self, watcher: WeakShared<dyn StoreWatcher>) {
        let mut watchers = self.watchers.lock();
        // Otherwise dropped managers would leave memory behind. The list then has room for as many again, so adding a watcher stays cheap.
        if watchers.len() == watchers.capacity() {
            watchers.retain(|known| known.strong_count() > 0);
            let left = watchers.len();
            watchers.reserve(left + 1);
        }
        watchers.push(watcher);
    }

    /// Completes when the file is closed, even if an earlier call was dropped. Further jobs are refused from now on.
    pub(super) async fn close(&self) {
        let (answer, answered) = oneshot::channel();
        let Some(jobs) = self.jobs.lock().clone() else { return };
        if jobs.send(Job::Close { answer }).is_ok() {
            drop(jobs);
            answered.await;
        }
        drop(self.jobs.lock().take());
    }
}

fn tell_gone(watchers: &Watchers) {
    // Taken out, so that the lock is released before anybody is notified.
    let watchers = std::mem::take(&mut *watchers.lock());
    watchers.iter().filter_map(|watcher| watcher.upgrade()).for_each(|watcher| watcher.store_gone());
}

fn closed() -> StoreError {
    StoreError::permanent(StoreErrorKind::Closed, "this SQLite store was closed; open another one")
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process, sync::mpsc::TryRecvError};

    use super::*;

    struct Watcher;

    impl StoreWatcher for Watcher {
        fn store_gone(&self) {}

        fn connection_ended(&self) {}
    }

    /// As when a program makes a manager for each of its jobs, over one store.
    #[test]
    fn watchers_that_went_are_forgotten_when_others_come() {
        let path = env::temp_dir().join(format!("leasehold-watchers-{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        let worker = Worker::start(LeaseFile::open(&path.join("leases.db"), "leasehold").unwrap()).unwrap();
        let stays: Vec<_> = (0..10).map(|_| Arc::new(Watcher)).collect();
        for watcher in &stays {
            let watcher = Arc::downgrade(watcher);
            worker.watch(watcher);
        }
        for _ in 0..10_000 {
            let watcher = Arc::downgrade(&Arc::new(Watcher));
            worker.watch(watcher);
        }
        let watchers = std::mem::take(&mut *worker.watchers.lock());
        assert!(watchers.len() <= 4 * stays.len(), "{} are kept", watchers.len());
        assert_eq!(watchers.iter().filter(|watcher| watcher.strong_count() > 0).count(), stays.len());
        drop(worker);
        fs::remove_dir_all(&path).unwrap();
    }

    /// If the parent's thread had locked the channel at the moment of the fork, whoever touched the copy would wait for ever. A channel
    /// whose sender was dropped is seen to be disconnected.
    #[test]
    fn a_forked_copy_does_not_touch_the_channel() {
        let (jobs, asked) = mpsc::channel();
        drop(Worker { jobs: Mutex::new(Some(jobs)), watchers: Watchers::default(), process: this_process() + 1 });
        assert!(matches!(asked.try_recv(), Err(TryRecvError::Empty)));
        let (jobs, asked) = mpsc::channel();
        drop(Worker { jobs: Mutex::new(Some(jobs)), watchers: Watchers::default(), process: this_process() });
        assert!(
            matches!(asked.try_recv(), Err(TryRecvError::Disconnected)),
            "the thread of a store that is dropped ends"
        );
    }
}
