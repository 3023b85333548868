//! What the exit codes mean.

use leasehold::{AcquireError, StoreError, machine::StoreErrorKind};
use nix::sys::signal::Signal;

/// The lease was not granted at once, or not in time.
pub(crate) const NOT_ACQUIRED: u8 = 1;
/// `EX_USAGE` of sysexits(3): the command line is wrong.
pub(crate) const USAGE: u8 = 64;
/// `EX_UNAVAILABLE`: the store cannot be opened, or failed.
pub(crate) const STORE: u8 = 69;
/// `EX_OSERR`: the system refused a process, a signal, open files or what was to be written.
pub(crate) const SYSTEM: u8 = 71;
/// `EX_TEMPFAIL`: the lease was lost while the command ran. sysexits(3) says of it that the caller is invited to try
/// again, which is right for a command that was ended halfway.
pub(crate) const LOST: u8 = 75;
/// What shells say of a command that cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// What shells say of a command that is not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// What shells add to the number of the signal that ended a command.
pub(crate) const SIGNAL: u8 = 128;

/// How this process is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(u8),
    /// This signal ended the command, or the wait for the lease.
    Signal(i32),
    /// `^C` ended the command, which had the terminal. The terminal sent INT to the command only, and not to the process group
    /// of leasehold.
    Interrupted,
}

impl Exit {
    pub(crate) const SUCCESS: Self = Self::Code(0);
    pub(crate) const NOT_ACQUIRED: Self = Self::Code(NOT_ACQUIRED);

    /// As a shell would show it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Interrupted => Self::from(Signal::SIGINT).code(),
            Self::Signal(number) => u8::try_from(number).map_or(u8::MAX, |number| SIGNAL.saturating_add(number)),
        }
    }
}

impl From<Signal> for Exit {
    fn from(signal: Signal) -> Self {
        Self::Signal(signal as i32)
    }
}

/// Why there is nothing more to do: one sentence for stderr, and how this process ends.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) sentence: String,
    /// Whether trying again may help: a server may be about to start.
    pub(crate) may_pass: bool,
    /// Whether what was open is no longer there. Opening it again may find another store under its name.
    pub(crate) is_gone: bool,
}

impl Failure {
    pub(crate) fn new(code: u8, sentence: impl Into<String>) -> Self {
        Self { exit: Exit::Code(code), sentence: sentence.into(), may_pass: false, is_gone: false }
    }

    /// A signal came before there was anything to end.
    pub(crate) fn signalled(signal: Signal) -> Self {
        Self { exit: signal.into(), ..Self::new(SYSTEM, format!("{signal} came before the store answered")) }
    }

    /// What is wrong, without the advice to open the store again: this program does so by itself.
    pub(crate) fn cause(&self) -> &str {
        self.sentence.strip_suffix("; open it again").unwrap_or(&self.sentence)
    }

    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        Self::new(USAGE, sentence)
    }

    pub(crate) fn system(sentence: impl Into<String>) -> Self {
        Self::new(SYSTEM, sentence)
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::InvalidKey(_) | AcquireError::InvalidOptions(_) => Self::usage(error.to_string()),
            AcquireError::Store(StoreError { kind: StoreErrorKind::Closed, message, .. }) => {
                Self { is_gone: true, ..Self::new(STORE, message) }
            }
            // This program asks no manager that it closed, so the store closed it.
            AcquireError::Closed => {
                Self { is_gone: true, ..Self::new(STORE, "the store was deleted or replaced while it was open") }
            }
            AcquireError::Store(StoreError { retry, .. }) => {
                Self { may_pass: retry, ..Self::new(STORE, error.to_string()) }
            }
            AcquireError::Timeout { .. } => Self { may_pass: true, ..Self::new(STORE, error.to_string()) },
            _ => Self::new(STORE, error.to_string()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        AcquireError::from(error).into()
    }
}
