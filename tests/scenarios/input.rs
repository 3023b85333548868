//! Bad input gets an error that names the value, and nothing is lost.

use std::time::Duration;

use leasehold::executor::SimExecutor;
use leasehold::machine::KEY_LIMIT;
use leasehold::store::MemoryStore;
use leasehold::{AcquireError, InvalidKey, InvalidOptions, LeaseManager};

use crate::world::{everywhere, ms};

#[test]
fn bad_keys_are_told_with_the_remedy() {
    everywhere(async |world| {
        let tab = world.tab();
        let refused = async |name: &str| tab.leases.lock(name).acquire().await.unwrap_err();
        assert_eq!(refused("").await, AcquireError::InvalidKey(InvalidKey::Empty));
        let long = "\u{1f98a}".repeat(KEY_LIMIT / 2);
        assert!(tab.leases.lock(&long).acquire().await.is_ok(), "1024 UTF-16 units are a key");
        let longer = long + "k";
        let error = refused(&longer).await;
        assert_eq!(error, AcquireError::InvalidKey(InvalidKey::TooLong { units: 1025 }));
        assert!(error.to_string().contains("1025") && error.to_string().contains("1024"), "{error}");
        assert!(tab.leases.status("").await.is_err());
        assert!(tab.store.take_seen().len() <= 2, "the store was not bothered");
    });
}

#[test]
fn lone_surrogates_are_no_key() {
    use leasehold::machine::Key;
    for (units, at) in [(&[0xd800][..], 0), (&[0x61, 0xdc00], 1), (&[0xd83e, 0xdd8a, 0xd83e], 2)] {
        assert_eq!(Key::from_utf16(units), Err(InvalidKey::LoneSurrogate { at }));
    }
    assert_eq!(Key::from_utf16(&[0xd83e, 0xdd8a]).unwrap().as_str(), "\u{1f98a}");
}

#[test]
fn absurd_options_are_told_with_their_value() {
    let build = |lease: Duration, heartbeat: Duration| {
        let builder = LeaseManager::builder(MemoryStore::new(), SimExecutor::new(0));
        builder.lease(lease).heartbeat(heartbeat).build().unwrap_err()
    };
    assert_eq!(build(ms(0), ms(100)), InvalidOptions::Lease { lease_ms: 0 });
    assert_eq!(build(ms(999), ms(100)), InvalidOptions::Lease { lease_ms: 999 });
    assert_eq!(build(Duration::MAX, ms(100)), InvalidOptions::Lease { lease_ms: u64::MAX });
    assert_eq!(build(ms(20_000), ms(0)), InvalidOptions::Heartbeat { heartbeat_ms: 0 });
    let sum = build(ms(20_000), ms(15_000)).to_string();
    assert!(sum.contains("15000 ms") && sum.contains("20000 ms"), "{sum}");
}
