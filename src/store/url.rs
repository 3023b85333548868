//! A store by its URL: which one an application uses is then a matter of its settings.

use std::{boxed::Box, format, string::String};

use super::{MemoryStore, Store};
use crate::machine::{StoreError, StoreErrorKind};

/// The schemes that a URL may begin with, and the feature that brings each store.
const SCHEMES: [(&str, Option<&str>); 4] =
    [("memory", None), ("indexeddb", Some("web")), ("sqlite", Some("store-sqlite")), ("etcd", Some("store-etcd"))];

/// Opens the store that a URL names. [`LeaseManager::from_url`](crate::LeaseManager::from_url) is the short way; this one is for
/// `LeaseManager::builder(store::from_url(url).await?, executor)`.
///
/// | URL | store | feature |
/// | --- | --- | --- |
/// | `memory:` | a [`MemoryStore`] of its own | |
/// | `sqlite:leases.db`, `sqlite:/var/lib/app/leases.db`, `sqlite:///var/lib/app/leases.db` | `SqliteStore` | `store-sqlite` |
/// | `etcd://one:2379,two:2379,three:2379`, `etcd://user:password@one:2379` | `EtcdStore` | `store-etcd` |
/// | `indexeddb:my-app` | `IndexedDbStore`, in browsers | `web` |
///
/// `?prefix=jobs` chooses what the names of the tables, or of the keys, begin with.
///
/// # Errors
/// [`StoreError`] of kind `Unsupported` if there is no store for the URL, or its feature is off; and whatever opening that store
/// reports.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::{LeaseManager, executor::TokioExecutor, store};
///
/// let url = std::env::var("LEASES").unwrap_or("memory:".into());
/// let leases = LeaseManager::builder(store::from_url(&url).await?, TokioExecutor::new()).instance("worker-1").build()?;
/// # drop(leases);
/// # Ok(()) }
/// ```
pub async fn from_url(url: &str) -> Result<Box<dyn Store>, StoreError> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(refused(format!("{url:?} is no URL of a store; it begins with {}", schemes())));
    };
    let named = Named::parse(rest)?;
    match scheme {
        "memory" => named.memory(),
        #[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
        "indexeddb" => Ok(Box::new(super::IndexedDbStore::open(named.place))),
        #[cfg(all(feature = "store-sqlite-unbundled", not(all(target_family = "wasm", target_os = "unknown"))))]
        "sqlite" => named.sqlite(),
        #[cfg(all(feature = "store-etcd", not(all(target_family = "wasm", target_os = "unknown"))))]
        "etcd" => named.etcd().await,
        _ => Err(refused(nothing_for(scheme))),
    }
}

/// What a URL says after its scheme. No error shows it whole: it may hold a password.
struct Named<'a> {
    place: &'a str,
    prefix: Option<&'a str>,
}

impl<'a> Named<'a> {
    fn parse(rest: &'a str) -> Result<Self, StoreError> {
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut named = Self { place, prefix: None };
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("prefix", prefix)) => named.prefix = Some(prefix),
                _ => {
                    let name = parameter.split('=').next().unwrap_or_default();
                    return Err(refused(format!("the URL of a store has no parameter {name:?}; there is prefix")));
                }
            }
        }
        Ok(named)
    }

    fn memory(&self) -> Result<Box<dyn Store>, StoreError> {
        if self.place.is_empty() && self.prefix.is_none() {
            return Ok(Box::new(MemoryStore::new()));
        }
        Err(refused("a store in memory has no name and no prefix; say memory:, and share the manager".into()))
    }

    #[cfg(all(feature = "store-sqlite-unbundled", not(all(target_family = "wasm", target_os = "unknown"))))]
    fn sqlite(&self) -> Result<Box<dyn Store>, StoreError> {
        let path = self.place.strip_prefix("//").unwrap_or(self.place);
        let store = match self.prefix {
            Some(prefix) => super::SqliteStore::open_with_prefix(path, prefix)?,
            None => super::SqliteStore::open(path)?,
        };
        Ok(Box::new(store))
    }

    #[cfg(all(feature = "store-etcd", not(all(target_family = "wasm", target_os = "unknown"))))]
    async fn etcd(&self) -> Result<Box<dyn Store>, StoreError> {
        let store = match self.prefix {
            Some(prefix) => super::EtcdStore::connect_with_prefix(self.place, prefix).await?,
            None => super::EtcdStore::connect(self.place).await?,
        };
        Ok(Box::new(store))
    }
}

fn nothing_for(scheme: &str) -> String {
    match SCHEMES.iter().find(|(known, _)| *known == scheme) {
        Some((_, Some(feature))) => {
            format!("this program was built without the store of {scheme}: URLs; turn on leasehold's feature {feature}")
        }
        _ => format!("no store is named by {scheme:?}; a URL begins with {}", schemes()),
    }
}

fn schemes() -> String {
    SCHEMES.map(|(scheme, _)| format!("{scheme}:")).join(", ")
}

fn refused(sentence: String) -> StoreError {
    StoreError::permanent(StoreErrorKind::Unsupported, sentence)
}
