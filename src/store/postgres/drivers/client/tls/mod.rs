//! The connector of a store that encrypts its connections by itself.

#[cfg(not(feature = "store-postgres-tls"))]
mod absent;
#[cfg(feature = "store-postgres-tls")]
mod rustls;

#[cfg(not(feature = "store-postgres-tls"))]
pub(super) use absent::{ENCRYPTS, connector_for};
#[cfg(feature = "store-postgres-tls")]
pub(super) use rustls::{ENCRYPTS, connector_for};
