//! What the thread of a store does: one job after the other, and what can wait when nobody asks.

use std::{
    sync::mpsc::{Receiver, TryRecvError},
    time::Instant,
};

use super::{
    failure::{self, Trouble},
    file::LeaseFile,
    rows::Rows,
    sweep::Sweep,
    worker::{Job, clock, patiently},
};
use crate::machine::{Batch, Key, Reply, StoreError, StoreNow};

/// Works until it is told to close, or nobody can ask any more. `tell_gone` is called if the file is gone for good.
pub(super) fn work(file: &LeaseFile, asked: &Receiver<Job>, tell_gone: &dyn Fn()) {
    let rows = match Rows::prepare(&file.connection, &file.tables) {
        Ok(rows) => rows,
        Err(error) => return refuse(asked, &failure::meaning(&error)),
    };
    let mut desk = Desk { file, tell_gone, rows, sweep: Sweep::default() };
    while let Some(job) = desk.next(asked) {
        match job {
            Job::Transact { batch, now, deadline, answer } => answer.send(desk.transact(&batch, now, deadline)),
            Job::Keys { prefix, answer } => answer.send(desk.keys(&prefix)),
            Job::Close { answer } => return answer.send(Ok(())),
        }
    }
}

/// Nothing can be asked of this file.
fn refuse(asked: &Receiver<Job>, error: &StoreError) {
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
        asked.recv().ok()
    }

    fn transact(&mut self, batch: &Batch, now: StoreNow, deadline: Instant) -> Result<Reply, StoreError> {
        if clock() >= deadline {
            return Err(StoreError::transient(
                "the SQLite file was busy with other jobs of this process until the time limit",
            ));
        }
        let reply = patiently(deadline, || {
            if self.file.is_gone() {
                (self.tell_gone)();
                return Err(Trouble::Failed(self.file.gone()));
            }
            self.rows.transact(batch, now)
        });
        if reply.is_ok() {
            self.sweep.begin(&mut self.rows, batch.session, now);
        }
        reply.map_err(Trouble::into_error)
    }

    fn keys(&mut self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let keys = self.rows.keys(prefix, usize::MAX, |name| name.starts_with(prefix));
        keys.map_err(Trouble::into_error)
    }
}
