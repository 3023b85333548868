//! By rustls, with ring.

use std::{format, vec::Vec};

use redis::{Client, ClientTlsConfig, ConnectionAddr, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};

use super::super::failure;
use crate::{
    machine::StoreError,
    store::tls::{Certificates, Part, pem},
};

/// Errors about a file contain these words.
const NAMED: &str = "which the address of Redis names";

/// A client for the server at a URL.
///
/// # Errors
/// [`StoreError`] if the URL is invalid, or if a file that it names cannot be used.
pub(in super::super) fn open(url: &str, files: &Certificates) -> Result<Client, StoreError> {
    renewed(Client::open(url).map_err(|error| failure::of_url(&error))?, files)
}

/// The same client with the files as they are now.
///
/// # Errors
/// [`StoreError`] if one of them cannot be used.
pub(in super::super) fn renewed(client: Client, files: &Certificates) -> Result<Client, StoreError> {
    if *files == Certificates::default() {
        return Ok(client);
    }
    let read = |file: &String, part| pem(file, part, NAMED);
    let root_cert = files.ca.as_ref().map(|file| read(file, Part::Certificate)).transpose()?;
    let client_tls = match &files.own {
        Some((cert, key)) => {
            Some(ClientTlsConfig { client_cert: read(cert, Part::Certificate)?, client_key: read(key, Part::Key)? })
        }
        None => None,
    };
    let info = client.get_connection_info().clone();
    Client::build_with_tls(info, TlsCertificates { client_tls, root_cert }).map_err(|error| {
        let own = files.own.iter().flat_map(|(cert, key)| [cert, key]);
        let names: Vec<_> = files.ca.iter().chain(own).map(|file| format!("{file:?}")).collect();
        StoreError::transient(format!("{}, {NAMED}, cannot be used: {error}", names.join(" or ")))
    })
}

/// The client uses the default provider of rustls. If the features of a program bring several, rustls panics unless one was chosen.
pub(in super::super) fn provide(server: &ConnectionAddr) {
    if matches!(server, ConnectionAddr::TcpTls { .. }) && CryptoProvider::get_default().is_none() {
        // It fails if another thread has chosen one meanwhile.
        let _ = ring::default_provider().install_default();
    }
}
