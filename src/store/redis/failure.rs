//! What Redis' errors mean for a transaction, and what to do about them.

use core::{fmt, time::Duration};
use std::{
    format,
    string::{String, ToString},
    sync::atomic::{AtomicBool, Ordering},
};

use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError};

use crate::{
    machine::{StoreError, StoreErrorKind},
    store::tls::{SIGN_ANOTHER, is_of_an_authority, is_of_own},
};

const NO_TLS: &str = "; if it does not speak TLS, write redis://, redis-sentinel:// or redis-cluster://";

/// Whether the command that failed could have written.
#[derive(Clone, Copy)]
pub(super) enum Stage<'a> {
    Reading,
    /// Noted as long as the command is under way: whoever gives up waiting then does not know the outcome.
    Writing(&'a AtomicBool),
}

impl Stage<'_> {
    pub(super) fn begins(self) {
        if let Self::Writing(under_way) = self {
            under_way.store(true, Ordering::Relaxed);
        }
    }

    /// An answer says what was written. A broken connection does not.
    pub(super) fn answered(self, is_answer: bool) {
        if let Self::Writing(under_way) = self {
            under_way.store(!is_answer, Ordering::Relaxed);
        }
    }

    fn error(self, message: String) -> StoreError {
        match self {
            Self::Reading => StoreError::transient(message),
            Self::Writing(_) => StoreError::unknown(message),
        }
    }
}

/// The address cannot be used.
pub(super) fn of_url(error: &RedisError) -> StoreError {
    // The client encrypts only if it was built with a TLS library, which the application chooses.
    if error.to_string().contains("TLS") {
        return unsupported(format!(
            "the address of Redis asks for TLS, which this program was built without: {error}; enable leasehold's feature store-redis-tls, or \
             a TLS feature of the crate redis such as tokio-native-tls-comp"
        ));
    }
    unsupported(format!(
        "the address of Redis is invalid: {error}; write redis://user:password@host:6379/0, redis+unix:///path/of.sock, \
         redis-sentinel://one:26379,two:26379/mymaster/0 or redis-cluster://one:6379,two:6379"
    ))
}

/// No connection was opened, so nothing was sent.
pub(super) fn of_connect(server: &ConnectionInfo, error: &RedisError) -> StoreError {
    let address = &*server.addr().to_string();
    if detail_of(error).contains("DB index") {
        return unsupported(format!(
            "Redis at {address} refused: {}; it has no database {}: write a smaller number in the URL, as in redis://host:port/0, or raise \
             `databases` in the server's configuration",
            Told(error),
            server.redis_settings().db()
        ));
    }
    if error.kind() == ErrorKind::AuthenticationFailed || is_of_password(error) {
        return of_password(address, error);
    }
    if error.code().is_some() || code_of(error) == "NOPERM" {
        return of_refusal(address, error, Stage::Reading);
    }
    let said = error.to_string();
    if let Some(message) = of_certificate(address, &said) {
        return StoreError::transient(message);
    }
    if let (ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. }, true) =
        (server.addr(), is_of_the_name(&said))
    {
        return StoreError::transient(format!(
            "Redis at {address} cannot be reached: the host name was not found; check {host:?}, or the DNS of this machine ({error})"
        ));
    }
    let is_socket = address.starts_with('/');
    let place = if is_socket { "the path of the socket" } else { "the host and the port" };
    // A server that expects TLS closes a connection without it; one that has no place for another client closes it, too.
    let hung_up = error.is_connection_dropped() && !error.is_connection_refusal();
    let encryption = match server.addr() {
        ConnectionAddr::TcpTls { .. } if hung_up || said.contains("InvalidContentType") => NO_TLS,
        ConnectionAddr::Tcp(..) if hung_up => {
            "; if it expects TLS, write rediss://, rediss-sentinel:// or rediss-cluster://"
        }
        _ => "",
    };
    let places = if hung_up { " and has room for another client (`maxclients`)" } else { "" };
    StoreError::transient(format!(
        "Redis at {address} cannot be reached: {error}; check {place}, and that the server runs{places}{encryption}"
    ))
}

/// What is wrong with a certificate of either side, if anything is.
fn of_certificate(address: &str, said: &str) -> Option<String> {
    // By rustls and by OpenSSL. Redis asks for one unless it is configured with tls-auth-clients no.
    if said.contains("CertificateRequired") || said.contains("certificate required") {
        return Some(format!(
            "Redis at {address} asks for a certificate of its client: {said}; name its file and its key by cert= and key= in the URL, give \
             RedisStore::from_client a client made with redis::Client::build_with_tls and its client_tls, or configure the server with \
             tls-auth-clients no"
        ));
    }
    if said.contains("TLS parameters provided") {
        return Some(format!(
            "the certificate and the key for Redis at {address} cannot be used together: {said}; name a matching pair by cert= and key= in \
             the URL"
        ));
    }
    if is_of_own(said) {
        return Some(format!(
            "Redis at {address} refuses the certificate of this program: {said}; name a valid one that the server trusts, and its key, by \
             cert= and key= in the URL"
        ));
    }
    if is_of_an_authority(said) {
        return Some(format!(
            "Redis at {address} shows the certificate of an authority as its own: {said}; {SIGN_ANOTHER}"
        ));
    }
    said.contains("certificate").then(|| {
        format!(
            "Redis at {address} has a certificate that this program does not accept: {said}; check its host name and expiry, name the file \
             of its authority by ca= in the URL, let the system trust the authority, or give RedisStore::from_client a client made with \
             redis::Client::build_with_tls"
        )
    })
}

/// Whether the system, or tokio, found no address for the host.
fn is_of_the_name(said: &str) -> bool {
    ["lookup address", "No address found", "could not resolve", "No such host"].iter().any(|words| said.contains(words))
}

/// The connection broke before the answer came.
pub(super) fn of_silence(address: &str, error: &RedisError, stage: Stage<'_>) -> StoreError {
    stage.error(format!("the connection to Redis at {address} broke before its answer: {error}"))
}

/// Nothing was answered in time.
pub(super) fn of_time(address: &str, limit: Duration, writing: bool) -> StoreError {
    let message = format!(
        "Redis at {address} did not answer within {} ms; look at the network and at SLOWLOG GET; store_timeout or a longer lease \
         gives it more time",
        limit.as_millis()
    );
    if writing { StoreError::unknown(message) } else { StoreError::busy(message) }
}

/// No connection was open in time, so nothing was sent but maybe the password.
pub(super) fn of_opening(server: &ConnectionAddr, limit: Duration) -> StoreError {
    // A server without TLS waits for the rest of what it takes for a command.
    let remedy = if matches!(server, ConnectionAddr::TcpTls { .. }) { NO_TLS } else { "" };
    StoreError::busy(format!(
        "Redis at {server} did not answer within {} ms; check the host and the port, that the server runs, and the network{remedy}",
        limit.as_millis()
    ))
}

/// Others wrote or reserved the same rows, and there is no time left for another attempt.
pub(super) fn of_contention_until_limit() -> StoreError {
    StoreError::busy(
        "other contexts wrote or reserved the same rows of Redis, and no time is left for another attempt; try again",
    )
}

/// Others wrote the same rows between each read and the write that followed it.
pub(super) fn of_contention(tries: u32) -> StoreError {
    StoreError::busy(format!("others wrote the same rows {tries} times in a row; try again"))
}

/// What was answered is not what the script gives.
pub(super) fn of_answer(stage: Stage<'_>) -> StoreError {
    stage.error("Redis gave an answer that leasehold's scripts never give; check whether a proxy is in between".into())
}

pub(super) fn is_of_a_replica(error: &RedisError) -> bool {
    matches!(error.code(), Some("READONLY" | "MASTERDOWN"))
}

fn is_of_password(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
}

/// The server answered that it does not do this. By these codes it wrote nothing: it refuses a script before it starts, or
/// at its first write.
pub(super) fn of_refusal(address: &str, error: &RedisError, stage: Stage<'_>) -> StoreError {
    let told = |remedy: &str| format!("Redis at {address} refused: {}; {remedy}", Told(error));
    match code_of(error) {
        "NOAUTH" | "WRONGPASS" => of_password(address, error),
        "NOPERM" => unsupported(told(
            "the store needs the commands EVAL, EVALSHA, HGET, HSET, HDEL, HSETNX, HSCAN, ZADD, ZREM, ZRANGEBYLEX, PING, PUBLISH and \
             SUBSCRIBE for the keys and channels that begin with its prefix in braces; TIME if it is to make reservations; HLEN, \
             HRANDFIELD and HMGET if it is to delete records that nobody uses; SELECT for another database than 0; and CLUSTER SLOTS \
             in a cluster: grant them to the user, and take none of them from the server by rename-command. A fenced script also needs its \
             own keys and commands. CONFIG|GET and INFO are recommended: without them the store checks neither maxmemory-policy nor \
             whether this is the master, and its durability is Ephemeral",
        )),
        "WRONGTYPE" => unsupported(told(
            "another program uses a key that begins like the prefix in braces, as in {leasehold}:rows; choose another prefix, by \
             `prefix=` in the URL or by RedisStore::connect_with_prefix",
        )),
        "MOVED" | "ASK" => unsupported(told(
            "the server is a node of a cluster, and another node has the slot of the prefix; connect by \
             redis-cluster://host:port",
        )),
        "CROSSSLOT" => unsupported(told(
            "in a cluster, the keys of a script must have the prefix of the store in braces, as in {leasehold}:visits",
        )),
        "OOM" => StoreError {
            kind: StoreErrorKind::Quota,
            ..StoreError::transient(told("delete something, or raise maxmemory"))
        },
        "MISCONF" if detail_of(error).contains("No space left") => {
            StoreError { kind: StoreErrorKind::Quota, ..StoreError::transient(told("make room on the server's disk")) }
        }
        "READONLY" | "MASTERDOWN" => StoreError::transient(told("connect to the master: this is a replica")),
        "LOADING" => StoreError::transient(told("wait until the server has loaded its data")),
        "MISCONF" => StoreError::transient(told("make room on the server's disk, or see its log")),
        "NOREPLICAS" => {
            StoreError::transient(told("the server lacks the replicas that min-replicas-to-write asks for"))
        }
        "BUSY" => StoreError::busy(told("another script runs for too long; end it by SCRIPT KILL")),
        "CLUSTERDOWN" | "TRYAGAIN" => {
            StoreError::transient(told("wait until the cluster has been repaired or changed"))
        }
        "NOSCRIPT" => StoreError::transient(told("the server forgot the script; try again")),
        _ => stage.error(format!("Redis at {address} failed: {error}")),
    }
}

/// The nodes of a cluster redirected a command to each other, and none of them ran it.
pub(super) fn of_redirects(address: &str, error: &RedisError, stage: Stage<'_>) -> StoreError {
    // A script can raise an error that looks like this, after it wrote something.
    let is_of_the_script = error.detail().is_some_and(|detail| detail.contains("script"));
    let stage = if is_of_the_script { stage } else { Stage::Reading };
    stage.error(format!("Redis at {address} refused: {}; wait until the slot of the store has been moved", Told(error)))
}

/// What a server says, in a script and outside, of a command that the user may not run, or that the server does not have.
const REFUSALS: [&str; 3] = ["user executing the script can't", "command called from script", "unknown command"];

/// The code of a refusal. Without rights, or without the command, a server answers with the code of all that went wrong.
fn code_of(error: &RedisError) -> &str {
    let detail = detail_of(error);
    match error.code().unwrap_or_default() {
        "ERR" if REFUSALS.iter().any(|words| detail.contains(words)) => "NOPERM",
        // The library reports a refused SELECT with a message of its own.
        _ if detail.contains("has no permissions to run") => "NOPERM",
        code => code,
    }
}

fn detail_of(error: &RedisError) -> &str {
    error.detail().unwrap_or_default()
}

/// What the server says. The library puts some of its codes in words of its own.
struct Told<'a>(&'a RedisError);

impl fmt::Display for Told<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.code(), self.0.detail()) {
            (Some(code), Some(detail)) => {
                // If a script was refused, the server adds the script's name and line. The cause does not depend on them.
                let cause = detail.split_once(" script: ").map_or(detail, |(cause, _)| cause);
                write!(out, "{code} {}", cause.trim_end_matches('.'))
            }
            _ => self.0.fmt(out),
        }
    }
}

fn of_password(address: &str, error: &RedisError) -> StoreError {
    let what = if error.code() == Some("NOAUTH") { "wants a password" } else { "refused the password" };
    unsupported(format!(
        "Redis at {address} {what}: {}; put the right one into the address, redis://user:password@host:port/0",
        Told(error)
    ))
}

/// A server that must not keep leases, or an address that is none.
pub(super) fn unsupported(message: impl ToString) -> StoreError {
    StoreError::permanent(StoreErrorKind::Unsupported, message.to_string())
}

#[cfg(test)]
mod tests {
    use redis::{RedisError, Value, parse_redis_value};

    use super::*;

    fn refusal(line: &str) -> StoreError {
        let Ok(Value::ServerError(said)) = parse_redis_value(format!("-{line}\r\n").as_bytes()) else {
            panic!("it is a refusal")
        };
        of_refusal("host:6379", &RedisError::from(said), Stage::Reading)
    }

    /// Otherwise the same cause would be reported again for each script and line.
    #[test]
    fn a_refusal_in_a_script_reads_as_any_other() {
        let plain = "NOREPLICAS Not enough good replicas to write.";
        assert_eq!(refusal(plain), refusal(&format!("{plain} script: d027dde1, on @user_script:77.")));
    }

    /// An `elect` ends because of this kind, and does not wait until somebody makes room.
    #[test]
    fn a_server_whose_disk_is_full_has_no_room() {
        let full = refusal("MISCONF Errors writing to the AOF file: No space left on device");
        assert_eq!((full.kind, full.applied), (StoreErrorKind::Quota, crate::machine::Applied::No), "{full}");
        assert!(full.message.contains("make room"), "{full}");
        let unable =
            refusal("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk");
        assert_eq!(unable.kind, StoreErrorKind::Unavailable, "{unable}");
    }

    /// No option of a manager lengthens the time for opening a store.
    #[test]
    fn a_server_that_opens_no_connection_may_be_another() {
        let server = ConnectionAddr::Tcp("host".into(), 6379);
        let silent = of_opening(&server, Duration::from_secs(10)).message;
        assert!(silent.contains("check the host and the port") && !silent.contains("store_timeout"), "{silent}");
    }
}
