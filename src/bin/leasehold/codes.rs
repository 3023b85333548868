//! What the exit codes mean, and how a failure is told.

use std::io::Write as _;

use leasehold::{AcquireError, StoreError};

/// The lease was not granted at once, or not in time.
pub(crate) const NOT_ACQUIRED: u8 = 1;
/// `EX_USAGE` of sysexits(3): the command line is wrong.
pub(crate) const USAGE: u8 = 64;
/// `EX_UNAVAILABLE`: the store cannot be opened, or failed.
pub(crate) const STORE: u8 = 69;
/// `EX_OSERR`: the system refused a process or a signal.
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

/// Why there is nothing more to do: one sentence for stderr, and the code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) sentence: String,
}

impl Failure {
    pub(crate) fn new(code: u8, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into() }
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
            _ => Self::new(STORE, error.to_string()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        AcquireError::from(error).into()
    }
}

/// What a process leaves that a signal ends.
pub(crate) fn of_signal(number: i32) -> u8 {
    u8::try_from(number).map_or(u8::MAX, |number| SIGNAL.saturating_add(number))
}

/// Says one sentence on stderr. Whoever closed stderr does not want to hear it.
pub(crate) fn tell(sentence: &str) {
    let _ = writeln!(std::io::stderr(), "leasehold: {sentence}");
}

/// Writes to stdout what was asked for. A reader that has gone, such as `head`, has read enough.
pub(crate) fn print(text: &str) -> Result<u8, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(why) if why.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::system(format!("cannot write to stdout: {why}; redirect it elsewhere")))
        }
        _ => Ok(0),
    }
}
