//! Leases that are taken out of a guard, on their way to another one.

use std::collections::BTreeMap;

use futures::FutureExt as _;
use leasehold::{AcquireError, InvalidParts, LeaseParts, Mode, ReleaseOutcome, store::Fault};

use crate::support::world::{HEARTBEAT, LEASE, Tab, World, everywhere, secs};

async fn is_free(tab: &Tab) -> bool {
    tab.leases.lock("k").try_acquire().await.unwrap().is_some()
}

async fn parts(tab: &Tab) -> LeaseParts {
    parts_of(tab, "k").await
}

async fn parts_of(tab: &Tab, key: &str) -> LeaseParts {
    tab.leases.lock(key).info("parcel").acquire().await.unwrap().into_parts()
}

/// Parts become a guard again, in the same context or in another one, without a moment in which the key is free.
#[test]
fn parts_are_resumed_here_or_elsewhere() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        for heir in [&one, &two] {
            let parts = parts(&one).await;
            assert_eq!((parts.key(), parts.holder(), parts.mode()), ("k", one.leases.session(), Mode::Exclusive));
            for tab in [&one, &two, &three] {
                assert!(!is_free(tab).await, "held on its way, even where it came from");
            }
            world.sim.pass(HEARTBEAT).await;
            let token = parts.token();
            let guard = heir.leases.resume(parts.clone()).await.unwrap();
            assert!(guard.is_valid() && guard.token() > token && guard.key() == "k");
            assert_eq!(three.leases.status("k").await.unwrap().holders[0].holder, heir.leases.session());
            world.sim.pass(LEASE * 3).await;
            assert!(guard.is_valid() && !is_free(&three).await, "it is renewed like any other");
            if heir.leases.session() == two.leases.session() {
                let twice = one.leases.resume(parts).await;
                assert!(matches!(twice, Err(AcquireError::NotResumable)), "it went elsewhere: {twice:?}");
                assert!(guard.is_valid());
            }
            assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
            assert!(is_free(&three).await);
        }
    });
}

#[test]
fn parts_of_a_shared_lease_stay_shared() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let parts = one.leases.lock("k").shared().acquire().await.unwrap().into_parts();
        let guard = two.leases.resume(parts).await.unwrap();
        let reader = one.leases.lock("k").shared().try_acquire().await.unwrap();
        assert!(guard.mode() == Mode::Shared && reader.is_some() && !is_free(&one).await);
    });
}

/// The parts are faster than the transaction that was to downgrade the lease.
#[test]
fn parts_of_a_lease_whose_downgrade_was_not_sent_are_shared_where_they_are_resumed() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        one.store.inject(Fault::Stall);
        let mut other = Box::pin(one.leases.lock("other").acquire());
        assert!((&mut other).now_or_never().is_none(), "what comes later waits until this is answered");
        assert!(guard.downgrade().now_or_never().is_none() && guard.mode() == Mode::Shared);
        let parts = guard.into_parts();
        let guard = two.leases.resume(parts).await.unwrap();
        let reader = three.leases.lock("k").shared().try_acquire().await.unwrap();
        assert!(guard.mode() == Mode::Shared && reader.is_some());
    });
}

/// Nobody renews parts: others take the key when they have run out, and the parts are lost.
#[test]
fn parts_that_ran_out_are_lost() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let parts = parts(&one).await;
        let token = parts.token();
        let limit = LEASE + LEASE / 10 + HEARTBEAT;
        let next = world.within(limit, two.leases.lock("k").acquire()).await.expect("it runs out").unwrap();
        assert!(next.token() > token);
        for heir in [&one, &two] {
            assert_eq!(heir.leases.resume(parts.clone()).await.unwrap_err(), AcquireError::NotResumable);
        }
        world.sim.pass(LEASE).await;
        assert!(next.is_valid(), "who comes too late touches nothing");
    });
}

/// Their lease is all that they have: that the context they come from is idle by now, or gone, proves nothing.
#[test]
fn parts_outlive_the_context_that_they_come_from() {
    everywhere(async |world| {
        for crashes in [false, true] {
            let (one, two, three) = (world.tab(), world.tab(), world.tab());
            let parts = parts(&one).await;
            let mut wait = Box::pin(two.leases.lock("k").acquire());
            if crashes {
                one.crash(());
            }
            assert!(world.within(secs(15), &mut wait).await.is_none(), "it lasts for a lease");
            let guard = three.leases.resume(parts).await.unwrap();
            assert!(guard.is_valid() && world.within(LEASE * 2, &mut wait).await.is_none());
            guard.release().await.unwrap();
        }
    });
}

/// What others use too cannot be taken away: only this guard's part is given back.
#[test]
fn parts_of_a_guard_with_clones_are_worth_nothing() {
    everywhere(async |world| {
        let tab = world.tab();
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        let parts = guard.clone().into_parts();
        assert!(matches!(tab.leases.resume(parts).await, Err(AcquireError::EmptyParts)));
        assert!(guard.is_valid());
        let given_back = guard.clone();
        given_back.release().await.unwrap();
        assert!(matches!(tab.leases.resume(given_back.into_parts()).await, Err(AcquireError::EmptyParts)));
        assert!(guard.is_valid() && guard.verify().await.unwrap());
    });
}

/// Whoever resumes gives the guards that follow tokens of their own.
#[test]
fn no_two_guards_share_a_token() {
    let world = World::new(1);
    world.run(async {
        let (one, two) = (world.tab(), world.tab());
        let mut tokens = BTreeMap::new();
        let mut guard = one.leases.lock("k").acquire().await.unwrap();
        for hop in 0..200 {
            assert_eq!(tokens.insert(guard.token(), hop), None, "hop {hop}");
            assert_eq!(tokens.last_key_value(), Some((&guard.token(), &hop)), "they grow");
            let heir = if hop % 3 == 0 { &two } else { &one };
            guard = heir.leases.resume(guard.into_parts()).await.unwrap();
        }
    });
}

/// From one process to another: as text, while the first one ends.
#[test]
fn parts_travel_as_text() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let name = "a: key\n%20 \0 \u{1f98a}";
        for shared in [false, true] {
            let request = one.leases.lock(name).mode(if shared { Mode::Shared } else { Mode::Exclusive });
            let parts = request.acquire().await.unwrap().into_parts();
            let text = parts.encode();
            assert!(text.chars().all(|letter| !letter.is_control() && !letter.is_whitespace()), "{text}");
            let decoded = LeaseParts::decode(&text).unwrap();
            assert_eq!(decoded, parts);
            assert_eq!(u64::from(parts.token()).to_string(), parts.token().to_string());
            let guard = two.leases.resume(decoded).await.unwrap();
            assert!(guard.is_valid() && guard.token() > parts.token() && guard.key() == name);
            assert!(three.leases.lock(name).try_acquire().await.unwrap().is_none());
        }
    });
}

/// Parts of a lease that could not be taken out stay so.
#[test]
fn parts_without_a_lease_travel_too() {
    everywhere(async |world| {
        let tab = world.tab();
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        let parts = guard.clone().into_parts();
        let decoded = LeaseParts::decode(&parts.encode()).unwrap();
        assert_eq!(decoded, parts);
        assert!(matches!(tab.leases.resume(decoded).await, Err(AcquireError::EmptyParts)) && guard.is_valid());
    });
}

#[test]
fn text_that_is_no_lease_is_refused_and_says_why() {
    let world = World::new(1);
    let text = world.run(async { parts_of(&world.tab(), "notes").await.encode() });
    for end in 0..text.len() {
        if let Ok(cut) = LeaseParts::decode(&text[..end]) {
            panic!("{cut:?} of {end} bytes");
        }
    }
    let refused = |text: &str| LeaseParts::decode(text).unwrap_err();
    let sound = LeaseParts::decode(&text).unwrap();
    let (token, holder) = (sound.token().to_string(), sound.holder().to_string());
    assert_eq!(refused("hello"), InvalidParts::NotParts);
    let newer = text.replacen("leasehold-parts:1:", "leasehold-parts:2:", 1);
    assert_eq!(refused(&newer), InvalidParts::FormatTooNew { found: 2, known: 1 });
    for (field, sound, broken) in [
        ("mode", "exclusive", "exclusively"),
        ("holder", &*holder, &holder[1..]),
        ("token", &*token, "9007199254740992"),
        ("key", "notes", ""),
        ("key", "notes", "%zz"),
        ("key", "notes", "%ff"),
    ] {
        let error = refused(&text.replace(sound, broken));
        assert!(matches!(error, InvalidParts::Field { name, .. } if name == field), "{field}: {error:?}");
        assert!(error.to_string().contains(field) && error.to_string().contains("unchanged"), "{error}");
    }
}

/// A cache of the one who gave the lease away, and that of the one who resumed it, may both be out of date.
#[test]
fn a_lease_that_another_context_resumed_has_changed_hands() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let [read_one, read_two] = [&one, &two].map(|tab| async {
            let guard = tab.leases.lock("k").acquire().await.unwrap();
            guard.clear_changed();
            guard
        });
        drop(read_two.await);
        let parts = read_one.await.into_parts();
        let guard = two.leases.resume(parts).await.unwrap();
        assert!(guard.changed_hands(), "it was exclusive elsewhere since");
        guard.clear_changed();
        guard.release().await.unwrap();
        let guard = two.leases.lock("k").acquire().await.unwrap();
        assert!(!guard.changed_hands(), "nobody else has had it since");
        guard.release().await.unwrap();
        assert!(one.leases.lock("k").acquire().await.unwrap().changed_hands(), "it was exclusive elsewhere");
    });
}

#[test]
fn a_lease_that_its_own_context_resumes_has_not_changed_hands() {
    everywhere(async |world| {
        let one = world.tab();
        for downgrades in [false, true] {
            let guard = one.leases.lock("k").acquire().await.unwrap();
            if downgrades {
                guard.downgrade().await.unwrap();
            }
            let guard = one.leases.resume(guard.into_parts()).await.unwrap();
            assert!(!guard.changed_hands());
            guard.release().await.unwrap();
            assert!(!one.leases.lock("k").acquire().await.unwrap().changed_hands(), "nobody else has ever had it");
        }
    });
}

#[test]
fn a_shared_lease_that_was_resumed_has_not_changed_hands() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let parts = one.leases.lock("k").shared().acquire().await.unwrap().into_parts();
        let reader = one.leases.lock("k").shared().acquire().await.unwrap();
        assert!(!reader.changed_hands(), "nobody else has had it");
        two.leases.resume(parts).await.unwrap().release().await.unwrap();
        reader.release().await.unwrap();
        assert!(!one.leases.lock("k").shared().acquire().await.unwrap().changed_hands(), "nobody had it alone");
    });
}

#[test]
fn an_exclusive_lease_that_was_downgraded_elsewhere_has_changed_hands() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let parts = one.leases.lock("k").acquire().await.unwrap().into_parts();
        let guard = two.leases.resume(parts).await.unwrap();
        guard.downgrade().await.unwrap();
        assert!(one.leases.lock("k").shared().acquire().await.unwrap().changed_hands(), "it was exclusive elsewhere");
    });
}

/// The grant that is resumed is itself the one that was exclusive elsewhere.
#[test]
fn a_lease_that_another_context_downgraded_before_it_gave_it_away_has_changed_hands() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        guard.clear_changed();
        guard.release().await.unwrap();
        let writer = two.leases.lock("k").acquire().await.unwrap();
        writer.downgrade().await.unwrap();
        let guard = one.leases.resume(writer.into_parts()).await.unwrap();
        assert!(guard.mode() == Mode::Shared && guard.changed_hands(), "it was exclusive elsewhere");
    });
}

#[test]
fn a_shared_lease_that_another_context_upgraded_meanwhile_has_changed_hands() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").shared().acquire().await.unwrap();
        guard.clear_changed();
        let guard = two.leases.resume(guard.into_parts()).await.unwrap();
        guard.upgrade().await.unwrap();
        guard.downgrade().await.unwrap();
        let guard = one.leases.resume(guard.into_parts()).await.unwrap();
        assert!(guard.changed_hands(), "it was exclusive elsewhere");
    });
}
