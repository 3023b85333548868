//! The checks of a server to which a store connects: one that would lose leases is refused before it keeps any.

use std::{format, string::String, vec::Vec};

use redis::{Value, cmd};
use tokio::time::Instant;
use tracing::warn;

use super::{
    failure::{self, Stage},
    link::Link,
    node::Node,
};
use crate::machine::{Records, Row, StoreError, StoreErrorKind, StoreId};
use crate::store::Durability;

/// Logged if the server does not show its settings.
const UNCHECKED: &str = "Redis does not tell maxmemory-policy and replica-read-only, so nobody has checked whether it would evict leases, or go on \
    writing as a replica, and the store counts as Ephemeral; grant its user CONFIG|GET";
/// Logged once if the user may not subscribe. Since version 7, Redis gives a new user access to no channels. Waiters are still granted
/// their leases, only later.
const DEAF: &str = "the Redis user may not subscribe, so no messages arrive, and a lease is granted up to a heartbeat late; grant the user \
    +subscribe, and the channels that begin with the prefix in braces, as in &{leasehold}:*";

/// What a server told of itself.
pub(super) struct Found {
    pub(super) store: StoreId,
    pub(super) durability: Durability,
}

/// Looks at the server, and makes the store's row if it has none. If it has one, the server may be full: the leases can be looked at.
///
/// # Errors
/// [`StoreError`] that names the remedy, if the server must not keep leases or did not answer.
pub(super) async fn look(link: &Link, rows: &str) -> Result<Found, StoreError> {
    check_role(link).await?;
    let durability = durability(link).await?;
    Ok(Found { store: store_id(link, rows).await?, durability })
}

async fn check_role(link: &Link) -> Result<(), StoreError> {
    match info(link, "replication").await? {
        Some(text) if text.contains("role:slave") => Err(of_role(link)),
        // The `INFO` of a Sentinel has no such section.
        Some(text) if !text.contains("role:") && is_sentinel(link).await? => Err(of_sentinel(link)),
        _ => Ok(()),
    }
}

async fn is_sentinel(link: &Link) -> Result<bool, StoreError> {
    Ok(info(link, "sentinel").await?.is_some_and(|text| text.contains("sentinel_masters:")))
}

/// A section of the server's `INFO`; `None` if the server withholds it.
async fn info(link: &Link, section: &str) -> Result<Option<String>, StoreError> {
    match link.ask(cmd("INFO").arg(section), Stage::Reading).await? {
        Ok(Value::BulkString(text)) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
        Ok(_) => Ok(None),
        Err(refusal) if is_withheld(&refusal) => Ok(None),
        Err(refusal) => Err(link.refused(&refusal, Stage::Reading)),
    }
}

fn of_sentinel(link: &Link) -> StoreError {
    failure::unsupported(format!(
        "the server at {} is a Sentinel, which keeps no leases; write redis-sentinel://host:port/mymaster/0, with the name of its master, \
         or connect to the master itself",
        link.address()
    ))
}

fn of_role(link: &Link) -> StoreError {
    let told = format!("Redis at {} is a read replica, which may not know the latest leases", link.address());
    if link.has_successors() {
        link.forget(Instant::now());
        return StoreError::transient(format!("{told}; wait until its group has agreed on a new master"));
    }
    failure::unsupported(format!("{told}; connect to its master"))
}

/// Refuses a server that may evict any key, or would accept writes as a replica. Returns whether the server told its eviction policy.
///
/// # Errors
/// [`StoreError`] that names the remedy, if the server is refused or did not answer.
pub(super) async fn check_settings(node: &mut Node) -> Result<bool, StoreError> {
    // One by one, because before version 7 `CONFIG GET` took one name only.
    let policy = setting_of(node, "maxmemory-policy").await?;
    let read_only = setting_of(node, "replica-read-only").await?;
    let why = match (policy.as_deref(), read_only.as_deref()) {
        (Some(policy), _) if policy.starts_with("allkeys-") => format!(
            "evicts any key when its memory is full (maxmemory-policy {policy}), and so would forget leases that are held; set \
             maxmemory-policy noeviction"
        ),
        (_, Some("no")) => "would go on writing after it has become a replica (replica-read-only no), and so grant leases that the new \
             master grants, too; set replica-read-only yes"
            .into(),
        (policy, _) => return Ok(policy.is_some()),
    };
    Err(failure::unsupported(format!("Redis at {} {why}", node.address)))
}

async fn setting_of(node: &mut Node, name: &str) -> Result<Option<String>, StoreError> {
    let answer = node.ask(cmd("CONFIG").arg("GET").arg(name)).await?;
    setting_in(answer).map_err(|refusal| failure::of_refusal(&node.address, &refusal, Stage::Reading))
}

pub(super) fn warn_of_silence(address: &str) {
    warn!(target: "leasehold", address, "{UNCHECKED}");
}

async fn durability(link: &Link) -> Result<Durability, StoreError> {
    let appends = setting(link, "appendonly").await?;
    let syncs = setting(link, "appendfsync").await?;
    let is_kept = appends.as_deref() == Some("yes") && syncs.as_deref() == Some("always");
    Ok(if is_kept { Durability::Local } else { Durability::Ephemeral })
}

/// A setting of the server; `None` where the server does not tell.
async fn setting(link: &Link, name: &str) -> Result<Option<String>, StoreError> {
    let answer = link.ask(cmd("CONFIG").arg("GET").arg(name), Stage::Reading).await?;
    setting_in(answer).map_err(|refusal| link.refused(&refusal, Stage::Reading))
}

/// The value in an answer that consists of a setting's name and its value; `None` where the server withholds it.
fn setting_in(answer: Result<Value, redis::RedisError>) -> Result<Option<String>, redis::RedisError> {
    match answer {
        Ok(value) => Ok(redis::from_redis_value::<Vec<String>>(value).ok().and_then(|pair| pair.into_iter().nth(1))),
        Err(refusal) if is_withheld(&refusal) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// Hosted servers often withhold their settings: by access rights, or by leaving out the command.
fn is_withheld(refusal: &redis::RedisError) -> bool {
    matches!(refusal.code(), Some("NOPERM" | "ERR"))
}

const CLEARED: &str = "somebody cleared the store while it was being opened; open it again";

async fn store_id(link: &Link, rows: &str) -> Result<StoreId, StoreError> {
    let mut records = Records::new();
    records.load_store(None, fresh_id()?)?;
    let (name, text) = (format!("{}", Row::Store), records.text(&Row::Store).unwrap_or_default());
    // Who comes second finds the row of the first.
    let full = match link.send(cmd("HSETNX").arg(rows).arg(&name).arg(text), Stage::Reading).await {
        Err(error) if error.kind == StoreErrorKind::Quota => Some(error),
        made => made.map(|_| None)?,
    };
    let stored = link.send(cmd("HGET").arg(rows).arg(&name), Stage::Reading).await?;
    let stored: Option<String> = redis::from_redis_value(stored).map_err(|_| failure::of_answer(Stage::Reading))?;
    let Some(stored) = stored else {
        return Err(full.unwrap_or_else(|| StoreError::transient(CLEARED)));
    };
    records.load_store(Some(&stored), StoreId::default())?;
    Ok(records.store())
}

/// An id in case that a store is new.
pub(super) fn fresh_id() -> Result<StoreId, StoreError> {
    let mut bits = [0; 16];
    let drawn = getrandom::fill(&mut bits);
    drawn.map_err(|error| StoreError::transient(format!("the system gives no random bits: {error}")))?;
    Ok(StoreId(u128::from_ne_bytes(bits)))
}

pub(super) fn warn_of_deafness(link: &Link) {
    warn!(target: "leasehold", address = %link.address(), "{DEAF}");
}
