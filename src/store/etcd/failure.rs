//! What etcd's errors mean for a lease.

use core::error::Error as _;
use std::{
    format,
    string::{String, ToString},
};

use etcd_client::Error;

use super::{address::refused, tls};
use crate::machine::{Applied, StoreError, StoreErrorKind};

/// The failure of a call.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// The error, for a call that was not to write.
    pub(super) error: StoreError,
    /// Whether a write may have taken effect.
    pub(super) in_doubt: bool,
}

/// What was asked for, as far as etcd's limits count it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// What an error says of a server that did not answer within the time limit for connecting.
pub(super) const SILENCE: &str = "did not answer in time";
/// gRPC's number for a method that the server does not have.
const UNIMPLEMENTED: i32 = 12;

impl Failure {
    pub(super) fn certain(error: StoreError) -> Self {
        Self { error, in_doubt: false }
    }

    pub(super) fn in_doubt(message: impl Into<String>) -> Self {
        Self { error: StoreError::transient(message), in_doubt: true }
    }

    /// The time limit passed.
    pub(super) fn late(message: impl Into<String>) -> Self {
        Self { error: StoreError::busy(message), in_doubt: true }
    }

    /// The failure for an error of the client. Unless the error certainly came before a write, the write is in doubt.
    pub(super) fn of(error: &Error, load: Load) -> Self {
        let chain = chain(error);
        match error {
            Error::GRpcStatus(status) => {
                let was_sent = !is_of_connecting(&chain);
                of_status(status.message(), i32::from(status.code()), load).unwrap_or_else(|| {
                    let message = format!("etcd did not answer ({chain})");
                    Self { error: StoreError::transient(message), in_doubt: was_sent }
                })
            }
            Error::InvalidUri(_) | Error::InvalidArgs(_) | Error::InvalidMetadataValue(_) => Self::certain(refused(
                &format!("etcd cannot answer this request; check its address and the user ({chain})"),
            )),
            _ => Self::in_doubt(format!("etcd did not answer ({chain})")),
        }
    }

    /// The error for a call that was to write.
    pub(super) fn of_write(self) -> StoreError {
        match (self.in_doubt, self.error.kind) {
            (true, StoreErrorKind::Busy) => StoreError::unknown(self.error.message),
            (true, _) => StoreError { applied: Applied::Unknown, retry: true, ..self.error },
            (false, _) => self.error,
        }
    }

    /// The error for a call that connects. If the server is not etcd, trying again will not help.
    pub(super) fn of_connecting(self, encrypts: bool) -> StoreError {
        let text = self.error.message.clone();
        let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
        if let Some(sentence) = tls::sentence_for(&text) {
            return refused(&format!("{sentence} ({text})"));
        }
        if has(&[tls::NAMED]) {
            return refused(&text);
        }
        let sentence = if has(&["http2 error", "protocol error", "invalid HTTP"]) {
            "the server there is not etcd, or it wants TLS; name the port for clients, usually 2379, or begin the address with etcds://"
        } else {
            // A server that is shutting down hangs up as well, so trying again may help.
            let nobody =
                "etcd gives no answer; check the host and the port in its address, and that it runs and has a leader";
            let nobody = has(&["Connection refused", "timed out", "unreachable", SILENCE]).then_some(nobody);
            // Without a network, no name can be resolved either, so trying again may help.
            let unknown =
                "the host name cannot be resolved; check the address of etcd, and the network and DNS of this machine";
            let nobody = if has(&["dns error"]) { Some(unknown) } else { nobody };
            let hint = tls::hint_for(&text, encrypts).or(nobody).map(|hint| format!("{hint} ({text})"));
            let kind = match self.error.kind {
                StoreErrorKind::Busy => StoreErrorKind::Unavailable,
                kind => kind,
            };
            return StoreError { kind, message: hint.unwrap_or(text), ..self.error };
        };
        refused(&format!("{sentence} ({text})"))
    }
}

/// What etcd itself said, if it is something that tells more than that a call failed.
fn of_status(said: &str, code: i32, load: Load) -> Option<Failure> {
    let because = |sentence: String| refused(&format!("{sentence} (etcd: {said})"));
    let too_large = |sentence: String| StoreError { kind: StoreErrorKind::TooLarge, ..because(sentence) };
    let has = |words: &str| said.contains(words);
    let Load { rows, bytes } = load;
    let error = if has("too many operations") {
        too_large(format!(
            "a transaction of {rows} rows is more than this etcd takes at once; start it with --max-txn-ops={} or more, or ask for fewer \
             keys at once",
            rows.next_power_of_two()
        ))
    } else if has("request is too large") || has("larger than max") {
        too_large(format!(
            "a transaction of {bytes} bytes is more than this etcd takes at once; start it with a larger --max-request-bytes (it has \
             1572864 unless told), or keep the queue and the info of the leases shorter"
        ))
    } else if has("permission denied") {
        because("this user may not do that; grant it readwrite on all keys with the prefix of the leases".into())
    } else if has("authentication failed") || has("user name is empty") {
        because("etcd refused the user or the password; put user:password@ before the host".into())
    } else if has("authentication is not enabled") {
        because("this etcd knows no users; leave user:password@ out of its address".into())
    } else if has("database space exceeded") {
        // The server that found this out has written all the same.
        let message = format!(
            "etcd has no room left; free some with etcdctl compact and etcdctl defrag, then run etcdctl alarm disarm (etcd: {said})"
        );
        let error = StoreError { kind: StoreErrorKind::Quota, ..StoreError::transient(message) };
        return Some(Failure { error, in_doubt: true });
    } else if has("invalid auth token") || has("auth store is old") || has("too many requests") {
        StoreError::transient(format!("etcd rejected the request (etcd: {said})"))
    } else if has("requested lease not found") {
        // Every server notices this before it writes anything. A transaction is then sent without its messages; a message that is sent
        // separately gets another etcd lease.
        because("the etcd lease that removes old messages has ended; try again".into())
    } else if code == UNIMPLEMENTED {
        because("the server there is not etcd; name the port for clients, usually 2379".into())
    } else {
        return None;
    };
    Some(Failure::certain(error))
}

/// Before there is a connection, nothing is sent.
fn is_of_connecting(chain: &str) -> bool {
    ["tcp connect error", "dns error", "Connection refused"].iter().any(|words| chain.contains(words))
}

/// An error with all its causes: only the last of them tells what happened.
fn chain(error: &Error) -> String {
    let mut text = match error {
        Error::GRpcStatus(status) => status.message().to_string(),
        other => other.to_string(),
    };
    let mut cause = match error {
        Error::GRpcStatus(status) => status.source(),
        Error::TransportError(error) => error.source(),
        _ => None,
    };
    while let Some(error) = cause {
        let told = error.to_string();
        if !text.contains(&told) {
            text = format!("{text}: {told}");
        }
        cause = error.source();
    }
    text
}
