//! Messages that a store delivers itself, and beacons that it looks at.

use std::{io, path::Path};

use super::directory;
use crate::machine::{Message, SessionId};

/// Delivers a message to the one session that it is for, by the signals of a store with
/// [`Reach::Machine`](crate::store::Reach::Machine). Returns whether that session listens in the directory.
pub(crate) fn deliver(reach: &Path, message: &Message) -> bool {
    message.body.recipient().is_some_and(|recipient| directory::tell(reach, recipient, message))
}

/// Whether a context is dead: the file of its beacon stands in the directory of the signals, and nobody has it locked. A file that is
/// missing or cannot be opened proves nothing yet.
pub(crate) fn has_fallen(reach: &Path, session: SessionId) -> bool {
    directory::sweep::has_fallen(&directory::beacon::path(reach, session))
}

/// Makes the directory of the signals for those who may use this file.
pub(crate) fn make_directory(directory: &Path, file: &Path) -> io::Result<()> {
    directory::rights::Rights::of(file)?.make_directory(directory)
}
