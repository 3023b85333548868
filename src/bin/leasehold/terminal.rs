//! The terminal: it belongs to one process group at a time, and goes to the command's while that runs.

use std::{fs::File, io::IsTerminal, os::fd::AsFd};

use nix::{
    sys::{
        signal::{SigSet, Signal},
        termios::{self, SetArg, Termios},
    },
    unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp},
};

use super::codes::Failure;
use super::job;

/// The controlling terminal of this process.
pub(crate) struct Terminal {
    tty: File,
    own: Pid,
    /// How it was set when we came.
    modes: Option<Termios>,
    /// The group that we gave it to, until we take it back or see that the shell has it.
    given: Option<Pid>,
    given_once: bool,
    /// The entry that only the command and its descendants have in their environment.
    entry: String,
}

/// From here on this process may write to a terminal, and hand it over, even while another group has it: the kernel
/// would stop it with TTOU otherwise, and nobody would renew the lease.
pub(crate) fn let_us_write() -> Result<(), Failure> {
    masked().thread_block().map_err(|why| Failure::system(format!("cannot block SIGTTOU: {why}")))
}

/// A command is to be stopped by TTOU as ever.
pub(crate) fn let_it_stop() {
    // It fails for invalid arguments only.
    let _ = masked().thread_unblock();
}

fn masked() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTTOU);
    set
}

/// Gives the terminal to this process: for the command's, before it becomes the command.
pub(crate) fn seize() {
    if let Some(tty) = tty() {
        // Without the terminal it is stopped at its first read, and given it then.
        let _ = tcsetpgrp(&tty, getpgrp());
    }
}

/// How many lines the window of stdout has, if it is a terminal that knows.
pub(crate) fn height() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_row)).filter(|rows| *rows > 0)
}

fn tty() -> Option<File> {
    File::options().read(true).write(true).open("/dev/tty").ok()
}

impl Terminal {
    /// `None` if this process has no controlling terminal. `entry` is one that only the command and its descendants have in their
    /// environment.
    pub(crate) fn open(entry: String) -> Option<Self> {
        let mut terminal = Self { tty: tty()?, own: getpgrp(), modes: None, given: None, given_once: false, entry };
        if terminal.is_ours() {
            terminal.modes = termios::tcgetattr(&terminal.tty).ok();
        }
        Some(terminal)
    }

    /// Whether the command is to have it from the start. A command that writes into a pipe may share the terminal
    /// with the reader, `| less` for one: it has to ask for it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_ours() && std::io::stdin().is_terminal() && !stdout_is_a_pipe()
    }

    pub(crate) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty) == Ok(self.own)
    }

    /// If an outer leasehold has it, the process that is to be stopped in order to ask for it.
    pub(crate) fn asker(&self) -> Option<Pid> {
        tcgetpgrp(&self.tty).ok().and_then(job::leader_under_leasehold_in)
    }

    /// Whether it was given, and nobody gave it back.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.given.is_some() && !self.is_ours()
    }

    /// The group of the command has it now: the command may have taken it by itself.
    pub(crate) fn was_given(&mut self, group: Pid) {
        self.given = Some(group);
        self.given_once = true;
    }

    /// Whether it was given at any time.
    pub(crate) fn was_given_once(&self) -> bool {
        self.given_once
    }

    pub(crate) fn give(&mut self, group: Pid) -> bool {
        let given = self.is_ours() && tcsetpgrp(&self.tty, group).is_ok();
        if given {
            self.was_given(group);
        }
        given
    }

    /// Takes it back, if it was given. Says whether it is ours now.
    pub(crate) fn take(&mut self) -> bool {
        self.note_the_shell();
        if self.given.take().is_some() && !self.is_ours() {
            // It fails if the terminal has hung up: then there is nothing to take.
            let _ = tcsetpgrp(&self.tty, self.own);
        }
        self.is_ours()
    }

    /// Notes whether the shell, or another job of the shell, has the terminal. A shell takes it when leasehold stops. If leasehold, then in
    /// the background, took it from the shell, the shell would end. If leasehold took it from an editor, the editor could not read what the
    /// user types.
    pub(crate) fn note_the_shell(&mut self) {
        let has_left = |group: Pid| self.given.is_some_and(|given| given != group);
        if tcgetpgrp(&self.tty).is_ok_and(|group| has_left(group) && job::is_of_the_shell(group, &self.entry)) {
            self.given = None;
        }
    }

    /// Sets it as it was, after a command that could not. It does not wait until the terminal has shown what was written,
    /// because one that `^S` halts never does.
    pub(crate) fn restore(&self) {
        if let Some(modes) = self.modes.as_ref().filter(|_| self.is_ours()) {
            let _ = termios::tcsetattr(&self.tty, SetArg::TCSANOW, modes);
        }
    }
}

fn stdout_is_a_pipe() -> bool {
    use std::os::unix::fs::FileTypeExt;
    let stdout = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
    stdout.and_then(|stdout| stdout.metadata()).is_ok_and(|metadata| metadata.file_type().is_fifo())
}
