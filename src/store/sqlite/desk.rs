//! What the thread of a store does: one job after the other, and other work while there is no job.

use std::{
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    time::{Duration, Instant},
};

use super::{
    failure::{self, Trouble},
    file::{LeaseFile, OPENING},
    room::Room,
    rows::Rows,
    sweep::Sweep,
    worker::{Answer, Job, clock, patiently},
};
use crate::machine::{Batch, Key, Reply, SessionId, StoreError, StoreNow};
use crate::signal::{deliver, has_fallen};

/// How often to check the file: whether it still exists, and has to grow.
pub(super) const LOOK: Duration = Duration::from_secs(3);
/// How long the thread is idle before its first check.
const REST: Duration = Duration::from_millis(100);

/// Works until it is told to close, and by whom; or until nobody can ask any more. `tell_gone` is called if the file is gone
/// for good.
pub(super) fn work(file: &LeaseFile, asked: &Receiver<Job>, tell_gone: &dyn Fn()) -> Option<Answer<()>> {
    let looks = file.looks.is_some();
    let rows = match Rows::prepare(&file.connection, &file.tables, looks) {
        Ok(rows) => rows,
        Err(error) => {
            refuse(asked, &failure::meaning(&error));
            return None;
        }
    };
    // Who only looks forgets nothing.
    let sweep = if looks { Sweep::Done } else { Sweep::default() };
    let checked = clock();
    let mut desk = Desk {
        file,
        tell_gone,
        rows,
        sweep,
        is_gone: false,
        directory: file.directory(),
        checked,
        room: Room::unknown(checked),
    };
    while let Some(job) = desk.next(asked) {
        match job {
            Job::Transact { batch, now, deadline, answer } => answer.send(desk.transact(&batch, now, deadline)),
            Job::Keys { prefix, answer } => answer.send(desk.keys(&prefix)),
            Job::Close { answer } => return Some(answer),
        }
    }
    None
}

/// Refuses all further jobs, because the file is gone.
pub(super) fn refuse(asked: &Receiver<Job>, error: &StoreError) {
    for job in asked {
        match job {
            Job::Transact { answer, .. } => answer.send(Err(error.clone())),
            Job::Keys { answer, .. } => answer.send(Err(error.clone())),
            Job::Close { answer } => return answer.send(Ok(())),
        }
    }
}

struct Desk<'a> {
    file: &'a LeaseFile,
    tell_gone: &'a dyn Fn(),
    rows: Rows<'a>,
    sweep: Sweep,
    is_gone: bool,
    /// The directory of the signals.
    directory: PathBuf,
    /// When the file was last checked.
    checked: Instant,
    room: Room,
}

impl Desk<'_> {
    /// The next job, `None` if there will be none. It sweeps as long as nobody asks.
    fn next(&mut self, asked: &Receiver<Job>) -> Option<Job> {
        while self.sweep.is_due() {
            match asked.try_recv() {
                Ok(job) => return Some(job),
                Err(TryRecvError::Empty) => self.sweep.go_on(&mut self.rows),
                Err(TryRecvError::Disconnected) => return None,
            }
        }
        if clock() >= self.checked + LOOK {
            self.check_file();
        }
        let mut pause = REST;
        loop {
            match asked.recv_timeout(pause) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Timeout) => self.check_file(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
            pause = LOOK;
        }
    }

    /// What the thread does for the file between jobs.
    fn check_file(&mut self) {
        self.checked = clock();
        // A holder considers its lease valid until this thread looks. A file that was opened only to look is not changed.
        if self.look().is_ok() && self.file.looks.is_none() {
            self.file.grow(&mut self.room, self.checked);
        }
    }

    /// Reports, once, that others who open the path now open another file.
    fn look(&mut self) -> Result<(), StoreError> {
        if !self.is_gone && self.file.is_gone() {
            self.is_gone = true;
            (self.tell_gone)();
        }
        if self.is_gone { Err(self.file.gone()) } else { Ok(()) }
    }

    fn transact(&mut self, batch: &Batch, now: StoreNow, deadline: Instant) -> Result<Reply, StoreError> {
        if clock() >= deadline {
            return Err(StoreError::busy(
                "the SQLite file was busy with other jobs of this process until the time limit",
            ));
        }
        let mut reply = self.attempt(batch, now, deadline);
        if matches!(&reply, Err(trouble) if trouble.may_be_full()) && self.file.begin_log_again() {
            reply = self.attempt(batch, now, deadline);
        }
        let mut reply = reply.map_err(|trouble| self.file.error(trouble))?;
        self.tell_granted(batch.session, &mut reply);
        self.sweep.begin(&mut self.rows, batch.session, now);
        Ok(reply)
    }

    fn attempt(&mut self, batch: &Batch, now: StoreNow, deadline: Instant) -> Result<Reply, Trouble> {
        patiently(deadline, || {
            self.look()?;
            self.rows.transact(batch, now, |session| has_fallen(&self.directory, session))
        })
    }

    /// Notifies waiters in other contexts from this thread, before the task that asked even wakes up.
    fn tell_granted(&self, session: SessionId, reply: &mut Reply) {
        let store = reply.store;
        for promotion in reply.promotions_mut() {
            promotion.told = promotion.holder != session && deliver(&self.directory, &promotion.message(store));
        }
    }

    fn keys(&mut self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let listed = patiently(clock() + OPENING, || {
            self.look()?;
            self.rows.used_keys(prefix)
        });
        listed.map_err(|trouble| self.file.error(trouble))
    }
}
