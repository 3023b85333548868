//! Encrypted connections, where the URL of a store asks for them: what all such stores share.

#[cfg(any(feature = "store-postgres", feature = "store-redis", feature = "store-etcd"))]
mod certificates;
#[cfg(any(feature = "store-postgres-tls", feature = "store-redis-tls", feature = "store-etcd-tls"))]
mod pem;
#[cfg(any(feature = "store-postgres", feature = "store-redis", feature = "store-etcd"))]
mod percent;
#[cfg(any(feature = "store-postgres", feature = "store-postgres-sqlx", feature = "store-redis"))]
mod refusals;

#[cfg(any(feature = "store-postgres", feature = "store-redis", feature = "store-etcd"))]
pub(super) use certificates::Certificates;
#[cfg(any(feature = "store-postgres-tls", feature = "store-redis-tls", feature = "store-etcd-tls"))]
use certificates::NO_FILE;
#[cfg(feature = "store-etcd")]
pub(super) use certificates::taken;
#[cfg(any(feature = "store-postgres-tls", feature = "store-redis-tls", feature = "store-etcd-tls"))]
pub(super) use pem::{Part, pem};
#[cfg(any(feature = "store-postgres", feature = "store-redis", feature = "store-etcd"))]
pub(super) use percent::decoded;
#[cfg(any(feature = "store-postgres", feature = "store-postgres-sqlx", feature = "store-redis"))]
pub(super) use refusals::{SIGN_ANOTHER, is_of_an_authority, is_of_own};
