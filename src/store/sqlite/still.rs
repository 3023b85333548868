//! What the thread of a store does that was opened to look at a file which this user cannot lock.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Instant,
};

use super::{
    desk::LOOK,
    failure::Trouble,
    file::LeaseFile,
    look,
    rows::Rows,
    worker::{Answer, Job, clock},
};
use crate::machine::StoreError;

/// How often a job is tried again while others open and close the file.
const ATTEMPTS: usize = 20;

/// Works until it is told to close, and by whom; or until nobody can ask any more. `tell_gone` is called if the file is gone for good.
pub(super) fn work(file: &LeaseFile, asked: &Receiver<Job>, tell_gone: &dyn Fn()) -> Option<Answer<()>> {
    let mut is_gone = false;
    loop {
        match asked.recv_timeout(LOOK) {
            Ok(Job::Transact { batch, now, deadline, answer }) => {
                answer.send(anew(file, Some(deadline), |rows| rows.transact(&batch, now, |_| false)));
            }
            Ok(Job::Keys { prefix, answer }) => {
                answer.send(anew(file, None, |rows| rows.used_keys(&prefix)));
            }
            Ok(Job::Close { answer }) => return Some(answer),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
        if !is_gone && file.is_gone() {
            is_gone = true;
            tell_gone();
        }
    }
}

/// Opens the file for each job: what was read of it before says nothing of what was written since.
fn anew<T>(
    file: &LeaseFile,
    deadline: Option<Instant>,
    job: impl Fn(&mut Rows<'_>) -> Result<T, Trouble>,
) -> Result<T, StoreError> {
    for _ in 0..ATTEMPTS {
        let now = file.again()?;
        let done = Rows::prepare(&now.connection, &now.tables, true)
            .map_err(Trouble::from)
            .and_then(|mut rows| job(&mut rows));
        if now.counts() {
            return done.map_err(Trouble::into_error);
        }
        if deadline.is_some_and(|deadline| clock() >= deadline) {
            break;
        }
    }
    Err(look::changing())
}
