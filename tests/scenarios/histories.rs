//! Random histories: contexts that freeze, sleep, crash and come anew, stores that fail or dawdle, signals that get
//! lost, clocks that jump; and an oracle that watches every guard at every moment.
//!
//! `HISTORIES=n` runs more of them, or fewer; `HISTORY_SEED=n` replays one, as a failing test says.

use std::{env, ops::Range, panic, sync::Arc};

use futures::future::{Either, select};
use leasehold::{
    AcquireError, LeaseGuard, LeaseManager, LeaseRequest, ReleaseOutcome,
    executor::{Executor, SimExecutor},
    machine::StoreClock::{self, Observed, Trusted},
    store::MemoryStore,
};

use crate::{
    chaos::{Chaos, Context, How},
    doubles::PausingExecutor,
    oracle::{Oracle, Tally},
    world::{Dice, ms, secs},
};

const KEYS: [&str; 2] = ["a", "b"];
const WORKERS: u64 = 3;
const EVENTS: u64 = 60;
const BOTH: &[StoreClock] = &[Observed, Trusted];
const PLAIN: How = How {
    name: "on_a_prompt_store",
    lease_ms: 20_000,
    applies_ms: (0, 0),
    answers_ms: (0, 0),
    late_ms: 0,
    pauses: false,
    clocks: BOTH,
    histories: 60,
    expected: &["the store denied a guard", "a loss was told"],
};
const TOO_LATE: &[&str] = &["an answer came after the time limit"];
const SIGNALS: &[&str] = &["a signal was lost", "a signal came twice", "a signal overtook another"];

const HOWS: [How; 7] = [
    PLAIN,
    How { name: "on_a_slow_store", applies_ms: (0, 2_000), answers_ms: (0, 2_000), expected: TOO_LATE, ..PLAIN },
    // Just within the time limit: a belief that counted from the answer would outlast the lease. By observed clocks it
    // would not, for they leave twice the margin.
    How {
        name: "with_late_answers",
        lease_ms: 10_000,
        applies_ms: (0, 200),
        answers_ms: (1_900, 2_250),
        clocks: &[Trusted],
        ..PLAIN
    },
    How {
        name: "with_late_signals",
        applies_ms: (0, 300),
        answers_ms: (0, 300),
        late_ms: 20_000,
        expected: SIGNALS,
        ..PLAIN
    },
    How {
        name: "past_the_time_limit",
        lease_ms: 10_000,
        applies_ms: (0, 4_000),
        answers_ms: (0, 4_000),
        late_ms: 10_000,
        expected: TOO_LATE,
        ..PLAIN
    },
    How {
        name: "with_short_leases",
        lease_ms: 1_000,
        applies_ms: (0, 200),
        answers_ms: (0, 200),
        late_ms: 5_000,
        histories: 20,
        expected: SIGNALS,
        ..PLAIN
    },
    How {
        name: "on_clocks_that_pause",
        applies_ms: (0, 1_000),
        answers_ms: (0, 1_000),
        late_ms: 10_000,
        pauses: true,
        // A store whose clock is trusted shares it with all contexts, so that none pauses alone.
        clocks: &[Observed],
        expected: &["a machine slept"],
        ..PLAIN
    },
];

/// What happens in every kind of world.
const EXPECTED: [&str; 14] = [
    "a context froze",
    "a context crashed",
    "the wall clock jumped",
    "a transaction was refused",
    "a transaction overran its time limit",
    "an answer was lost",
    "a try found the key taken",
    "a wait timed out",
    "a request was dropped",
    "a request was told that the store failed",
    "the store confirmed a guard",
    "a guard was lost or in doubt at its end",
    "a doubt was dispelled",
    "a release came too late",
];

#[test]
fn on_a_prompt_store() {
    no_history_breaks_a_promise("on_a_prompt_store");
}

#[test]
fn on_a_slow_store() {
    no_history_breaks_a_promise("on_a_slow_store");
}

#[test]
fn with_late_answers() {
    no_history_breaks_a_promise("with_late_answers");
}

#[test]
fn with_late_signals() {
    no_history_breaks_a_promise("with_late_signals");
}

#[test]
fn past_the_time_limit() {
    no_history_breaks_a_promise("past_the_time_limit");
}

#[test]
fn with_short_leases() {
    no_history_breaks_a_promise("with_short_leases");
}

#[test]
fn on_clocks_that_pause() {
    no_history_breaks_a_promise("on_clocks_that_pause");
}

fn no_history_breaks_a_promise(name: &str) {
    let how = HOWS.into_iter().find(|how| how.name == name).expect("it is listed");
    let (seeds, tally) = (seeds(how.histories), Tally::default());
    for seed in seeds.clone() {
        let told = panic::catch_unwind(|| history(seed, how, tally.clone()));
        assert!(
            told.is_ok(),
            "replay with: HISTORY_SEED={seed} cargo test --features tokio,test-util --test scenarios histories::{name}"
        );
    }
    if seeds.end - seeds.start >= how.histories {
        let missing = tally.missing(EXPECTED.iter().chain(how.expected).copied());
        assert!(missing.is_empty(), "the histories are too kind, nowhere happened: {missing:?}");
    }
}

fn seeds(histories: u64) -> Range<u64> {
    let number = |name| env::var(name).ok().map(|value| value.parse().expect("it is a number"));
    match number("HISTORY_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("HISTORIES").unwrap_or(histories),
    }
}

fn history(seed: u64, how: How, tally: Tally) {
    let sim = SimExecutor::new(seed);
    let clock = how.clocks[Dice(&sim).index(how.clocks.len())];
    let (memory, oracle) = (MemoryStore::with_clock(clock), Oracle::new(tally));
    let mut chaos = Chaos { how, sim: sim.clone(), memory, oracle, contexts: Vec::new(), begin };
    sim.block_on(async {
        for _ in 0..2 + chaos.dice().below(3) {
            chaos.join();
        }
        for _ in 0..EVENTS {
            chaos.strike().await;
            for _ in 0..chaos.dice().below(40) {
                sim.pass(ms(chaos.dice().below(400))).await;
                chaos.oracle.look();
            }
        }
        peace(&chaos).await;
    });
}

/// When everything works again, everybody is served.
async fn peace(chaos: &Chaos) {
    chaos.heal();
    let (sim, before) = (&chaos.sim, chaos.oracle.granted());
    let builder = LeaseManager::builder(chaos.memory.clone(), sim.context());
    let visitor = builder.lease(ms(chaos.how.lease_ms)).build().unwrap();
    for key in KEYS {
        let served = select(Box::pin(visitor.lock(key).acquire()), Box::pin(sim.pass(secs(900)))).await;
        let Either::Left((guard, _)) = served else { panic!("{key} is never granted again") };
        guard.unwrap().release().await.unwrap();
        chaos.oracle.look();
    }
    sim.pass(secs(100)).await;
    chaos.oracle.look();
    assert!(chaos.oracle.granted() > before, "the others go on too");
}

fn begin(context: &Context, oracle: &Oracle) {
    for _ in 0..WORKERS {
        let worker = work(context.leases.clone(), context.executor.clone(), oracle.clone());
        context.executor.spawn(Box::pin(worker));
    }
}

/// Somebody who takes leases in every way there is, and holds them for a while.
async fn work(leases: LeaseManager, executor: PausingExecutor, oracle: Oracle) {
    loop {
        executor.sleep(ms(Dice(&executor.sim).below(2_000))).await;
        let request = leases.lock(KEYS[Dice(&executor.sim).index(KEYS.len())]);
        let Some(guard) = ask(request, &executor, &oracle.tally).await.map(Arc::new) else { continue };
        oracle.welcome(leases.incarnation(), &executor, &guard);
        hold(&guard, &executor, &oracle.tally).await;
        oracle.dismiss(&guard);
        if Dice(&executor.sim).one_in(2) && guard.release().await == Ok(ReleaseOutcome::Lost) {
            oracle.tally.count("a release came too late", ());
        }
    }
}

async fn ask(request: LeaseRequest, executor: &PausingExecutor, tally: &Tally) -> Option<LeaseGuard> {
    let dice = Dice(&executor.sim);
    let answer = match dice.below(4) {
        0 => match request.try_acquire().await {
            Ok(None) => return tally.count("a try found the key taken", None),
            answer => answer.map(Option::unwrap),
        },
        1 => request.timeout(ms(dice.below(30_000))).acquire().await,
        2 => match select(Box::pin(request.acquire()), executor.sleep(ms(dice.below(8_000)))).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => return tally.count("a request was dropped", None),
        },
        _ => request.acquire().await,
    };
    match answer {
        Err(AcquireError::Timeout) => tally.count("a wait timed out", None),
        Err(AcquireError::Store(_)) => tally.count("a request was told that the store failed", None),
        answer => Some(answer.unwrap()),
    }
}

async fn hold(guard: &LeaseGuard, executor: &PausingExecutor, tally: &Tally) {
    let dice = Dice(&executor.sim);
    let patience_ms = if dice.one_in(8) { 60_000 } else { 200 };
    executor.sleep(ms(dice.below(patience_ms))).await;
    if dice.one_in(4) {
        match guard.verify().await {
            Ok(true) => tally.count("the store confirmed a guard", ()),
            Ok(false) => {
                tally.count("the store denied a guard", ());
                assert!(!guard.is_valid(), "what the store denies is not valid");
            }
            Err(_) => {}
        }
    }
}
