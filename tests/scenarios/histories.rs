//! Random histories: contexts that freeze, crash and come anew, stores that fail, clocks that jump; and an oracle that
//! watches every guard at every moment. A failing seed is printed; `HISTORY_SEED=n` replays it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use leasehold::{
    LeaseGuard, LeaseManager,
    executor::{Executor, SimExecutor},
    machine::StoreClock,
    store::{Fault, FaultyStore, MemoryStore},
};

use crate::world::{HEARTBEAT, LEASE, Tab, World, ms, secs};

const KEYS: [&str; 2] = ["a", "b"];
const WORKERS: u64 = 3;
const EVENTS: u64 = 60;

/// What all see: the guards alive, and the largest token of each key.
#[derive(Clone, Default)]
struct Oracle(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    guards: Vec<(u128, Arc<LeaseGuard>)>,
    largest: BTreeMap<String, u64>,
    granted: u64,
    lost: u64,
}

impl Oracle {
    fn granted(&self, context: u128, guard: &Arc<LeaseGuard>) {
        let mut seen = self.0.lock().unwrap();
        let token = guard.token().as_u64();
        let largest = seen.largest.insert(guard.key().to_owned(), token);
        assert!(largest.is_none_or(|largest| largest < token), "tokens grow: {largest:?}, then {token}");
        seen.granted += 1;
        seen.guards.push((context, guard.clone()));
        drop(seen);
        self.look();
    }

    /// Never do two contexts believe, not even for a moment.
    fn look(&self) {
        let seen = self.0.lock().unwrap();
        for key in KEYS {
            let believers = seen.guards.iter().filter(|(_, guard)| guard.key() == key && guard.is_valid()).count();
            assert!(believers <= 1, "{believers} guards of {key} are valid at once");
        }
    }

    fn gone(&self, guard: &Arc<LeaseGuard>, was_valid: bool) {
        let mut seen = self.0.lock().unwrap();
        seen.lost += u64::from(!was_valid);
        seen.guards.retain(|(_, other)| !Arc::ptr_eq(other, guard));
    }
}

/// Dice of the world.
struct Dice(SimExecutor);

impl Dice {
    fn below(&self, end: u64) -> u64 {
        u64::try_from(self.0.random() % u128::from(end)).unwrap()
    }

    fn one_in(&self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

/// Somebody who takes leases in every way there is, and holds them for a while.
async fn work(leases: LeaseManager, executor: SimExecutor, oracle: Oracle) {
    let dice = Dice(executor.clone());
    let context = leases.incarnation().0;
    loop {
        executor.sleep(ms(dice.below(3_000))).await;
        let request = leases.lock(KEYS[usize::from(dice.one_in(3))]);
        let granted = match dice.below(4) {
            0 => request.try_acquire().await.unwrap_or(None),
            1 => request.timeout(ms(dice.below(30_000))).acquire().await.ok(),
            2 => {
                // A future that is dropped somewhere on its way.
                let limit = executor.sleep(ms(dice.below(8_000)));
                let request = Box::pin(request.acquire());
                match futures::future::select(request, limit).await {
                    futures::future::Either::Left((granted, _)) => granted.ok(),
                    futures::future::Either::Right(_) => None,
                }
            }
            _ => request.acquire().await.ok(),
        };
        let Some(guard) = granted.map(Arc::new) else { continue };
        oracle.granted(context, &guard);
        hold(&guard, &executor, &dice).await;
        oracle.gone(&guard, guard.is_valid());
        if dice.one_in(2) {
            let _ = guard.release().await;
        }
    }
}

async fn hold(guard: &LeaseGuard, executor: &SimExecutor, dice: &Dice) {
    let patience = if dice.one_in(8) { 60_000 } else { 200 };
    executor.sleep(ms(dice.below(patience))).await;
    if dice.one_in(4) {
        let held = guard.verify().await;
        assert!(held != Ok(false) || !guard.is_valid(), "what the store denies is not valid");
    }
}

/// A context with its workers.
fn start(world: &World, oracle: &Oracle, dice: &Dice) -> Tab {
    let tab = if dice.one_in(2) { world.tab() } else { world.dark_tab() };
    for _ in 0..WORKERS {
        let worker = work(tab.leases.clone(), tab.executor.clone(), oracle.clone());
        tab.executor.spawn(Box::pin(worker));
    }
    tab
}

/// One misfortune.
async fn strike(world: &World, tabs: &mut Vec<Tab>, oracle: &Oracle, dice: &Dice) {
    let chosen = usize::try_from(dice.below(tabs.len() as u64)).unwrap();
    let tab = &tabs[chosen];
    match dice.below(12) {
        0 => tab.executor.freeze(),
        1 | 2 => tabs.iter().for_each(|tab| tab.executor.thaw()),
        3 => world.sim.set_wall_clock(if dice.one_in(2) { 31_536_000_000 } else { -31_536_000_000 }),
        4 => tab.store.fail_always(Some(Fault::Refuse)),
        5 => tab.store.fail_always(Some(Fault::Silence)),
        6 => tab.store.fail_always(Some(Fault::Stall)),
        7 => (0..dice.below(6)).for_each(|_| tab.store.inject(Fault::LoseReply)),
        8 | 9 => tabs.iter().for_each(|tab| tab.store.fail_always(None)),
        10 => crash(world, tabs, chosen, oracle, dice),
        _ => world.sim.pass(LEASE).await,
    }
}

/// A context dies without a word, and another comes in its place.
fn crash(world: &World, tabs: &mut Vec<Tab>, chosen: usize, oracle: &Oracle, dice: &Dice) {
    let dead = tabs.swap_remove(chosen);
    dead.executor.kill();
    dead.store.fail_always(Some(Fault::Fail));
    let context = dead.leases.incarnation().0;
    let mut seen = oracle.0.lock().unwrap();
    let (guards, alive) = seen.guards.drain(..).partition(|(other, _)| *other == context);
    seen.guards = alive;
    drop(seen);
    drop::<(Vec<_>, Tab)>((guards, dead));
    tabs.push(start(world, oracle, dice));
}

fn history(seed: u64) -> (u64, u64) {
    let clock = if seed.is_multiple_of(4) { StoreClock::Trusted } else { StoreClock::Observed };
    let world = World::with_clock(seed, clock);
    world.run(async {
        let (oracle, dice) = (Oracle::default(), Dice(world.sim.context()));
        let mut tabs: Vec<_> = (0..2 + dice.below(3)).map(|_| start(&world, &oracle, &dice)).collect();
        for _ in 0..EVENTS {
            strike(&world, &mut tabs, &oracle, &dice).await;
            for _ in 0..dice.below(40) {
                world.sim.pass(ms(dice.below(400))).await;
                oracle.look();
            }
        }
        peace(&world, &tabs, &oracle).await;
        let seen = oracle.0.lock().unwrap();
        (seen.granted, seen.lost)
    })
}

/// When everything works again, everybody is served.
async fn peace(world: &World, tabs: &[Tab], oracle: &Oracle) {
    for tab in tabs {
        tab.executor.thaw();
        tab.store.heal();
    }
    let before = oracle.0.lock().unwrap().granted;
    let store: FaultyStore<MemoryStore> = tabs[0].store.clone();
    let visitor = LeaseManager::builder(store, world.sim.context()).lease(LEASE).heartbeat(HEARTBEAT).build().unwrap();
    for key in KEYS {
        let guard = world.within(secs(600), visitor.lock(key).acquire()).await;
        guard.unwrap_or_else(|| panic!("{key} is never granted again")).unwrap().release().await.unwrap();
    }
    world.sim.pass(secs(60)).await;
    assert!(oracle.0.lock().unwrap().granted > before, "the others go on too");
}

#[test]
fn no_history_breaks_a_promise() {
    let replay = std::env::var("HISTORY_SEED").ok().and_then(|seed| seed.parse().ok());
    let count = std::env::var("HISTORIES").ok().and_then(|count| count.parse().ok()).unwrap_or(60);
    let (mut granted, mut lost) = (0, 0);
    for seed in replay.map_or(0..count, |seed| seed..seed + 1) {
        let told = std::panic::catch_unwind(|| history(seed));
        let (grants, losses) = told.unwrap_or_else(|_| panic!("replay with HISTORY_SEED={seed}"));
        (granted, lost) = (granted + grants, lost + losses);
    }
    println!("{granted} guards, {lost} of them lost");
    assert!(granted > 0 && (lost > 0 || replay.is_some()), "the histories are too kind: {granted}, {lost}");
}
