//! What the new process does before it becomes the command. `fork` leaves no room for that without unsafe code, so
//! this program is started once more, and replaces itself with the command.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::process::{CommandExt, parent_id},
    path::{Path, PathBuf},
    process::Command,
};

use nix::{
    sys::signal::{Signal, kill, raise},
    unistd::Pid,
};

use super::codes::{Exit, Failure, NOT_EXECUTABLE, NOT_FOUND};
use super::terminal;

/// The name by which this program knows that it is to be a command.
const NAME: &str = "leasehold-stage";
const TAKES_TERMINAL: &str = "terminal";
const DIES: &str = "dies";
/// The name by which this program knows that it is to end by a signal.
const END: &str = "leasehold-end";
const GROUP: &str = "group";

/// What the command is to be given before it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gifts {
    /// The terminal.
    pub(crate) terminal: bool,
    /// The end of this process is its own end, too.
    pub(crate) dies: bool,
}

/// What this process was started for by another leasehold.
pub(crate) enum Stage<'a> {
    /// To become a command.
    Command { parent: u32, gifts: Gifts, command: &'a [OsString] },
    /// To end by INT.
    End {
        /// Its process group is told, too.
        group: bool,
    },
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
    if link.exists() { Ok(link) } else { env::current_exe() }
}

/// What this process is to become, if it is to become anything.
pub(crate) fn wanted(arguments: &[OsString]) -> Option<Stage<'_>> {
    let number = |word: &OsString| word.to_str()?.parse().ok();
    match arguments {
        [name, whom] if name == END => Some(Stage::End { group: whom == GROUP }),
        [name, parent, terminal, dies, command @ ..] if name == NAME && !command.is_empty() => {
            let gifts = Gifts { terminal: terminal == TAKES_TERMINAL, dies: dies == DIES };
            Some(Stage::Command { parent: number(parent)?, gifts, command })
        }
        _ => None,
    }
}

impl Stage<'_> {
    /// Enters the stage. It returns only if that failed, or if the signal was ignored.
    pub(crate) fn enter(&self) -> Result<Exit, Failure> {
        match *self {
            Self::Command { parent, gifts, command } => Err(become_command(parent, gifts, command)),
            Self::End { group } => {
                // A process that ignores the signal goes on, and exits with the code.
                let _ = if group { kill(Pid::from_raw(0), Signal::SIGINT) } else { raise(Signal::SIGINT) };
                Ok(Exit::Code(Exit::from(Signal::SIGINT).code()))
            }
        }
    }
}

/// A shell goes on with its script after a command that exits, whatever its code. It stops, as `^C` asks it to, only if
/// INT ended the command, and reached the shell as well. The handlers of a running program cannot be taken away without unsafe
/// code, so another run of this program takes its place, which has none.
pub(crate) fn end_by_signal(exit: Exit) {
    let whom = match exit {
        Exit::Interrupted => GROUP,
        Exit::Signal(number) if number == Signal::SIGINT as i32 => "-",
        Exit::Signal(_) | Exit::Code(_) => return,
    };
    if let Ok(program) = own_program() {
        // `exec` returns only if it failed: then the exit code has to do.
        let _ = Command::new(program).arg0(END).arg(whom).exec();
    }
}

fn become_command(parent: u32, gifts: Gifts, command: &[OsString]) -> Failure {
    if gifts.dies {
        die_with_parent();
        if parent_id() != parent {
            return Failure::system("leasehold ended before its command began");
        }
    }
    if gifts.terminal {
        terminal::seize();
    }
    terminal::let_it_stop();
    let (program, arguments) = command.split_first().expect("a stage has a command: it was looked at");
    let why = Command::new(program).args(arguments).exec();
    match why.kind() {
        io::ErrorKind::NotFound => {
            // A URL is no command, and may hold a password.
            let is_url = program.to_string_lossy().contains("://");
            let shown = if is_url { "…".into() } else { format!("{program:?}") };
            Failure::new(NOT_FOUND, format!("the command {shown} {}", why_not_found(program)))
        }
        _ => Failure::new(NOT_EXECUTABLE, format!("the command {program:?} cannot be executed: {why}")),
    }
}

/// The system reports the same error for a command that does not exist and for one whose interpreter does not exist.
fn why_not_found(program: &OsStr) -> &'static str {
    if is_there(program) {
        "cannot start, because its interpreter was not found; check the path in its first line (#!), and that this line does not \
         end in a carriage return"
    } else {
        "was not found; check its name, and the PATH; for a line of shell, write sh -c LINE"
    }
}

/// The system looks for a name without a slash in the folders of the PATH.
fn is_there(program: &OsStr) -> bool {
    if program.as_encoded_bytes().contains(&b'/') {
        return Path::new(program).exists();
    }
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

#[cfg(target_os = "linux")]
fn die_with_parent() {
    // It fails on kernels that nobody has any more; then the command lives on, as on other systems.
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent() {}
