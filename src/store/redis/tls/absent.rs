//! A program that may have enabled a TLS library in the crate `redis` itself.

use redis::{Client, ConnectionAddr};

use super::super::failure;
use crate::{machine::StoreError, store::tls::Certificates};

/// A client for the server at a URL.
///
/// # Errors
/// [`StoreError`] if the URL is invalid, asks for TLS that is not there, or names certificates.
pub(in super::super) fn open(url: &str, files: &Certificates) -> Result<Client, StoreError> {
    let client = Client::open(url).map_err(|error| failure::of_url(&error))?;
    if *files == Certificates::default() {
        return Ok(client);
    }
    Err(failure::unsupported(
        "ca, cert and key in the address of Redis need leasehold's feature store-redis-tls; enable it, or give RedisStore::from_client a \
         client made with redis::Client::build_with_tls",
    ))
}

/// The same client: no URL names a file here.
pub(in super::super) fn renewed(client: Client, _files: &Certificates) -> Result<Client, StoreError> {
    Ok(client)
}

/// If the application enabled a TLS library, the application sets it up.
pub(in super::super) fn provide(_server: &ConnectionAddr) {}
