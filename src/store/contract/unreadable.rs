//! What a store keeps under a key and cannot be read.

use alloc::{format, string::String};

use super::client::{Client, Seen};
use crate::store::Store;

/// What a newer version, another program and an accident leave behind.
const TEXTS: [(&str, &str); 6] = [
    ("newer", "{\"format\":99,\"grants\":[],\"later\":true}"),
    (
        "newer and idle",
        "{\"format\":2,\"last_token\":64,\"revision\":2,\"grants\":[],\"queue\":[],\"last_exclusive\":64}",
    ),
    (
        "out of range",
        "{\"format\":1,\"last_token\":9007199254740992,\"revision\":2,\"grants\":[],\"queue\":[],\"last_exclusive\":64}",
    ),
    ("alien", "{\"name\":\"of another program\"}"),
    ("torn", "{\"format\":1,\"last_tok"),
    ("empty", ""),
];

/// Somebody waits, and nobody holds the key.
const WAITED_FOR: &str = "{\"format\":1,\"last_token\":64,\"revision\":2,\"grants\":[],\"queue\":[\
    {\"holder\":\"0000000000000000000000000000003c\",\"request\":9,\"mode\":\"shared\",\"priority\":0,\"ticket\":9,\"upgrades\":[],\
    \"alone\":0,\"info\":\"\"}],\"last_exclusive\":64}";

/// A value that is no record, or a newer one, is left as it is; keys beside it are not concerned. If the store can list keys, it is listed,
/// and so is a key for which somebody only waits.
///
/// `open` makes a new connection to the same, empty store. `write` puts a text where the store keeps the record of a key,
/// and `read` takes it from there: both by other means than the store's.
///
/// # Panics
/// With a sentence that names the rule, if the store breaks one.
///
/// ```no_run
/// # use leasehold::{executor::SimExecutor, store::{MemoryStore, contract}};
/// # async fn put(_: String, _: String) {}
/// # async fn text(_: String) -> Option<String> { None }
/// # let open = async || MemoryStore::new();
/// SimExecutor::new(1).block_on(contract::unreadable(open, put, text));
/// ```
pub async fn unreadable<S: Store>(
    open: impl AsyncFn() -> S,
    write: impl AsyncFn(String, String),
    read: impl AsyncFn(String) -> Option<String>,
) {
    let (mut one, mut other) = (Client::new(open().await, 60), Client::new(open().await, 61));
    // By its first transaction a store makes what it keeps its texts in.
    one.acquire("readable").await.token();
    for (name, text) in TEXTS {
        let (bad, good) = (format!("unreadable, {name}"), format!("beside, {name}"));
        write(bad.clone(), text.into()).await;
        let asks = [one.ask_next(&bad), one.ask_next(&good)];
        let seen = one.run(asks).await;
        assert_eq!(seen[0], Seen::Unreadable, "a value that cannot be read is told as such: {text:?}");
        assert!(matches!(seen[1], Seen::Granted(_)), "the keys beside an unreadable one can be used: {seen:?}");
        assert_eq!(other.acquire(&bad).await, Seen::Unreadable, "a value that cannot be read stays: {text:?}");
        assert_eq!(other.acquire(&good).await, Seen::Busy, "what was granted beside an unreadable key is committed");
        assert_eq!(read(bad).await.as_deref(), Some(text), "a value that cannot be read is left as it is");
    }
    write("unreadable? no, waited for".into(), WAITED_FOR.into()).await;
    let Some(found) = one.keys("unreadable").await else { return };
    for (name, text) in TEXTS {
        assert!(found.contains(&format!("unreadable, {name}")), "a value that cannot be read is listed: {text:?}");
    }
    assert!(
        found.iter().any(|name| name.ends_with("waited for")),
        "a key that somebody waits for is listed: {found:?}"
    );
}
