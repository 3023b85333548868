//! A program without a TLS library.

use super::super::{super::super::options::invalid, Connector};
use crate::{executor::Shared, machine::StoreError, store::tls::Certificates};

/// Whether this program can encrypt without a connector of the application.
pub(in super::super) const ENCRYPTS: bool = false;

/// Refuses, and never opens an unencrypted connection instead.
pub(in super::super) fn connector_for(_files: &Certificates) -> Result<Shared<dyn Connector>, StoreError> {
    Err(invalid("this program was built without TLS for PostgreSQL; enable leasehold's feature store-postgres-tls"))
}
