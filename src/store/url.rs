//! Opens a store by its URL, so that an application's configuration can choose it.

use std::{boxed::Box, format, string::String, vec::Vec};

#[cfg(all(
    any(feature = "store-postgres", feature = "store-redis", feature = "store-etcd"),
    not(all(target_family = "wasm", target_os = "unknown"))
))]
use super::tls::Certificates;
use super::{MemoryStore, Store};
use crate::machine::{StoreError, StoreErrorKind};

/// How to choose a prefix. Only `from_url` reads one from the URL; the functions of a store do not.
#[cfg(all(
    any(feature = "store-redis", feature = "store-etcd"),
    not(all(target_family = "wasm", target_os = "unknown"))
))]
pub(super) const PREFIX_REMEDY: &str =
    "to choose a prefix, write ?prefix= in a URL for store::from_url or the command line, or call connect_with_prefix";

const UNCLEAR: &str = "it is unclear where the parameters begin in the URL, or one of them cannot be used; percent-encode each @ and ? in the user, the \
    password and the parameters, @ as %40 and ? as %3F";

/// The parameter of a PostgreSQL URL that turns signals off, or adds beacons. Only `from_url` reads it, too.
const SIGNALS: &str = "signals=";

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
    let named = Named::of(url)?;
    named.checked()?;
    match named.scheme {
        "memory" => Ok(Box::new(MemoryStore::new())),
        #[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
        "indexeddb" => Ok(Box::new(super::IndexedDbStore::new(named.place))),
        #[cfg(all(feature = "store-sqlite-unbundled", not(all(target_family = "wasm", target_os = "unknown"))))]
        "sqlite" => named.sqlite().await,
        #[cfg(all(feature = "store-postgres", not(all(target_family = "wasm", target_os = "unknown"))))]
        "postgres" | "postgresql" => named.postgres().await,
        #[cfg(all(feature = "store-redis", not(all(target_family = "wasm", target_os = "unknown"))))]
        scheme if is_of_redis(scheme) => named.redis().await,
        #[cfg(all(feature = "store-etcd", not(all(target_family = "wasm", target_os = "unknown"))))]
        "etcd" | "etcds" | "http" | "https" => named.etcd().await,
        _ => Err(named.nothing()),
    }
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
    Named::of(url)?.checked()
}

/// The parts of a URL. No error shows it whole: it may contain a password.
struct Named<'a> {
    scheme: &'a str,
    /// Between the scheme and the parameters.
    place: &'a str,
    prefix: Option<&'a str>,
    /// A second prefix, which is refused.
    second_prefix: Option<&'a str>,
    /// What the URL of a PostgreSQL database says of signals.
    #[allow(dead_code, reason = "only PostgreSQL reads it")]
    signals: Vec<&'a str>,
    /// The other parameters.
    others: Vec<&'a str>,
    /// The prefix, or what is said of signals, may belong to a password with a question mark, or follow one. No file has a password.
    is_unclear: bool,
}

impl<'a> Named<'a> {
    fn of(url: &'a str) -> Result<Self, StoreError> {
        // A secret that is read from a file often ends in a line break. The URL would then name another SQLite file, which nobody else
        // uses.
        let is_quote = |end: char| matches!(end, '"' | '\'');
        if url.trim() != url || url.starts_with(is_quote) || url.ends_with(is_quote) {
            return Err(refused(
                "the URL begins or ends with a space, a line break or a quotation mark; remove it".into(),
            ));
        }
        Self::parse(url).ok_or_else(|| {
            // Anything but a plain name may contain a password.
            let is_plain = url.chars().all(|letter| letter.is_alphanumeric() || "./_-".contains(letter));
            let shown = if is_plain { format!("{url:?}") } else { "what was given".into() };
            refused(format!("{shown} is not the URL of a store; such a URL begins with one of {}", schemes()))
        })
    }

    /// Checks the URL itself, without opening what it names.
    fn checked(&self) -> Result<(), StoreError> {
        if self.second_prefix.is_some() {
            return Err(refused(format!("the prefix is given twice in a URL of {}:; leave one out", self.scheme)));
        }
        self.checked_by_store().map_err(|error| if self.is_unclear { refused(UNCLEAR.into()) } else { error })
    }

    fn checked_by_store(&self) -> Result<(), StoreError> {
        match self.scheme {
            "memory" => self.check_memory(),
            #[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
            "indexeddb" if self.place.is_empty() => {
                Err(refused("the URL names no store after `indexeddb:`; add a name, as in indexeddb:my-app".into()))
            }
            #[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
            "indexeddb" => self.check(&[]),
            #[cfg(all(feature = "store-sqlite-unbundled", not(all(target_family = "wasm", target_os = "unknown"))))]
            "sqlite" => self.check_sqlite(),
            #[cfg(all(feature = "store-postgres", not(all(target_family = "wasm", target_os = "unknown"))))]
            "postgres" | "postgresql" => {
                self.check_signals()?;
                super::PostgresStore::check_url(&self.without_prefix(), self.prefix)
            }
            #[cfg(all(feature = "store-redis", not(all(target_family = "wasm", target_os = "unknown"))))]
            scheme if is_of_redis(scheme) => super::RedisStore::check_url(&self.without_prefix(), self.prefix),
            #[cfg(all(feature = "store-etcd", not(all(target_family = "wasm", target_os = "unknown"))))]
            "etcd" | "etcds" | "http" | "https" => super::EtcdStore::check_url(&self.without_prefix(), self.prefix),
            _ => Err(self.nothing()),
        }
    }

    /// The error if no store of this program takes the URL.
    fn nothing(&self) -> StoreError {
        let encrypts = ["sslmode=require", "sslmode=verify", "sslrootcert="];
        let encrypts = |parameter: &&str| encrypts.iter().any(|begin| parameter.starts_with(begin));
        // For the other stores the scheme says so.
        let encrypts = self.scheme.starts_with("postgres") && self.others.iter().any(encrypts);
        refused(nothing_for(self.scheme, if encrypts { "-tls" } else { "" }))
    }

    fn parse(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once(':')?;
        // A text that is not a URL may contain a password, as in `password=secret host=::1`.
        if !scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter)) {
            return None;
        }
        // To the client of PostgreSQL, all before the first `@` is the user and the password.
        let login = if scheme.starts_with("postgres") { rest.find('@').unwrap_or(0) } else { 0 };
        let place = &rest[..rest[login..].find('?').map_or(rest.len(), |at| login + at)];
        let query = rest[place.len()..].strip_prefix('?').unwrap_or("");
        let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
        let (prefixes, others): (Vec<_>, Vec<_>) = parameters.partition(|parameter| parameter.starts_with("prefix="));
        let mut prefixes = prefixes.iter().filter_map(|parameter| parameter.strip_prefix("prefix="));
        let (prefix, second_prefix) = (prefixes.next(), prefixes.next());
        let of_signals = |parameter: &&str| scheme.starts_with("postgres") && parameter.starts_with(SIGNALS);
        let (signals, others): (Vec<_>, Vec<_>) = others.into_iter().partition(of_signals);
        let is_read_here = prefix.is_some() || !signals.is_empty() || query.contains("?prefix=");
        let is_unclear = is_read_here && query.contains('@') && !matches!(scheme, "sqlite" | "memory" | "indexeddb");
        Some(Self { scheme, place, prefix, second_prefix, signals, others, is_unclear })
    }

    /// Refuses all parameters except those that the store knows: the prefix, or none.
    fn check(&self, known: &[&str]) -> Result<(), StoreError> {
        let prefix = self.prefix.filter(|_| known.is_empty()).map(|_| "prefix");
        let Some(other) = self.others.first().copied().or(prefix) else { return Ok(()) };
        let name = other.split('=').next().unwrap_or_default();
        // What is no plain name may be a part of a password.
        let is_plain = name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
        let name = if is_plain { name } else { "…" };
        let remedy = if known.is_empty() { "leave it out" } else { "the only one is prefix, and no path has a ?" };
        Err(refused(format!("a URL of {}: has no parameter {name:?}; {remedy}", self.scheme)))
    }

    fn check_memory(&self) -> Result<(), StoreError> {
        self.check(&[])?;
        if self.place.is_empty() {
            return Ok(());
        }
        Err(refused("a store in memory has no name; write memory:, and share the manager".into()))
    }

    /// The path of a file, as written.
    #[cfg(all(feature = "store-sqlite-unbundled", not(all(target_family = "wasm", target_os = "unknown"))))]
    fn path(&self) -> &str {
        self.place.strip_prefix("//").unwrap_or(self.place)
    }

    #[cfg(all(feature = "store-sqlite-unbundled", not(all(target_family = "wasm", target_os = "unknown"))))]
    fn check_sqlite(&self) -> Result<(), StoreError> {
        self.check(&["prefix"])?;
        let path = self.path();
        if path.split('/').next().is_some_and(|host| host.contains('@')) {
            return Err(refused("a URL of sqlite: names a file, and neither a user nor a host; for a file whose name has an @, write ./ before it".into()));
        }
        if path.is_empty() {
            return Err(refused(
                "the URL names no file after `sqlite:`; write sqlite:leases.db or sqlite:/var/lib/app/leases.db".into(),
            ));
        }
        super::SqliteStore::check_names(path, self.prefix)
    }

    #[cfg(all(feature = "store-sqlite-unbundled", not(all(target_family = "wasm", target_os = "unknown"))))]
    async fn sqlite(&self) -> Result<Box<dyn Store>, StoreError> {
        let (path, prefix) = (self.path().to_owned(), self.prefix.map(str::to_owned));
        let (sender, opened) = crate::oneshot::channel();
        // Opening waits for other writers, and must not block the runtime meanwhile.
        let opener = move || {
            sender.send(match prefix {
                Some(prefix) => super::SqliteStore::open_with_prefix(path, &prefix),
                None => super::SqliteStore::open(path),
            });
        };
        let opening = std::thread::Builder::new().name("leasehold opens".into()).spawn(opener);
        opening.map_err(|error| StoreError::transient(format!("no thread could be started: {error}")))?;
        let ended = || Err(StoreError::transient("the thread that opened the file ended early"));
        Ok(Box::new(opened.await.unwrap_or_else(ended)?))
    }

    /// For a client that knows the other parameters.
    #[cfg(all(
        any(feature = "store-postgres", feature = "store-redis", feature = "store-etcd"),
        not(all(target_family = "wasm", target_os = "unknown"))
    ))]
    fn without_prefix(&self) -> String {
        let url = format!("{}:{}", self.scheme, self.place);
        if self.others.is_empty() { url } else { format!("{url}?{}", self.others.join("&")) }
    }

    #[cfg(all(feature = "store-postgres", not(all(target_family = "wasm", target_os = "unknown"))))]
    fn check_signals(&self) -> Result<(), StoreError> {
        let why = match self.signals.as_slice() {
            [] | ["signals=off" | "signals=beacons"] => return Ok(()),
            [_] => "can only be off or beacons; leave it out for signals without beacons",
            _ => "is given twice; leave one out",
        };
        Err(refused(format!("the parameter signals in a URL of {}: {why}", self.scheme)))
    }

    #[cfg(all(feature = "store-postgres", not(all(target_family = "wasm", target_os = "unknown"))))]
    async fn postgres(&self) -> Result<Box<dyn Store>, StoreError> {
        let is_file = |parameter: &&str| *parameter != "sslrootcert=system";
        let files: Vec<_> = self.others.iter().copied().filter(is_file).collect();
        Certificates::check(["sslrootcert", "sslcert", "sslkey"], &files)?;
        let builder = super::PostgresStore::builder(&self.without_prefix());
        let builder = if let Some(prefix) = self.prefix { builder.prefix(prefix) } else { builder };
        let builder = match self.signals.as_slice() {
            ["signals=off"] => builder.without_signals(),
            ["signals=beacons"] => builder.with_beacons(),
            _ => builder,
        };
        let store = builder.connect().await?;
        store.migrate().await?;
        Ok(Box::new(store))
    }

    #[cfg(all(feature = "store-etcd", not(all(target_family = "wasm", target_os = "unknown"))))]
    async fn etcd(&self) -> Result<Box<dyn Store>, StoreError> {
        Certificates::check(["ca", "cert", "key"], &self.others)?;
        let url = self.without_prefix();
        let store = match self.prefix {
            Some(prefix) => super::EtcdStore::connect_with_prefix(&url, prefix).await?,
            None => super::EtcdStore::connect(&url).await?,
        };
        Ok(Box::new(store))
    }

    #[cfg(all(feature = "store-redis", not(all(target_family = "wasm", target_os = "unknown"))))]
    async fn redis(&self) -> Result<Box<dyn Store>, StoreError> {
        Certificates::check(["ca", "cert", "key"], &self.others)?;
        let url = self.without_prefix();
        let store = match self.prefix {
            Some(prefix) => super::RedisStore::connect_with_prefix(&url, prefix).await?,
            None => super::RedisStore::connect(&url).await?,
        };
        Ok(Box::new(store))
    }
}

#[cfg(all(feature = "store-redis", not(all(target_family = "wasm", target_os = "unknown"))))]
fn is_of_redis(scheme: &str) -> bool {
    scheme == "redis+unix" || ["redis", "rediss"].contains(&scheme.split('-').next().unwrap_or_default())
}

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
            format!(
                "this program was built without the store for {scheme}: URLs; enable leasehold's feature {feature}{tls}, for the command \
                 line by cargo install leasehold --features cli,{feature}{tls}"
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

fn refused(sentence: String) -> StoreError {
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
        assert!(!cfg!(feature = "store-sqlite-unbundled") || refusal("sqlite:a?b").contains("no path has a ?"));
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
