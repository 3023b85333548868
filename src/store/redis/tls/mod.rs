//! Clients whose connections are encrypted, if their URL asks for it.

#[cfg(not(feature = "store-redis-tls"))]
mod absent;
#[cfg(feature = "store-redis-tls")]
mod rustls;

#[cfg(not(feature = "store-redis-tls"))]
pub(super) use absent::{open, provide, renewed};
#[cfg(feature = "store-redis-tls")]
pub(super) use rustls::{open, provide, renewed};
