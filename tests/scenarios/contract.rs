//! The contract suite, run by memory with both kinds of clock.

use leasehold::{
    executor::SimExecutor,
    machine::StoreClock,
    store::{FaultyStore, MemoryStore, contract},
};

#[test]
fn memory_keeps_the_contract() {
    for clock in [StoreClock::Trusted, StoreClock::Observed] {
        let shared = MemoryStore::with_clock(clock);
        SimExecutor::new(1).block_on(contract::all(async || shared.clone()));
    }
}

#[test]
fn a_store_without_faults_keeps_the_contract() {
    let shared = FaultyStore::new(MemoryStore::new());
    SimExecutor::new(1).block_on(contract::all(async || shared.clone()));
}

#[test]
#[should_panic(expected = "a second connection sees the grant")]
fn the_contract_catches_a_store_that_keeps_its_writes_to_itself() {
    SimExecutor::new(1).block_on(contract::all(async || MemoryStore::new()));
}
