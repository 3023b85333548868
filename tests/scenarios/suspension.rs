//! Rule o: what a context was before it was suspended is over.

use leasehold::LeaseManager;

use crate::{
    doubles::SlowStore,
    world::{HEARTBEAT, LEASE, World, everywhere, ms},
};

fn slow(world: &World, each_way_ms: u64) -> LeaseManager {
    let tab = world.tab();
    let store = SlowStore::new(tab.store, world.sim.clone(), each_way_ms..=each_way_ms);
    LeaseManager::builder(store, tab.executor).lease(LEASE).heartbeat(HEARTBEAT).build().unwrap()
}

#[test]
fn o_an_answer_to_the_incarnation_before_gives_no_lease_to_the_next() {
    everywhere(async |world| {
        let one = slow(world, 1_000);
        let mut asks = Box::pin(one.lock("k").acquire());
        assert!(world.within(ms(100), &mut asks).await.is_none());
        one.suspend();
        one.wake();
        let guard = asks.await.unwrap();
        let holders = one.status("k").await.unwrap().holders;
        let recorded: Vec<_> = holders.iter().map(|holder| (holder.holder, holder.token)).collect();
        assert_eq!(recorded, [(one.incarnation(), guard.token())]);
    });
}
