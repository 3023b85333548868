//! What a store keeps under a key and cannot be read.

use alloc::{format, string::String};

use super::client::{Client, Seen};
use crate::store::Store;

/// What a newer version, another program and an accident leave behind.
const TEXTS: [(&str, &str); 4] = [
    ("newer", "{\"format\":99,\"grants\":[],\"later\":true}"),
    ("alien", "{\"name\":\"of another program\"}"),
    ("torn", "{\"format\":1,\"last_tok"),
    ("empty", ""),
];

/// A value that is no record, or a newer one, is left as it is; keys beside it are not concerned.
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
}
