//! The files with certificates, as the client reads them.

use std::{format, string::String, vec::Vec};

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

use super::{super::failure::Failure, NAMED, Tls};
use crate::machine::StoreError;

/// Whether this program can encrypt at all.
pub(in super::super) const ENCRYPTS: bool = true;

/// Adds TLS to the options of a connection.
pub(in super::super) fn encrypt(options: ConnectOptions, tls: &Tls) -> Result<ConnectOptions, Failure> {
    let trust = match &tls.ca {
        Some(file) => TlsOptions::new().ca_certificate(Certificate::from_pem(pem(file)?)),
        None => TlsOptions::new().with_native_roots(),
    };
    let shown = match &tls.own {
        Some((cert, key)) => trust.identity(Identity::from_pem(pem(cert)?, pem(key)?)),
        None => trust,
    };
    Ok(options.with_tls(match &tls.server_name {
        Some(name) => shown.domain_name(name),
        None => shown,
    }))
}

/// Reads a file. It may be missing for a moment while somebody replaces it under a running program.
fn pem(file: &str) -> Result<Vec<u8>, Failure> {
    let failed = |what: String| Failure::certain(StoreError::transient(format!("{file:?}, {NAMED}, {what}")));
    let text = std::fs::read(file).map_err(|why| failed(format!("cannot be read ({why})")))?;
    // The client's error would name neither the file nor what is wrong with it.
    let begins = b"-----BEGIN ";
    let is_pem = text.windows(begins.len()).any(|part| part == begins);
    if is_pem { Ok(text) } else { Err(failed("is no PEM file".into())) }
}
