//! Messages that a store delivers itself.

use std::path::Path;

use super::directory;
use crate::machine::Message;

/// Delivers a message to the one session that it is for, by the signals of a store with
/// [`Reach::Machine`](crate::store::Reach::Machine). Returns whether that session listens in the directory.
pub(crate) fn deliver(reach: &Path, message: &Message) -> bool {
    message.body.recipient().is_some_and(|recipient| directory::tell(reach, recipient, message))
}
