//! Opens a store by its URL, so that an application's configuration can choose it. Each store has an
//! `impl FromUrl`, which reads the parts of a URL that concern it.

#[cfg(all(
    any(feature = "store-postgres", feature = "store-redis", feature = "store-etcd"),
    not(all(target_family = "wasm", target_os = "unknown"))
))]
mod client;
mod parts;

use std::{boxed::Box, format, string::String, vec::Vec};

use super::{MemoryStore, Store};
use crate::executor::{MaybeSend, MaybeSendFuture};
use crate::machine::{StoreError, StoreErrorKind};

#[cfg(all(
    any(feature = "store-postgres", feature = "store-redis", feature = "store-etcd"),
    not(all(target_family = "wasm", target_os = "unknown"))
))]
pub(super) use client::prefix_remedy;
pub(super) use parts::Parts;

const UNCLEAR: &str = "it is unclear where the parameters begin in the URL, or one of them cannot be used; percent-encode each @ and ? in \
    the user, the password and the parameters, @ as %40 and ? as %3F";

/// The schemes that a URL may begin with, and the feature that enables each store.
const SCHEMES: [(&str, Option<&str>); 14] = [
    ("memory", None),
    ("sqlite", Some("store-sqlite")),
    ("postgres", Some("store-postgres")),
    ("postgresql", Some("store-postgres")),
    ("redis", Some("store-redis")),
    ("rediss", Some("store-redis-tls")),
    ("redis+unix", Some("store-redis")),
    ("redis-sentinel", Some("store-redis")),
    ("redis-cluster", Some("store-redis")),
    ("rediss-sentinel", Some("store-redis-tls")),
    ("rediss-cluster", Some("store-redis-tls")),
    ("etcd", Some("store-etcd")),
    ("etcds", Some("store-etcd-tls")),
    ("indexeddb", Some("web")),
];

/// A store that a URL can name.
pub(super) trait FromUrl: Store + Sized {
    /// Checks what the URL says, without opening the store.
    fn check_url(url: &Parts<'_>) -> Result<(), StoreError>;

    /// Opens the store that a checked URL names, and creates the tables that it needs.
    fn open_url(url: &Parts<'_>) -> impl Future<Output = Result<Self, StoreError>> + MaybeSend;
}

type Opening<'a> = MaybeSendFuture<'a, Result<Box<dyn Store>, StoreError>>;

/// The two functions of [`FromUrl`], of whichever store it is.
struct Opener {
    check: fn(&Parts<'_>) -> Result<(), StoreError>,
    open: for<'a> fn(&'a Parts<'a>) -> Opening<'a>,
}

impl Opener {
    fn of<S: FromUrl>() -> Self {
        Self {
            check: S::check_url,
            open: |url| Box::pin(async move { Ok(Box::new(S::open_url(url).await?) as Box<dyn Store>) }),
        }
    }

    /// `None` if no store of this program takes such URLs.
    fn for_scheme(scheme: &str) -> Option<Self> {
        Some(match scheme {
            "memory" => Self::of::<MemoryStore>(),
            #[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
            "indexeddb" => Self::of::<super::IndexedDbStore>(),
            #[cfg(all(feature = "store-sqlite-unbundled", not(all(target_family = "wasm", target_os = "unknown"))))]
            "sqlite" => Self::of::<super::SqliteStore>(),
            #[cfg(all(feature = "store-postgres", not(all(target_family = "wasm", target_os = "unknown"))))]
            "postgres" | "postgresql" => Self::of::<super::PostgresStore>(),
            // Those that it does not know, such as `redis-sentinels`, it refuses itself.
            #[cfg(all(feature = "store-redis", not(all(target_family = "wasm", target_os = "unknown"))))]
            _ if scheme == "redis+unix" || matches!(scheme.split('-').next(), Some("redis" | "rediss")) => {
                Self::of::<super::RedisStore>()
            }
            #[cfg(all(feature = "store-etcd", not(all(target_family = "wasm", target_os = "unknown"))))]
            "etcd" | "etcds" | "http" | "https" => Self::of::<super::EtcdStore>(),
            _ => return None,
        })
    }
}

/// Opens the store that a URL names, and creates the tables that it needs. Use it with
/// [`LeaseManager::builder`](crate::LeaseManager::builder) to set options of the manager.
/// [`LeaseManager::from_url`](crate::LeaseManager::from_url) is shorter, and sets none.
///
/// | URL | store | feature |
/// | --- | --- | --- |
/// | `memory:` | a new [`MemoryStore`], shared with no other manager | |
/// | `sqlite:leases.db`, `sqlite:/var/lib/app/leases.db`, `sqlite:///var/lib/app/leases.db` | `SqliteStore` | `store-sqlite` |
/// | `postgres://user:password@host/database` | `PostgresStore` | `store-postgres` |
/// | `postgres://user:password@host/database?sslmode=require&sslrootcert=/etc/app/ca.pem`, with more parameters of `PostgresStore::connect` | the same, over TLS | `store-postgres-tls` |
/// | `redis://user:password@host:6379/0`, `redis+unix:///run/redis.sock` | `RedisStore` | `store-redis` |
/// | `redis-sentinel://user:password@one:26379,two:26379/mymaster/0` | `RedisStore`, over the master that Sentinels name | `store-redis` |
/// | `redis-cluster://user:password@one:6379,two:6379` | `RedisStore`, in one slot of a cluster | `store-redis` |
/// | `rediss://…?ca=/etc/app/ca.pem`, with more parameters of `RedisServers`; also `rediss-sentinel://` and `rediss-cluster://` | the same, over TLS | `store-redis-tls`; without certificates in the URL, `store-redis` with a TLS feature of the crate `redis` is enough |
/// | `etcd://one:2379,two:2379,three:2379`; also `http://`, and endpoints as for `etcdctl`, such as `http://one:2379,http://two:2379` | `EtcdStore` | `store-etcd` |
/// | `etcds://one:2379,two:2379?ca=/etc/app/ca.pem`, with more parameters of `EtcdStore::connect`; also `https://` | the same, over TLS | `store-etcd-tls` |
/// | `indexeddb:my-app` | `IndexedDbStore`, in browsers | `web` |
///
/// `?prefix=jobs` chooses a prefix for the names of the tables or keys, except with `memory:` and `indexeddb:`. With PostgreSQL,
/// `?signals=off` turns signals off, as `PostgresStoreBuilder::without_signals` does, for a pooler such as pgbouncer in transaction mode;
/// `?signals=beacons` adds beacons, as `with_beacons` does.
/// The prefix and the path of a file are used as written, without percent-decoding. The path ends at the first `?`.
///
/// # Errors
/// [`StoreError`] of kind `Unsupported` if there is no store for the URL, or its feature is off; and any error from opening that store.
///
/// # Cancel safety
/// If the future is dropped, nothing stays open. The store's file or tables may have been created, with SQLite even a moment later.
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
    let url = Parts::of(url)?;
    (checked(&url)?.open)(&url).await
}

/// Checks a URL as far as that is possible without opening the store: its scheme, the features of this program, its parameters and its
/// prefix. A URL that passes may still name a file or a server that does not exist.
///
/// # Errors
/// The [`StoreError`] that [`from_url`] reports for such a URL, of kind `Unsupported`.
///
/// ```
/// use leasehold::store;
///
/// assert!(store::check_url("memory:").is_ok());
/// assert!(store::check_url("carrier-pigeon:here").is_err());
/// ```
pub fn check_url(url: &str) -> Result<(), StoreError> {
    checked(&Parts::of(url)?).map(drop)
}

/// Checks the URL itself, without opening what it names.
fn checked(url: &Parts<'_>) -> Result<Opener, StoreError> {
    if url.second_prefix.is_some() {
        return Err(refused(format!("the prefix is given twice in a URL of {}:; leave one out", url.scheme)));
    }
    let opener = Opener::for_scheme(url.scheme).ok_or_else(|| nothing(url));
    let checked = opener.and_then(|opener| (opener.check)(url).map(|()| opener));
    checked.map_err(|error| if url.is_unclear() { refused(UNCLEAR.into()) } else { error })
}

/// The error if no store of this program takes the URL.
fn nothing(url: &Parts<'_>) -> StoreError {
    let encrypts = ["sslmode=require", "sslmode=verify", "sslrootcert="];
    let encrypts = |parameter: &&str| encrypts.iter().any(|begin| parameter.starts_with(begin));
    // For the other stores the scheme says so.
    let encrypts = url.scheme.starts_with("postgres") && url.others.iter().any(encrypts);
    refused(nothing_for(url.scheme, if encrypts { "-tls" } else { "" }))
}

/// Whether PostgreSQL can be used over the application's own pool.
const HAS_POOL: bool = cfg!(any(feature = "store-postgres-sqlx", feature = "store-postgres-deadpool"));

/// `tls` is what follows the name of the feature.
fn nothing_for(scheme: &str, tls: &str) -> String {
    match SCHEMES.iter().find(|(known, _)| *known == scheme) {
        Some(("indexeddb", _)) if cfg!(not(target_family = "wasm")) => {
            "indexeddb: URLs are for browsers; here use sqlite: with the feature store-sqlite".into()
        }
        Some((_, Some(_))) if cfg!(target_family = "wasm") => {
            format!(
                "there is no store for {scheme}: URLs in a browser; use indexeddb: and a name, such as indexeddb:notes"
            )
        }
        Some((_, Some(feature))) => {
            let pool = if *feature == "store-postgres" && HAS_POOL {
                ", or open the store with PostgresStore::from_pool"
            } else {
                ""
            };
            format!(
                "this program was built without the store for {scheme}: URLs; enable leasehold's feature {feature}{tls}{pool}; for the \
                 command line, install leasehold again with --features cli,{feature}{tls}"
            )
        }
        _ if scheme == "http" => nothing_for("etcd", tls),
        _ if scheme == "https" => nothing_for("etcds", tls),
        _ => format!("there is no store for the scheme {scheme:?}; a URL begins with one of {}", schemes()),
    }
}

/// Those that may work on this platform.
fn schemes() -> String {
    let is_here = |scheme: &str| scheme == "memory" || (scheme == "indexeddb") == cfg!(target_family = "wasm");
    let here: Vec<_> =
        SCHEMES.iter().filter(|(scheme, _)| is_here(scheme)).map(|(scheme, _)| format!("{scheme}:")).collect();
    here.join(", ")
}

pub(super) fn refused(sentence: String) -> StoreError {
    StoreError::permanent(StoreErrorKind::Unsupported, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        futures::executor::block_on(from_url(url)).map(|_| ()).expect_err("it is refused").message
    }

    #[test]
    fn what_names_no_store_is_refused_with_those_there_are() {
        for url in [
            "",
            "leases.db",
            "user=app password=secret host=db",
            "password=secret host=127.0.0.1:5432",
            "app/secret@db:5432",
            "mysql://root:se?secret@localhost/app",
            "Sqlite:leases.db",
        ] {
            let message = refusal(url);
            assert!(message.contains("memory:, sqlite:, postgres:"), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
        assert!(refusal("leases.db").contains("\"leases.db\""), "what is no secret is named");
    }

    #[test]
    fn parameters_that_nobody_knows_are_refused_by_name() {
        assert!(refusal("memory:?durable=yes").ends_with("no parameter \"durable\"; leave it out"));
        assert!(refusal("memory:?prefix=jobs").contains("\"prefix\"; leave it out"));
        assert!(!refusal("memory:?Secret@host").contains("Secret"));
        assert!(
            !cfg!(feature = "store-sqlite-unbundled") || refusal("sqlite:a?b").contains("the path cannot have a ?")
        );
        assert!(refusal("memory:shared").contains("no name"));
        assert!(refusal("memory:?prefix=a&prefix=b").contains("the prefix is given twice"));
    }

    #[test]
    fn a_store_of_a_feature_that_is_off_names_the_feature() {
        assert!(refusal("indexeddb:my-app").contains("for browsers"));
        if cfg!(not(feature = "store-postgres")) {
            assert!(refusal("postgres://user:secret@host/app").contains("feature store-postgres,"));
            for url in [
                "postgres://u@h/d?sslmode=require",
                "postgresql://u@h/d?connect_timeout=3&sslmode=verify-full&prefix=jobs",
                "postgres://h/d?sslrootcert=c.pem",
            ] {
                assert!(refusal(url).contains("--features cli,store-postgres-tls"), "{url}");
            }
            assert!(!refusal("postgres://u:se?sslmode=require@h/d").contains("tls"), "it is a part of the password");
        }
        for (url, is_off, feature) in [
            ("rediss://u@h", cfg!(not(feature = "store-redis")), "store-redis-tls"),
            ("rediss-cluster://u@h", cfg!(not(feature = "store-redis")), "store-redis-tls"),
            ("etcds://h", cfg!(not(feature = "store-etcd")), "store-etcd-tls"),
            ("https://h", cfg!(not(feature = "store-etcd")), "store-etcd-tls"),
            ("http://h", cfg!(not(feature = "store-etcd")), "store-etcd"),
        ] {
            assert!(!is_off || refusal(url).contains(&format!("--features cli,{feature}")), "{url}");
        }
    }

    /// A password may have a question mark.
    #[test]
    fn a_part_of_the_password_is_neither_taken_for_a_prefix_nor_shown() {
        let mut urls = Vec::new();
        if cfg!(feature = "store-postgres") {
            urls.extend([
                "postgres://u:a?prefix=hunter2@h/d",
                "postgres://u:a?prefix=hunter2&x@h/d",
                "postgres://u:a@b?prefix=hunter2@h/d",
                "postgres://u:a@b?prefix=Hunter2&x@h/d",
                "postgres://u:a@b?signals=Hunter2&x@h/d",
            ]);
        }
        if cfg!(feature = "store-redis") {
            urls.extend(["redis://:a?prefix=hunter2{@h/0", "redis://:a?prefix=hunter2{&x@h/0"]);
            urls.push("redis://:hunter2?b@h/0?prefix=jobs");
        }
        if cfg!(feature = "store-etcd") {
            urls.extend(["etcd://u:a?prefix=hunter2/&x@h", "etcd://u:a?prefix=hunter2/@h/"]);
            urls.push("etcd://u:hunter2?b@h?prefix=jobs");
        }
        for url in urls {
            let message = refusal(url);
            assert!(message.contains("%3F") && !message.to_lowercase().contains("hunter2"), "{url}: {message}");
        }
        assert!(!cfg!(feature = "store-sqlite-unbundled") || refusal("sqlite:x?prefix=a@b").contains("lower-case"));
        assert!(!cfg!(feature = "store-postgres") || check_url("postgres://u:a?b@h/d?prefix=jobs").is_ok());
        assert!(!cfg!(feature = "store-redis") || check_url("redis://u:p@h/0?prefix=team@site").is_ok());
    }

    #[test]
    fn what_is_wrong_with_a_url_itself_is_found_without_opening_the_store() {
        for url in ["leases.db", "carrier-pigeon:here", "memory:shared", "memory:?durable=yes"] {
            assert_eq!(check_url(url).expect_err(url).message, refusal(url));
        }
        assert!(check_url("memory:").is_ok());
        if cfg!(feature = "store-sqlite-unbundled") {
            for url in ["sqlite:", "sqlite::memory:", "sqlite:x.db?prefix=1a", "sqlite:x.db?colour=red"] {
                assert!(check_url(url).is_err(), "{url}");
            }
            assert!(check_url("sqlite:no/such/folder/x.db?prefix=jobs").is_ok());
        }
        if cfg!(feature = "store-redis") {
            let wrong = ["redis://", "redis://127.0.0.1/x", "redis://h/0?prefx=j", "redis://h/0?prefix=a{b}"];
            wrong.iter().for_each(|url| assert!(check_url(url).is_err(), "{url}"));
            assert!(check_url("redis://no.such.host.invalid/0?prefix=jobs").is_ok());
        }
        if cfg!(feature = "store-postgres") {
            for url in ["postgres://host/db?prefix=a{b}", "postgres://host/db?no_such_option=1"] {
                assert!(check_url(url).is_err(), "{url}");
            }
            let url = "postgres://no.such.host.invalid/db?prefix=jobs&signals=";
            ["off", "beacons"].iter().for_each(|signals| assert!(check_url(&format!("{url}{signals}")).is_ok()));
            for (parameters, remedy) in [("signals=on", "off or beacons"), ("signals=off&signals=off", "leave one out")]
            {
                let error = check_url(&format!("postgres://host/db?{parameters}")).expect_err(parameters);
                assert!(error.message.contains(remedy), "{error}");
            }
        }
        if cfg!(feature = "store-etcd") {
            for url in ["etcd://a?x=1", "etcd://a?prefix=ends/", "etcd://a:port"] {
                assert!(check_url(url).is_err(), "{url}");
            }
            for url in ["etcd://no.such.host.invalid", "http://one:2379,http://two:2379"] {
                assert!(check_url(&format!("{url}?prefix=jobs")).is_ok(), "{url}");
            }
        }
    }
}
