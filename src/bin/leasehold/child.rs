//! The command: a process in a group of its own.

use std::{
    ffi::OsString,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::ExitStatus,
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, killpg},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use tokio::time::Instant;

use super::codes::{Exit, Failure, SIGNAL, SYSTEM};
use super::stage::{self, Gifts};
use super::{job, mask};

/// A process that was started, and its group.
pub(crate) struct Child {
    process: std::process::Child,
    pub(crate) group: Pid,
    /// When zombies were looked for.
    looked: Option<Instant>,
}

/// How often to look for zombies.
const LOOK: Duration = Duration::from_millis(100);

/// A change of a process.
pub(crate) enum Change {
    Ended(Exit),
    /// A signal stopped it.
    Stopped(Signal),
    /// CONT continued it after a stop. Anybody may have sent that.
    Continued,
}

impl Child {
    pub(crate) fn spawn(words: &[OsString], gifts: Gifts, variables: &[(&str, String)]) -> Result<Self, Failure> {
        let mut command = stage::command(words, gifts)?;
        command.envs(variables.iter().map(|(name, value)| (name, value))).process_group(0);
        let process = mask::as_it_was(|| command.spawn())
            .map_err(|why| Failure::system(format!("cannot start {:?}: {why}", words[0])))?;
        let group =
            i32::try_from(process.id()).map_err(|_| Failure::system("the system's process ids are too large"))?;
        Ok(Self { process, group: Pid::from_raw(group), looked: None })
    }

    /// The next change since the last call. After the process has ended, this is not called again.
    pub(crate) fn poll(&mut self) -> Option<Change> {
        match self.process.try_wait() {
            Ok(Some(status)) => return Some(Change::Ended(exit(status))),
            Err(_) => return Some(Change::Ended(Exit::Code(SYSTEM))),
            Ok(None) => {}
        }
        match waitpid(self.group, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED | WaitPidFlag::WCONTINUED)) {
            Ok(WaitStatus::Stopped(_, signal)) => Some(Change::Stopped(signal)),
            Ok(WaitStatus::Continued(_)) => Some(Change::Continued),
            // It ended in between.
            Ok(WaitStatus::Exited(_, code)) => Some(Change::Ended(Exit::Code(low_byte(code)))),
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(Change::Ended(signal.into())),
            // By a signal that has no name.
            Err(Errno::EINVAL) => Some(Change::Ended(Exit::Code(SIGNAL))),
            Err(Errno::ECHILD) => Some(Change::Ended(Exit::Code(SYSTEM))),
            _ => None,
        }
    }

    /// Sends a signal to the whole group. A group that is gone needs none.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = killpg(self.group, signal);
    }

    /// Whether any process of the group is left. A zombie, which has ended and waits for its parent to reap it, does not count. Zombies are
    /// looked for seldom, because that reads all of `/proc`.
    pub(crate) fn group_is_left(&mut self) -> bool {
        if killpg(self.group, None) == Err(Errno::ESRCH) {
            return false;
        }
        let is_due = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK);
        if is_due {
            self.looked = Some(Instant::now());
        }
        !(is_due && job::have_all_ended(self.group))
    }
}

fn exit(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(low_byte(code)),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Code(SYSTEM),
    }
}

/// An exit code has eight bits.
fn low_byte(code: i32) -> u8 {
    code.to_le_bytes()[0]
}
