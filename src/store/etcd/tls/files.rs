//! The files with certificates, as the client reads them.

use std::vec::Vec;

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

use super::{super::failure::Failure, NAMED, Tls};
use crate::store::tls::{Part, pem};

/// Whether this program can encrypt at all.
pub(in super::super) const ENCRYPTS: bool = true;

/// Adds TLS to the options of a connection.
pub(in super::super) fn encrypt(options: ConnectOptions, tls: &Tls) -> Result<ConnectOptions, Failure> {
    let trust = match &tls.files.ca {
        Some(file) => TlsOptions::new().ca_certificate(Certificate::from_pem(read(file, Part::Certificate)?)),
        None => TlsOptions::new().with_native_roots(),
    };
    let shown = match &tls.files.own {
        Some((cert, key)) => trust.identity(Identity::from_pem(read(cert, Part::Certificate)?, read(key, Part::Key)?)),
        None => trust,
    };
    Ok(options.with_tls(match &tls.server_name {
        Some(name) => shown.domain_name(name),
        None => shown,
    }))
}

/// Reads a file.
fn read(file: &str, part: Part) -> Result<Vec<u8>, Failure> {
    pem(file, part, NAMED).map_err(Failure::certain)
}
