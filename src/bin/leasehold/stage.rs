//! What the new process does before it becomes the command. `fork` leaves no room for that without unsafe code, so
//! this program is started once more, and replaces itself with the command.

use std::{
    ffi::OsString,
    io,
    os::unix::process::{CommandExt, parent_id},
    path::PathBuf,
    process::Command,
};

use super::codes::{Failure, NOT_EXECUTABLE, NOT_FOUND};
use super::terminal;

/// The name by which this program knows that it is to be a command.
const NAME: &str = "leasehold-stage";
const TAKES_TERMINAL: &str = "terminal";
const DIES: &str = "dies";

/// What the command is to be given before it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gifts {
    /// The terminal.
    pub(crate) terminal: bool,
    /// The end of this process is its own end, too.
    pub(crate) dies: bool,
}

/// A process that is to become a command.
pub(crate) struct Stage<'a> {
    parent: u32,
    gifts: Gifts,
    command: &'a [OsString],
}

/// The process that becomes the command.
pub(crate) fn command(words: &[OsString], gifts: Gifts) -> Result<Command, Failure> {
    let program = own_program().map_err(|why| {
        Failure::system(format!("cannot find the file of this very program: {why}; on Linux, mount /proc"))
    })?;
    let mut command = Command::new(program);
    let word = |wanted, word| if wanted { word } else { "-" };
    command.arg0(NAME).arg(std::process::id().to_string());
    command.arg(word(gifts.terminal, TAKES_TERMINAL)).arg(word(gifts.dies, DIES)).args(words);
    Ok(command)
}

/// On Linux also if the file was replaced by a newer one.
fn own_program() -> io::Result<PathBuf> {
    let link = PathBuf::from("/proc/self/exe");
    if link.exists() { Ok(link) } else { std::env::current_exe() }
}

/// What this process is to become, if it is to become anything.
pub(crate) fn wanted(arguments: &[OsString]) -> Option<Stage<'_>> {
    let [name, parent, terminal, dies, command @ ..] = arguments else { return None };
    let parent = parent.to_str()?.parse().ok()?;
    let gifts = Gifts { terminal: terminal == TAKES_TERMINAL, dies: dies == DIES };
    (name == NAME && !command.is_empty()).then_some(Stage { parent, gifts, command })
}

impl Stage<'_> {
    /// Becomes the command; if that cannot be, it says why.
    pub(crate) fn enter(&self) -> Failure {
        if self.gifts.dies {
            die_with_parent();
            if parent_id() != self.parent {
                return Failure::system("leasehold ended before its command began");
            }
        }
        if self.gifts.terminal {
            terminal::seize();
        }
        terminal::let_it_stop();
        let (program, arguments) = self.command.split_first().expect("a stage has a command: it was looked at");
        let why = Command::new(program).args(arguments).exec();
        match why.kind() {
            io::ErrorKind::NotFound => {
                Failure::new(NOT_FOUND, format!("the command {program:?} was not found; check its name, and the PATH"))
            }
            _ => Failure::new(NOT_EXECUTABLE, format!("the command {program:?} cannot be executed: {why}")),
        }
    }
}

#[cfg(target_os = "linux")]
fn die_with_parent() {
    // It fails on kernels that nobody has any more; then the command lives on, as on other systems.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent() {}
