//! A program without a TLS library.

use etcd_client::ConnectOptions;

use super::{
    super::{address::refused, failure::Failure},
    BUILT_WITHOUT, Tls,
};

/// Whether this program can encrypt at all.
pub(in super::super) const ENCRYPTS: bool = false;

/// Refuses, and never opens an unencrypted connection instead.
pub(in super::super) fn encrypt(_options: ConnectOptions, _tls: &Tls) -> Result<ConnectOptions, Failure> {
    Err(Failure::certain(refused(BUILT_WITHOUT)))
}
