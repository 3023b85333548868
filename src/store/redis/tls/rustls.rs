//! By rustls, with ring.

use redis::{Client, ClientTlsConfig, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};

use super::super::failure;
use crate::{
    machine::StoreError,
    store::tls::{Certificates, pem},
};

/// Errors about a file contain these words.
const NAMED: &str = "which the address of Redis names";

/// A client for the server at a URL.
///
/// # Errors
/// [`StoreError`] if the URL is invalid, or if a file that it names cannot be read.
pub(in super::super) fn open(url: &str, files: &Certificates) -> Result<Client, StoreError> {
    if url.starts_with("rediss:") {
        provide();
    }
    if *files == Certificates::default() {
        return Client::open(url).map_err(|error| failure::of_url(&error));
    }
    let read = |file: &String| pem(file, NAMED);
    let root_cert = files.ca.as_ref().map(read).transpose()?;
    let client_tls = match &files.own {
        Some((cert, key)) => Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
        None => None,
    };
    Client::build_with_tls(url, TlsCertificates { client_tls, root_cert }).map_err(|error| failure::of_url(&error))
}

/// The client uses the default provider of rustls. If the features of a program bring several, rustls panics unless one was chosen.
fn provide() {
    if CryptoProvider::get_default().is_none() {
        // It fails if another thread has chosen one meanwhile.
        let _ = ring::default_provider().install_default();
    }
}
