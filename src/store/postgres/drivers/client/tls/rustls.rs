//! By rustls, with ring.

use std::{format, sync::Arc, vec::Vec};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio_postgres::Config;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::{Connector, connector_of, dial::Opening};
use crate::{
    executor::Shared,
    machine::StoreError,
    store::tls::{Certificates, Part, pem},
};

/// Whether this program can encrypt without a connector of the application.
pub(in super::super) const ENCRYPTS: bool = true;

/// Errors about a file contain these words.
const NAMED: &str = "which the URL of the database names";
/// So libpq names the authorities that the system trusts.
const SYSTEM: &str = "system";

/// Reads the files for each connection, because they may have been replaced since the last one.
struct Rereading(Certificates);

impl Connector for Rereading {
    fn connect(&self, config: Config) -> Result<Opening, StoreError> {
        reading(&self.0)?.connect(config)
    }
}

/// A connector that verifies the server's certificate and its name.
pub(in super::super) fn connector_for(files: &Certificates) -> Result<Shared<dyn Connector>, StoreError> {
    // The authorities of the system are many, and take long to read.
    let names_none = files.own.is_none() && files.ca.as_deref().is_none_or(|file| file == SYSTEM);
    if names_none { reading(files) } else { Ok(Shared::new(Rereading(files.clone()))) }
}

fn reading(files: &Certificates) -> Result<Shared<dyn Connector>, StoreError> {
    let roots = match files.ca.as_deref() {
        Some(file) if file != SYSTEM => trusting(file)?,
        _ => trusting_the_system()?,
    };
    // The application may use another provider, so this one is named.
    let config =
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions();
    let config = config
        .map_err(|why| StoreError::transient(format!("TLS cannot be set up: {why}")))?
        .with_root_certificates(roots);
    let mut config = match &files.own {
        None => config.with_no_client_auth(),
        Some((cert, key)) => {
            let shown =
                PrivateKeyDer::from_pem_slice(&pem(key, Part::Key, NAMED)?).map_err(|why| unreadable(key, &why))?;
            config.with_client_auth_cert(certificates(cert)?, shown).map_err(|why| {
                StoreError::transient(format!(
                    "the files {cert:?} and {key:?}, {NAMED}, cannot be used together: {why}"
                ))
            })?
        }
    };
    // PostgreSQL insists on this protocol (ALPN) if TLS begins without a negotiation (sslnegotiation=direct).
    config.alpn_protocols = Vec::from([b"postgresql".to_vec()]);
    Ok(connector_of(MakeRustlsConnect::new(config)))
}

fn trusting(file: &str) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|why| unreadable(file, &why))?;
    }
    Ok(roots)
}

fn trusting_the_system() -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or_else(Default::default, |why| format!(" ({why})"));
        return Err(StoreError::transient(format!(
            "this system trusts no certificate authority{why}; install its package ca-certificates, or name the authority of the server by \
             sslrootcert="
        )));
    }
    Ok(roots)
}

fn certificates(file: &str) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem(file, Part::Certificate, NAMED)?).collect();
    read.map_err(|why| unreadable(file, &why))
}

fn unreadable(file: &str, why: &dyn core::fmt::Display) -> StoreError {
    StoreError::transient(format!("{file:?}, {NAMED}, holds nothing of use: {why}"))
}
