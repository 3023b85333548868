//! Bad input gets an error that names the value, and nothing is lost.

use std::time::Duration;

use leasehold::executor::SimExecutor;
use leasehold::machine::KEY_LIMIT;
use leasehold::store::MemoryStore;
use leasehold::{AcquireError, InvalidKey, InvalidOptions, LeaseManager, LeaseManagerBuilder, Mode};

use crate::support::world::{everywhere, ms};

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

#[test]
fn what_would_harm_others_is_refused_with_its_value_and_the_remedy() {
    let build = |choose: &dyn Fn(LeaseManagerBuilder) -> LeaseManagerBuilder| {
        choose(LeaseManager::builder(MemoryStore::new(), SimExecutor::new(0))).build()
    };
    let refused = |choose: &dyn Fn(LeaseManagerBuilder) -> LeaseManagerBuilder| build(choose).unwrap_err().to_string();
    let day = Duration::from_secs(24 * 60 * 60);
    assert!(build(&|builder| builder.linger(day)).is_ok());
    let linger = refused(&|builder| builder.linger(day + ms(1)));
    assert!(linger.contains("linger of 86400001 ms") && linger.contains("at most 86400000 ms"), "{linger}");
    assert!(refused(&|builder| builder.linger(Duration::MAX)).contains("linger"));
    let handoffs = refused(&|builder| builder.max_local_handoffs(0));
    assert!(handoffs.contains("0 local hand-offs") && handoffs.contains("at least 1"), "{handoffs}");
    assert!(build(&|builder| builder.instance("w".repeat(1_024))).is_ok());
    let instance = refused(&|builder| builder.instance("w".repeat(1_025)));
    assert!(instance.contains("1025 bytes") && instance.contains("at most 1024"), "{instance}");
}

#[test]
fn what_a_holder_says_of_itself_is_short() {
    everywhere(async |world| {
        let tab = world.tab();
        assert!(tab.leases.lock("k").info("i".repeat(4_096)).acquire().await.is_ok());
        let long = || "i".repeat(4_097);
        let all = || tab.leases.lock_all([("k", Mode::Exclusive)]).info(long());
        tab.store.take_seen();
        for refused in [
            tab.leases.lock("k").info(long()).acquire().await.map(drop),
            tab.leases.lock("k").info(long()).try_acquire().await.map(drop),
            tab.leases.lock("k").info(long()).steal().await.map(drop),
            all().acquire().await.map(drop),
            all().try_acquire().await.map(drop),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error, AcquireError::InvalidOptions(InvalidOptions::InfoTooLong { bytes: 4_097 }));
            assert!(error.to_string().contains("4097 bytes") && error.to_string().contains("at most 4096"), "{error}");
        }
        assert_eq!(tab.take_transactions(), 0, "the store was not bothered");
    });
}

/// What is known of a wait in vain: for what, for how long, and whether the task may have waited for itself.
#[test]
fn a_time_out_says_what_was_waited_for() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let hidden = world.tab().with(|builder| builder.key_codec(|key| format!("app/{key}")));
        let own = one.leases.lock("own").acquire().await.unwrap();
        let _other = two.leases.lock("app/theirs").acquire().await.unwrap();
        let start = world.now();
        let itself = one.leases.lock("own").timeout(ms(300)).acquire().await.unwrap_err();
        let waited = ms(world.ms_since(start));
        assert_eq!(itself, AcquireError::Timeout { key: "own".into(), waited, held_here: true, held_elsewhere: false });
        assert!(
            waited >= ms(300) && itself.to_string().contains(&format!("after {} ms", waited.as_millis())),
            "{itself}"
        );
        assert!(
            itself.to_string().contains("a guard of this manager") && itself.to_string().contains("\"own\""),
            "{itself}"
        );
        let behind = hidden.leases.lock("theirs").timeout(ms(200)).acquire().await.unwrap_err();
        assert!(
            matches!(&behind, AcquireError::Timeout { key, held_here: false, .. } if key == "theirs"),
            "{behind:?}"
        );
        assert!(behind.to_string().contains("others held the key \"theirs\""), "{behind}");
        let at_once = one.leases.lock("own").timeout(ms(0)).acquire().await.unwrap_err();
        assert_eq!(
            at_once,
            AcquireError::Timeout { key: "own".into(), waited: ms(0), held_here: true, held_elsewhere: false }
        );
        let shared = one.leases.lock("own").shared().timeout(ms(200)).acquire().await.unwrap_err();
        assert!(
            matches!(shared, AcquireError::Timeout { held_here: true, held_elsewhere: false, .. }),
            "in another mode, too: {shared:?}"
        );
        let several = one.leases.lock_all([("a", Mode::Shared), ("own", Mode::Shared)]).timeout(ms(0));
        let several = several.acquire().await.unwrap_err();
        assert_eq!(
            several,
            AcquireError::Timeout { key: "a, own".into(), waited: ms(0), held_here: true, held_elsewhere: false }
        );
        drop(own);
    });
}
