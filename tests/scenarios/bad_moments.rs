//! Rare moments: a thread that stalls with the time in its hand, a key that has used up its tokens, an answer that is lost
//! just when a lease changes hands.

use std::{sync::Arc, time::Duration};

use futures::future::join;
use leasehold::{
    AcquireError, LeaseManager, ReleaseOutcome,
    executor::{Executor, SimExecutor},
    machine::{
        Batch, Command, Config, Input, Key, Machine, Monotonic, Now, Options, Output, Record, Reply, SessionId,
        StoreClock, StoreError, Turn, TurnId, Wall,
    },
    store::{Fault, FaultyStore, MemoryStore, Store},
};

use crate::support::{
    shelf::{Habit, Shelf},
    world::{HEARTBEAT, LEASE, LIMIT, everywhere, ms, secs},
};

const fn at(ms: u64) -> Now {
    Now { monotonic: Monotonic::from_ms(ms), wall: Wall::from_ms(1_700_000_000_000 + ms) }
}

/// A context that is driven by hand, so that a thread can stall between two of its steps.
struct ByHand {
    machine: Machine,
    outputs: Vec<Output>,
}

impl ByHand {
    fn new(number: u128) -> Self {
        let options = Options { linger: Duration::ZERO, beacon: false, ..Options::default() };
        Self { machine: Machine::new(Config::parse(&options).unwrap(), SessionId(number)), outputs: Vec::new() }
    }

    fn handle(&mut self, input: Input, ms: u64) {
        self.machine.handle(input, at(ms));
        self.outputs.clear();
        loop {
            match self.machine.poll_output() {
                Output::Timeout(_) => return,
                output => self.outputs.push(output),
            }
        }
    }

    fn sent(&self) -> (u64, Batch) {
        let sent = self.outputs.iter().find_map(|output| match output {
            Output::Command(Command::Store { id, batch }) => Some((*id, batch.clone())),
            _ => None,
        });
        sent.expect("a transaction was sent")
    }

    fn answered(&mut self, id: u64, result: Result<Reply, StoreError>, ms: u64) {
        self.handle(Input::Reply { id, result }, ms);
    }
}

fn turn(id: u64) -> Turn {
    Turn::new(TurnId(id), Key::new("k").unwrap())
}

/// A thread reads the clock, stalls for twelve seconds, and runs its transaction with the time that it read. The next in
/// line is granted by it, and keeps its lease for as long as it believes in it.
#[test]
fn a_transaction_that_runs_with_an_old_time_shortens_nobodys_lease() {
    let sim = SimExecutor::new(1);
    sim.block_on(async {
        let store = MemoryStore::with_clock(StoreClock::Trusted);
        let (mut giver, mut heir, mut third) = (ByHand::new(1), ByHand::new(2), ByHand::new(3));
        let transact = async |context: &ByHand, now| {
            let (id, batch) = context.sent();
            (id, store.transact(batch, at(now), LIMIT).await)
        };
        giver.handle(Input::Acquire(turn(1)), 101_000);
        let (id, reply) = transact(&giver, 101_000).await;
        giver.answered(id, reply, 101_000);
        giver.handle(Input::Release { turn: TurnId(1), slot: turn(1).slot() }, 102_000);
        heir.handle(Input::Acquire(turn(2)), 114_000);
        let (id, reply) = transact(&heir, 114_000).await;
        heir.answered(id, reply, 114_000);
        let (id, reply) = transact(&giver, 102_000).await;
        giver.answered(id, reply, 114_001);
        let told = giver.outputs.iter().find_map(|output| match output {
            Output::Command(Command::Send(message)) => Some(message.clone()),
            _ => None,
        });
        heir.handle(Input::Message(told.expect("the heir is told")), 114_001);
        third.handle(Input::Acquire(turn(3)), 114_002);
        let (id, reply) = transact(&third, 114_002).await;
        third.answered(id, reply, 114_002);
        let left = |context: &ByHand, id| context.machine.remaining_ms(TurnId(id), &turn(id).slot(), at(114_002));
        assert!(left(&heir, 2) > 0, "the heir believes");
        assert_eq!(left(&third, 3), 0, "and nobody beside it");
    });
}

/// The last token of a key: who has it keeps it, and everybody after that is told at once.
#[test]
fn a_key_without_tokens_is_an_error_and_no_endless_wait() {
    let (sim, shelf) = (SimExecutor::new(1), Arc::<Shelf>::default());
    let last = (1_u64 << 53) - 1 - 64;
    shelf.put("k", &Record::default().encode().replace("\"last_token\":0", &format!("\"last_token\":{last}")));
    let manager = || LeaseManager::builder(shelf.open(Habit::Locks), sim.context()).linger(ms(100)).build().unwrap();
    let (one, other) = (manager(), manager());
    sim.block_on(async {
        for _ in 0..64 {
            drop(one.lock("k").timeout(secs(60)).acquire().await.unwrap());
        }
        let start = sim.now().monotonic;
        let (own, rival) =
            join(one.lock("k").timeout(secs(3_600)).acquire(), other.lock("k").timeout(secs(1_800)).acquire()).await;
        let refusals = [own.unwrap_err(), rival.unwrap_err()];
        assert!(refusals.iter().all(|error| !matches!(error, AcquireError::Timeout { .. })), "{refusals:?}");
        assert!(sim.now().monotonic.since(start) < 60_000, "within a minute");
    });
}

/// The answer to a release is lost: the next in line has the lease in the store, and nobody can tell it. It looks once a
/// heartbeat.
#[test]
fn an_heir_whose_news_was_lost_finds_out_within_a_heartbeat() {
    everywhere(async |world| {
        let store = FaultyStore::new(world.shared.clone());
        let builder = LeaseManager::builder(store.clone(), world.sim.context()).lease(LEASE).heartbeat(HEARTBEAT);
        let one = builder.linger(Duration::ZERO).build().unwrap();
        let other = world.tab();
        let guard = one.lock("k").acquire().await.unwrap();
        let mut next = Box::pin(other.leases.lock("k").acquire());
        assert!(futures::poll!(next.as_mut()).is_pending());
        store.inject(Fault::LoseReply);
        let start = world.now();
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released, "told after it was asked again");
        let heir = next.await.unwrap();
        assert!(heir.is_valid() && world.ms_since(start) <= 5_000, "after {} ms", world.ms_since(start));
    });
}

/// A lease that leaves its guard outlives its manager for a lease, also if the store refuses the move once.
#[test]
fn parts_outlive_their_manager_though_the_store_refuses_once() {
    for fault in [None, Some(Fault::Refuse), Some(Fault::LoseReply)] {
        everywhere(async |world| {
            let store = FaultyStore::new(world.shared.clone());
            let builder = LeaseManager::builder(store.clone(), world.sim.context()).lease(LEASE).heartbeat(HEARTBEAT);
            let one = builder.build().unwrap();
            let (rival, heir) = (world.tab(), world.tab());
            let guard = one.lock("k").acquire().await.unwrap();
            let token = guard.token();
            let mut next = Box::pin(rival.leases.lock("k").acquire());
            assert!(futures::poll!(next.as_mut()).is_pending());
            if let Some(fault) = fault {
                store.inject(fault);
            }
            let parts = guard.into_parts();
            one.close().await;
            world.sim.pass(LEASE / 2).await;
            assert!(futures::poll!(next.as_mut()).is_pending(), "{fault:?}: it waits for whoever resumes them");
            let resumed = heir.leases.resume(parts).await.unwrap();
            assert!(resumed.is_valid() && resumed.token() > token, "{fault:?}");
            world.sim.pass(LEASE * 2).await;
            assert!(
                resumed.is_valid() && futures::poll!(next.as_mut()).is_pending(),
                "{fault:?}: its session is beaten"
            );
            resumed.release().await.unwrap();
            assert!(world.within(secs(6), next).await.is_some(), "{fault:?}");
        });
    }
}
