//! A lease that nobody uses and nobody else wants is kept for a moment.

use futures::future::FutureExt;
use leasehold::{LeaseGuard, LeaseManager, ReleaseOutcome, store::Fault};

use crate::support::{
    doubles::{Deaf, SlowStore},
    world::{HEARTBEAT, LEASE, Tab, World, everywhere, ms, secs},
};

const LINGER_MS: u64 = 100;

async fn write(tab: &Tab) -> LeaseGuard {
    tab.leases.lock("k").acquire().await.unwrap()
}

async fn read(tab: &Tab) -> LeaseGuard {
    tab.leases.lock("k").shared().acquire().await.unwrap()
}

async fn is_held(onlooker: &Tab) -> bool {
    !onlooker.leases.status("k").await.unwrap().is_idle()
}

#[test]
fn the_next_request_here_costs_no_transaction() {
    everywhere(async |world| {
        let tab = world.tab();
        let mut last = write(&tab).await;
        tab.store.take_seen();
        for turn in 0..20 {
            assert_eq!(last.release().await.unwrap(), ReleaseOutcome::Released);
            world.sim.pass(ms(LINGER_MS / 2)).await;
            let start = world.now();
            let next = if turn % 2 == 0 {
                write(&tab).await
            } else {
                tab.leases.lock("k").try_acquire().await.unwrap().expect("its own")
            };
            assert!(next.is_valid() && next.token() > last.token() && !last.is_valid());
            assert!(world.ms_since(start) == 0 && !next.changed_hands());
            last = next;
        }
        assert_eq!(tab.take_transactions(), 0, "in a second there is no heartbeat either");
    });
}

#[test]
fn it_ends_by_itself() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        drop(write(&one).await);
        one.store.take_seen();
        world.sim.pass(ms(LINGER_MS - 1)).await;
        assert!(is_held(&two).await && one.take_transactions() == 0);
        world.sim.pass(ms(2)).await;
        assert!(!is_held(&two).await);
        assert_eq!(one.take_transactions(), 1, "its release");
        world.sim.pass(LEASE).await;
        assert_eq!(one.take_transactions(), 1, "the end of its session");
        world.sim.pass(LEASE).await;
        assert_eq!(one.take_transactions(), 0);
    });
}

#[test]
fn it_is_as_long_as_it_is_chosen() {
    everywhere(async |world| {
        let onlooker = world.tab();
        let long = world.tab().with(|builder| builder.linger(LEASE * 3));
        drop(write(&long).await);
        world.sim.pass(LEASE * 3 - ms(1)).await;
        assert!(is_held(&onlooker).await, "it is renewed meanwhile");
        assert!(write(&long).await.is_valid());
        drop(onlooker.leases.lock("k").try_acquire().await.unwrap().expect("nobody uses it"));

        let none = world.tab().with(|builder| builder.linger(ms(0)));
        let guard = write(&none).await;
        none.store.take_seen();
        guard.release().await.unwrap();
        assert_eq!(none.take_transactions(), 1);
        assert!(!is_held(&onlooker).await);
    });
}

/// Who tries or waits elsewhere has the key at once.
#[test]
fn it_ends_at_once_when_somebody_wants_the_key() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        for shared in [false, true] {
            drop(write(&one).await);
            let start = world.now();
            let request = || if shared { two.leases.lock("k").shared() } else { two.leases.lock("k") };
            drop(request().try_acquire().await.unwrap().expect("nobody uses it"));
            drop(write(&one).await);
            drop(request().acquire().await.unwrap());
            assert_eq!(world.ms_since(start), 0);
            world.sim.pass(secs(1)).await;
            assert!(!is_held(&two).await);
        }
    });
}

/// A context that can neither hear nor tell keeps it to the end of its linger, and no longer.
#[test]
fn a_deaf_context_keeps_it_to_the_end_of_its_linger() {
    everywhere(async |world| {
        let one = world.tab().with(|builder| builder.signals(Deaf));
        let two = world.tab();
        drop(write(&one).await);
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
        world.sim.pass(ms(LINGER_MS)).await;
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_some());
        drop(write(&one).await);
        let waited = world.within(HEARTBEAT + ms(1), write(&two)).await;
        assert!(waited.is_some(), "nobody tells it, so it learns by its next heartbeat");
    });
}

#[test]
fn a_contended_release_goes_at_once() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let held = write(&one).await;
        let mut wait = Box::pin(write(&two));
        assert!(world.within(secs(1), &mut wait).await.is_none());
        one.store.take_seen();
        held.release().await.unwrap();
        assert_eq!(one.take_transactions(), 1);
        assert!(world.within(ms(0), wait).await.is_some());
    });
}

/// A key that is in use is not given up to a try, and does not linger for less because of it.
#[test]
fn a_try_takes_nothing_from_who_uses_the_key() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let held = write(&one).await;
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
        assert!(held.is_valid());
        one.store.take_seen();
        drop(held);
        assert_eq!(one.take_transactions(), 0, "a try that was refused waits for nothing");
        assert!(is_held(&two).await);
    });
}

#[test]
fn a_manager_that_goes_gives_back_what_lingers() {
    everywhere(async |world| {
        let (one, two, onlooker) = (world.dark_tab(), world.dark_tab(), world.tab());
        drop(write(&one).await);
        drop(one);
        world.sim.pass(ms(LINGER_MS + 1)).await;
        assert!(!is_held(&onlooker).await);
        drop(write(&two).await);
        two.store.inject(Fault::Refuse);
        drop(two);
        world.sim.pass(secs(1)).await;
        assert!(!is_held(&onlooker).await, "though the store failed once");
    });
}

#[test]
fn closing_and_suspension_end_it() {
    everywhere(async |world| {
        let (one, two, onlooker) = (world.tab(), world.tab(), world.tab());
        drop(write(&one).await);
        one.leases.suspend();
        assert!(!is_held(&onlooker).await);
        drop(write(&two).await);
        two.leases.close().await;
        assert!(!is_held(&onlooker).await);
    });
}

/// What a context keeps without using it does not stand in its own way.
#[test]
fn two_modes_of_one_context_do_not_block_each_other() {
    everywhere(async |world| {
        let tab = world.tab();
        let start = world.now();
        for _ in 0..5 {
            drop(write(&tab).await);
            drop(read(&tab).await);
            drop(write(&tab).await);
            drop(tab.leases.lock("k").shared().try_acquire().await.unwrap().expect("nobody uses it"));
            drop(tab.leases.lock("k").try_acquire().await.unwrap().expect("nobody uses it"));
        }
        assert_eq!(world.ms_since(start), 0);
    });
}

/// A reader of its own that comes back finds what lingers; a writer elsewhere is not kept out by it.
#[test]
fn readers_linger_too() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let (first, second) = (read(&one).await, read(&one).await);
        one.store.take_seen();
        drop((first, second));
        drop(read(&one).await);
        assert_eq!(one.take_transactions(), 0);
        let writer = two.leases.lock("k").try_acquire().await.unwrap().expect("nobody reads");
        let mut late = Box::pin(read(&one));
        assert!((&mut late).now_or_never().is_none());
        drop(writer);
        assert!(world.within(ms(0), late).await.is_some());
    });
}

/// It does not turn into a hold: a lease whose renewals fail while it lingers is given to nobody here.
#[test]
fn what_ran_out_while_it_lingered_is_not_believed() {
    let world = World::new(1);
    world.run(async {
        let one = world.tab().with(|builder| builder.beacon(false).linger(LEASE * 10));
        let two = world.dark_tab();
        drop(write(&one).await);
        one.store.fail_always(Some(Fault::Refuse));
        one.executor.freeze();
        let next = world.within(LEASE + LEASE / 10 + HEARTBEAT, write(&two)).await.expect("it is overtaken");
        one.executor.thaw();
        one.store.heal();
        assert!(world.within(HEARTBEAT, write(&one)).await.is_none());
        assert!(next.is_valid());
    });
}

#[test]
fn an_upgrade_is_not_kept_out_by_what_lingers_elsewhere() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        drop(read(&two).await);
        let guard = read(&one).await;
        assert!(world.within(ms(0), guard.upgrade()).await.is_some());
    });
}

/// Several contexts that keep a key without using it give it back one after the other.
#[test]
fn a_try_waits_for_all_who_give_it_back() {
    let world = World::new(1);
    world.run(async {
        let slow = |each_ms| {
            let context = world.sim.context();
            let store = SlowStore::new(world.shared.clone(), context.clone(), each_ms..=each_ms);
            LeaseManager::builder(store, context).build().unwrap()
        };
        let (one, two, three) = (slow(1), slow(8), slow(1));
        let read = async |leases: &LeaseManager| leases.lock("k").shared().acquire().await.unwrap();
        drop((read(&one).await, read(&two).await));
        assert!(three.lock("k").try_acquire().await.unwrap().is_some(), "nobody uses it");
    });
}
