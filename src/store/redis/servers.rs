//! Which servers keep the leases, as the user names them.

use core::{fmt, str::FromStr};
use std::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use redis::{Client, RedisConnectionInfo};

use super::{failure, node::address_of, tls};
use crate::{
    machine::StoreError,
    store::{tls::Certificates, url::prefix_remedy},
};

const FRAGMENT: &str = "an address of Redis must have no #, because #insecure would leave certificates unverified; leave out #insecure, and \
    name the authority by ca= in the URL, or let the system trust it; in a user, a password or a path, write # as %23";

/// The servers that a [`RedisStore`](super::RedisStore) uses: a single one, the master of a Sentinel group, or a cluster.
///
/// At any time the whole store is on one server. The store finds that server, and its successor, in one of these ways:
///
/// | servers | URL | which one keeps the leases |
/// | --- | --- | --- |
/// | a single server | `redis://user:password@host:6379/0`, `unix:///run/redis.sock` | this one |
/// | [Sentinel](Self::sentinel) | `redis-sentinel://user:password@one:26379,two:26379/mymaster/0` | the master that the Sentinels name |
/// | [cluster](Self::cluster) | `redis-cluster://user:password@one:6379,two:6379` | the node that has the slot of the prefix |
///
/// To connect to a group, one reachable server in the URL is enough, but name several in case one is down. The user and the password are
/// for the servers that keep data; `?sentinel_user=` and `?sentinel_password=` are for the Sentinels.
///
/// With `rediss:`, `rediss-sentinel:` and `rediss-cluster:` all connections use TLS, with the feature `store-redis-tls` (rustls and ring)
/// or with a TLS feature of the crate `redis`. The former also takes `?ca=`, the file of the authority that signs the servers'
/// certificates, if the system does not trust it; and `?cert=` and `?key=` for a certificate of the program. Files are in PEM. They are
/// read when the URL is parsed, and again for each new connection, so replaced ones need no new store. A URL with `#insecure`, which the
/// crate `redis` knows, is refused.
///
/// Which to choose: Sentinel and a cluster both replace a server that died, and its latest writes may then be lost. A cluster does not
/// make leases faster, since one store is on one node; choose it if you have one already. Stores with different prefixes are usually on
/// different nodes.
///
/// ```no_run
/// use leasehold::store::{RedisServers, RedisStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let sentinels = [redis::Client::open("redis://10.0.0.1:26379")?, redis::Client::open("redis://10.0.0.2:26379")?];
/// let login = redis::RedisConnectionInfo::default().set_password("secret");
/// let store = RedisStore::from_client(RedisServers::sentinel("mymaster", sentinels, login)).await?;
/// # drop(store);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisServers {
    pub(super) servers: Servers,
    /// Those that the URL names.
    pub(super) files: Certificates,
}

#[derive(Clone)]
pub(super) enum Servers {
    Single(Client),
    Sentinel { name: String, sentinels: Vec<Client>, login: RedisConnectionInfo },
    Cluster(Vec<Client>),
}

impl RedisServers {
    /// The master that Sentinels know as `name`. `login` is the user, the password and the database of the master and of the replicas that
    /// may succeed it. Their connections use TLS if those to the first Sentinel do.
    ///
    /// The store asks the Sentinels whenever it connects, and follows them to the new master after a failover.
    pub fn sentinel(name: &str, sentinels: impl IntoIterator<Item = Client>, login: RedisConnectionInfo) -> Self {
        Servers::Sentinel { name: name.to_string(), sentinels: sentinels.into_iter().collect(), login }.into()
    }

    /// A cluster, given by some of its nodes. The user, password and TLS of the first one are used for all nodes that the cluster reports.
    ///
    /// All names of a store have its prefix in braces, as in `{leasehold}:rows`: the prefix is their hash tag, so they are in one slot. The
    /// store connects to the node that has this slot, and follows the slot when it is migrated or when a replica is promoted.
    pub fn cluster(nodes: impl IntoIterator<Item = Client>) -> Self {
        Servers::Cluster(nodes.into_iter().collect()).into()
    }
}

impl From<Client> for RedisServers {
    /// A single server.
    fn from(client: Client) -> Self {
        Servers::Single(client).into()
    }
}

impl From<Servers> for RedisServers {
    fn from(servers: Servers) -> Self {
        Self { servers, files: Certificates::default() }
    }
}

impl FromStr for RedisServers {
    type Err = StoreError;

    /// # Errors
    /// [`StoreError`] of kind `Unsupported`, with a remedy, if the URL is invalid. No error shows the URL: it may hold a password.
    fn from_str(url: &str) -> Result<Self, StoreError> {
        // Whether the client heeds it depends on its TLS library, which any part of the program may choose.
        if url.contains('#') {
            return Err(failure::unsupported(FRAGMENT));
        }
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let mut parameters = query.split('&').filter(|one| !one.is_empty()).collect();
        // Only the URL of an encrypted connection may name certificates. If there is an `@` after the question mark, all of it up to the
        // `@` may be a part of the password.
        let files = match place.starts_with("rediss") && !query.contains('@') {
            true => Certificates::taken(["ca", "cert", "key"], &mut parameters)?,
            false => Certificates::default(),
        };
        let Some((scheme, kind)) = url.split_once("://").and_then(|(scheme, _)| scheme.split_once('-')) else {
            check_parameters(place, query, &parameters)?;
            return Ok(Self { servers: Servers::Single(tls::open(url, &files)?), files });
        };
        let parts = Parts::of(place, query, &parameters, (scheme, &files));
        parts.check_login()?;
        let servers = match kind {
            "sentinel" => parts.sentinel()?,
            "cluster" => parts.cluster()?,
            // The library says what is wrong with it.
            _ => tls::open(url, &files)?.into(),
        };
        Ok(Self { files, ..servers })
    }
}

/// Refuses the parameters that the client would ignore: those that it does not know, such as a prefix, and those of a socket in the URL of
/// a host.
fn check_parameters(place: &str, query: &str, parameters: &[&str]) -> Result<(), StoreError> {
    let is_socket = place.split(':').next().is_some_and(|scheme| scheme.ends_with("unix"));
    let (known, listed): (&[_], _) = if is_socket {
        (&["db", "user", "pass", "protocol"], "db, user, pass and protocol")
    } else if place.starts_with("rediss") {
        (&["protocol"], "protocol, ca, cert and key")
    } else {
        (&["protocol"], "protocol")
    };
    let is_unknown = |one: &&&str| one.split_once('=').is_none_or(|(name, _)| !known.contains(&name));
    let Some(unknown) = parameters.iter().find(is_unknown) else { return Ok(()) };
    let (name, value) = unknown.split_once('=').unwrap_or((unknown, ""));
    let remedy = match name {
        "db" => {
            // Anything else may be part of a password with a question mark.
            let is_number = value.bytes().all(|digit| digit.is_ascii_digit()) && !query.contains('@');
            format!(
                "; the database is written after the host, as in redis://host:6379/{}",
                if is_number { value } else { "0" }
            )
        }
        "user" | "pass" => {
            "; user and password are written before the host, as in redis://user:password@host:6379/0".into()
        }
        "ca" | "cert" | "key" if place.starts_with("rediss") => {
            "; percent-encode special characters in file names and in the password, for example @ as %40".into()
        }
        "ca" | "cert" | "key" => "; certificates are for TLS, so begin the URL with rediss://".into(),
        _ => format!("; {}", prefix_remedy("connect_with_prefix")),
    };
    let scheme = if place.starts_with("rediss") { "rediss:" } else { "redis:" };
    Err(unknown_parameter(scheme, (name, query), &format!("{listed}{remedy}")))
}

/// The parts of a URL that names several servers.
struct Parts<'a> {
    /// The scheme for a single server, with TLS or without it.
    scheme: &'a str,
    /// User and password, with the `@` that follows.
    login: &'a str,
    hosts: &'a str,
    path: Vec<&'a str>,
    /// What follows the question mark.
    query: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    files: &'a Certificates,
}

impl<'a> Parts<'a> {
    fn of(
        place: &'a str,
        query: &'a str,
        parameters: &[&'a str],
        (scheme, files): (&'a str, &'a Certificates),
    ) -> Self {
        let rest = place.split_once("://").map_or("", |(_, rest)| rest);
        let (servers, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = servers.split_at(servers.rfind('@').map_or(0, |at| at + 1));
        Self {
            scheme,
            login,
            hosts,
            path: path.strip_suffix('/').unwrap_or(path).split('/').collect(),
            query,
            parameters: parameters.iter().map(|one| one.split_once('=').unwrap_or((one, ""))).collect(),
            files,
        }
    }

    /// Refuses a comma or a second @, because a server would be taken for the user or a part of the password.
    fn check_login(&self) -> Result<(), StoreError> {
        if self.login.matches('@').count() < 2 && !self.login.contains(',') {
            return Ok(());
        }
        Err(failure::unsupported(
            "before the last @ in the URL there is a comma or another @; write user:password@ once, before the first server, and \
             percent-encode each @ in the user and the password as %40, and each comma as %2C",
        ))
    }

    /// A client of each server; one without a port listens at `port`.
    fn clients(&self, login: &str, port: u16) -> Result<Vec<Client>, StoreError> {
        let hosts = self.hosts.split(',').filter(|host| !host.is_empty());
        let clients = hosts.map(|host| {
            // The colons in brackets are those of an IPv6 address.
            let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
            let port = if has_port { String::new() } else { format!(":{port}") };
            tls::open(&format!("{}://{login}{host}{port}", self.scheme), self.files)
        });
        clients.collect()
    }

    /// The parameters that may stand in such a URL.
    fn known(&self, plain: &str) -> String {
        if self.scheme == "rediss" { format!("ca, cert, key, {plain}") } else { plain.to_string() }
    }

    fn sentinel(&self) -> Result<RedisServers, StoreError> {
        let (mut user, mut password) = ("", "");
        for (name, value) in &self.parameters {
            match *name {
                "sentinel_user" => user = value,
                "sentinel_password" => password = value,
                _ => {
                    let known = self.known("sentinel_user, sentinel_password and prefix");
                    return Err(unknown_parameter(&format!("{}-sentinel:", self.scheme), (name, self.query), &known));
                }
            }
        }
        let (name, database) = match self.path.as_slice() {
            [name] if !name.is_empty() => (*name, "0"),
            [name, database] if !name.is_empty() => (*name, *database),
            _ => {
                return Err(failure::unsupported(
                    "a URL of redis-sentinel: names the Sentinels, the master and its database; write \
                     redis-sentinel://user:password@one:26379,two:26379/mymaster/0",
                ));
            }
        };
        let own = if user.is_empty() && password.is_empty() { String::new() } else { format!("{user}:{password}@") };
        // The library decodes the password and the number, as it does in the URL of a single server.
        let master = tls::open(&format!("{}://{}master/{database}", self.scheme, self.login), self.files)?;
        let login = master.get_connection_info().redis_settings().clone();
        Ok(RedisServers::sentinel(name, self.clients(&own, 26_379)?, login))
    }

    fn cluster(&self) -> Result<RedisServers, StoreError> {
        if let Some((name, _)) = self.parameters.first() {
            let scheme = format!("{}-cluster:", self.scheme);
            return Err(unknown_parameter(&scheme, (name, self.query), &self.known("prefix")));
        }
        if !matches!(self.path.as_slice(), ["" | "0"]) {
            return Err(failure::unsupported(
                "a cluster has database 0 only; write redis-cluster://user:password@one:6379,two:6379, and choose a prefix",
            ));
        }
        Ok(RedisServers::cluster(self.clients(self.login, 6_379)?))
    }
}

fn unknown_parameter(scheme: &str, (name, query): (&str, &str), known: &str) -> StoreError {
    // A password may contain a question mark and ampersands. Then the `@` after it is in the query, maybe in another parameter, and the
    // error must show nothing of the query.
    let is_plain = name.bytes().all(|letter| letter.is_ascii_lowercase() || letter == b'_') && !query.contains('@');
    let named = if is_plain { format!("parameter {name:?}") } else { "such parameter".to_string() };
    failure::unsupported(format!("a {scheme} URL takes no {named}; it takes only {known}"))
}

impl fmt::Debug for RedisServers {
    /// Without any password.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = |clients: &[Client]| clients.iter().map(address_of).collect::<Vec<_>>();
        match &self.servers {
            Servers::Single(client) => out.debug_tuple("Single").field(&address_of(client)).finish(),
            Servers::Sentinel { name, sentinels, .. } => {
                out.debug_tuple("Sentinel").field(name).field(&addresses(sentinels)).finish()
            }
            Servers::Cluster(nodes) => out.debug_tuple("Cluster").field(&addresses(nodes)).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> RedisServers {
        url.parse().expect("it is the URL of servers")
    }

    #[test]
    fn a_url_names_one_server_or_several() {
        let shown = |url| format!("{:?}", parsed(url));
        assert_eq!(shown("redis://host"), "Single(\"host:6379\")");
        assert_eq!(shown("redis+unix:///a.sock?db=3&user=u&pass=p&protocol=3"), "Single(\"/a.sock\")");
        assert_eq!(shown("redis-sentinel://a,b:1/m"), "Sentinel(\"m\", [\"a:26379\", \"b:1\"])");
        assert_eq!(shown("redis-cluster://u:p@a:7000,[::1]/0"), "Cluster([\"a:7000\", \"::1:6379\"])");
    }

    #[test]
    fn masters_and_sentinels_have_passwords_of_their_own() {
        let url = "redis-sentinel://me:p%40ss@a,b/m/3?sentinel_user=s&sentinel_password=own%2F";
        let Servers::Sentinel { sentinels, login, .. } = parsed(url).servers else { panic!("it names Sentinels") };
        assert_eq!((login.username(), login.password(), login.db()), (Some("me"), Some("p@ss"), 3));
        let own = sentinels[1].get_connection_info().redis_settings();
        assert_eq!((own.username(), own.password(), own.db()), (Some("s"), Some("own/"), 0));
    }

    #[test]
    fn a_url_that_does_not_name_servers_is_refused_and_not_shown() {
        for (url, remedy) in [
            ("redis-sentinel://:secret@a:1", "/mymaster/0"),
            ("redis-sentinel://:secret@a:1//m/0", "/mymaster/0"),
            ("redis-sentinel://:secret@a:1/m/0/more", "/mymaster/0"),
            ("redis-sentinel://:secret@a:1/m?sentinel_pass=secret", "\"sentinel_pass\"; it takes only sentinel_user"),
            ("redis-sentinel://:se?secret@a:1/m", "takes no such parameter; it takes only sentinel_user"),
            ("redis://:secret@a:1/0?protcol=secret", "\"protcol\"; it takes only protocol"),
            (
                "redis://:secret@a:1?db=3",
                "\"db\"; it takes only protocol; the database is written after the host, as in redis://host:6379/3",
            ),
            ("rediss://:secret@a:1?protocol=3&db=x", "redis://host:6379/0"),
            (
                "redis://a:1?user=me&pass=secret",
                "\"user\"; it takes only protocol; user and password are written before the host",
            ),
            ("redis://a:1?pass=secret", "redis://user:password@host:6379/0"),
            ("unix:///a.sock?db=3&prefx=secret", "\"prefx\"; it takes only db, user, pass and protocol"),
            ("redis://:se?cret=secret@a:1/0", "no such parameter"),
            ("redis://:se?secret&x@a:1/0", "no such parameter"),
            ("redis://:se?db=7315&x@a:1/0", "redis://host:6379/0"),
            ("redis-sentinel://:se?secret&x@a:1/m", "no such parameter"),
            ("redis-cluster://:se?secret&x@a:1/", "no such parameter"),
            ("redis-sentinel://:secret@a:1/m/secret", "redis://user:password@host:6379/0"),
            ("redis-cluster://:secret@a:1/1", "choose a prefix"),
            ("redis-cluster://:secret@a:1/?prefx=secret", "\"prefx\"; it takes only prefix"),
            ("redis-secret://a:1", "redis-cluster://"),
            ("redis-cluster://me:secret@a:1,me:secret@b:1", "user:password@ once, before the first server"),
            ("redis-cluster://a:1,me:secret@b:1", "user:password@ once, before the first server"),
            ("redis-sentinel://me:se,secret@a:1/m", "each comma as %2C"),
            ("rediss://:se?ca=secret@a:1/0", "no such parameter"),
            ("rediss://a:1?ca=/secret@b/ca.pem", "@ as %40"),
            ("redis://a:1?ca=secret", "begin the URL with rediss://"),
            ("rediss-cluster://a:1?cert=secret", "cert= and key="),
            ("rediss://:secret@a:1/0#insecure", "leave out #insecure, and name the authority by ca="),
            ("rediss://:secret@a:1/0?ca=c.pem#insecure", "leave out #insecure"),
            ("redis://:secret@a:1/0#insecure", "leave out #insecure"),
            ("rediss-sentinel://:secret@a:1/m/0#insecure", "leave out #insecure"),
            ("rediss-cluster://:secret@a:1#insecure", "leave out #insecure"),
            ("redis://:se#cret@a:1/0", "# as %23"),
            ("rediss-sentinel://a:1/m?sentinel_password=se#cret", "# as %23"),
            ("redis+unix:///a#secret.sock", "# as %23"),
            ("rediss-cluster://a:1/?prefx=secret", "a rediss-cluster: URL takes no parameter \"prefx\""),
            ("rediss-sentinel://a:1/m?prefx=secret", "a rediss-sentinel: URL takes no parameter \"prefx\""),
            ("redis-sentinel://a:1/m?prefx=secret", "a redis-sentinel: URL takes no parameter \"prefx\""),
        ] {
            let error = url.parse::<RedisServers>().expect_err(url);
            assert!(error.message.contains(remedy) && !error.retry, "{error}");
            assert!(!error.message.contains("secret"), "{error}");
        }
    }
}
