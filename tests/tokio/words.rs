//! What errors and `{:?}` say.

use std::time::Duration;

use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};

use crate::manager;

#[tokio::test]
async fn a_guard_is_shown_by_its_key_token_mode_and_state() {
    let leases = manager(&MemoryStore::new());
    let guard = leases.lock("notes").acquire().await.unwrap();
    let token = guard.token().as_u64();
    let shown = format!("{guard:?}");
    assert_eq!(shown, format!("LeaseGuard {{ key: \"notes\", token: Token({token}), mode: Exclusive, state: Held }}"));
    guard.release().await.unwrap();
    let shown = format!("{guard:?}");
    assert!(shown.ends_with("state: Released }"), "{shown}");
    let clone = leases.lock("notes").acquire().await.unwrap();
    let first = clone.clone();
    first.release().await.unwrap();
    assert!(format!("{first:?}").ends_with("state: Released }"), "its clone holds on: {first:?}");
    assert!(format!("{clone:?}").ends_with("state: Held }"), "{clone:?}");
}

#[tokio::test]
async fn a_manager_is_shown_by_its_session_and_its_store() {
    let leases = manager(&MemoryStore::new());
    let (shown, session) = (format!("{leases:?}"), leases.session());
    let start = format!("LeaseManager {{ session: SessionId({session}), store: Process(");
    assert!(shown.starts_with(&start) && shown.len() < 120, "{shown}");
    assert_eq!(format!("{session:?}"), format!("SessionId({:032x})", session.0));
}

#[tokio::test]
async fn what_was_released_is_named_by_its_key() {
    let guard = manager(&MemoryStore::new()).lock("notes").acquire().await.unwrap();
    guard.release().await.unwrap();
    let said = guard.extend(Duration::from_secs(1)).await.unwrap_err().to_string();
    assert_eq!(said, "the lease of the key \"notes\" was released; acquire another one");
}

#[tokio::test]
async fn a_span_out_of_range_is_named_by_its_option() {
    let leases = manager(&MemoryStore::new());
    let guard = leases.lock("notes").acquire().await.unwrap();
    for (span, amount) in [(Duration::ZERO, "0 ms"), (Duration::MAX, "over 10^19 ms")] {
        let of = |option| format!("a span of {amount} is out of range for `{option}`; choose 1 to 86400000 ms");
        let held = leases.lock("other").max_hold(span).acquire().await.unwrap_err().to_string();
        assert_eq!(held, of("max_hold"));
        assert_eq!(guard.extend(span).await.unwrap_err().to_string(), of("extend"));
    }
}

#[test]
fn a_time_without_end_is_shown_as_such() {
    for refused in [
        LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).lease(Duration::MAX).build(),
        LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).linger(Duration::MAX).build(),
    ] {
        let said = refused.unwrap_err().to_string();
        assert!(said.contains(" of over 10^19 ms is "), "{said}");
    }
}
