//! Random histories: contexts that freeze, sleep, crash, close and come anew, stores that fail, dawdle or forget, signals
//! that get lost, clocks that jump; and an oracle that watches every guard, every commit and every write.
//!
//! `HISTORIES=n` runs more of them, or fewer; `HISTORY_SEED=n` replays one, as a failing test says, or begins there.

use std::{env, ops::Range, panic};

use futures::future::{Either, select};
use leasehold::{
    LeaseManager,
    executor::{Executor, SimExecutor, TokioExecutor},
    machine::{
        SessionId,
        StoreClock::{self, Observed, Trusted},
    },
};

use crate::support::{
    chaos::{Chaos, How},
    line::Line,
    oracle::Tally,
    world::ms,
};

/// Troubles of one history, at most.
const EVENTS: u64 = 30;
/// In this many units a session is silent for too long, even one whose lease was extended.
const LONGEST_SILENCE: u64 = 60;
/// After this many turns, a sixteenth of all sessions each, nobody may be left.
const MOST_SWEEPS: usize = 12;
/// In this many units everybody is served: a dead holder costs more than a lease, and there may be many.
const PATIENCE: u64 = 4_000;
/// Then it is enough.
const MOST_FAILURES: usize = 5;
const REPLAY: &str = "cargo test --features tokio,test-util --test scenarios histories";
const BOTH: &[StoreClock] = &[Observed, Trusted];
const PLAIN: How = How {
    name: "on_a_prompt_store",
    lease_ms: 20_000,
    applies_ms: (0, 0),
    answers_ms: (0, 0),
    late_ms: 0,
    pauses: false,
    forgets: false,
    locks: false,
    crowd: 12,
    clocks: BOTH,
    histories: 400,
    expected: &["the store denied a guard", "a loss was told", JUMPED],
};
const JUMPED: &str = "the wall clock jumped";
const TOO_LATE: &[&str] = &["an answer came after the time limit", JUMPED];
const SIGNALS: &[&str] = &["a signal was lost", "a signal came twice", "a signal overtook another", JUMPED];

const HOWS: [How; 11] = [
    PLAIN,
    How { name: "on_a_slow_store", applies_ms: (0, 2_000), answers_ms: (0, 2_000), expected: TOO_LATE, ..PLAIN },
    // Just within the time limit: a belief that counted from the answer would outlast the lease. By observed clocks it
    // would not, for they leave twice the margin.
    How {
        name: "with_late_answers",
        // Where belief that lasts too long shows seldom.
        histories: 1_000,
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
    How {
        name: "on_a_store_that_forgets",
        applies_ms: (0, 300),
        answers_ms: (0, 300),
        late_ms: 1_000,
        forgets: true,
        expected: &["a commit was lost"],
        ..PLAIN
    },
    How {
        name: "with_locked_keys",
        locks: true,
        expected: &["a key was locked for too long", "a transaction was too large"],
        ..PLAIN
    },
    How {
        name: "with_locked_keys_and_late_answers",
        locks: true,
        lease_ms: 10_000,
        applies_ms: (0, 1_500),
        answers_ms: (0, 1_500),
        late_ms: 10_000,
        expected: &["a key was locked for too long", "a transaction was too large"],
        ..PLAIN
    },
    How { name: "in_a_crowd", applies_ms: (0, 300), answers_ms: (0, 300), crowd: 50, ..PLAIN },
];

/// What happens in every kind of world.
const EXPECTED: [&str; 39] = [
    "a context froze",
    "a context crashed",
    "a context was closed",
    "a context was suspended",
    "a context was told that it ends",
    "a transaction was refused",
    "a transaction overran its time limit",
    "an answer was lost",
    "a try found the key taken",
    "a wait timed out",
    "a request was dropped",
    "a request was told that the store failed",
    "a request lost its lease",
    "a twin was in the way",
    "several keys were granted",
    "a lease was stolen",
    "a grant was stolen",
    "a grant was evicted",
    "a lease was taken over",
    "a lease was upgraded",
    "a lease was downgraded",
    "an upgrade was dropped",
    "an upgrade was in the way of another",
    "a write was accepted",
    "a write was refused",
    "the store confirmed a guard",
    "the store denied a guard",
    "a loss was told",
    "a guard was lost or in doubt at its end",
    "a doubt was dispelled",
    "a release came too late",
    "a session was abandoned",
    "a session was left behind",
    "a session was ended by a waiter",
    "a session was swept",
    "a grant went after its session",
    "the answer to an opening was lost",
    "a loss by theft was told",
    "a loss by expiry was told",
];

macro_rules! histories {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            no_history_breaks_a_promise(stringify!($name));
        })*
    };
}

histories!(
    on_a_prompt_store,
    on_a_slow_store,
    with_late_answers,
    with_late_signals,
    past_the_time_limit,
    with_short_leases,
    on_clocks_that_pause,
    on_a_store_that_forgets,
    with_locked_keys,
    with_locked_keys_and_late_answers,
    in_a_crowd
);

fn no_history_breaks_a_promise(name: &str) {
    let how = HOWS.into_iter().find(|how| how.name == name).expect("it is listed");
    let (seeds, tally) = (seeds(how.histories), Tally::default());
    let begun = TokioExecutor::new().now().monotonic;
    let mut failures = Vec::new();
    for seed in seeds.clone() {
        let told = panic::catch_unwind(|| history(seed, how, tally.clone()));
        let told = told.unwrap_or_else(|_| Err("it panicked".to_owned()));
        failures.extend(told.err().map(|wrong| format!("{wrong}\nreplay with: HISTORY_SEED={seed} {REPLAY}::{name}")));
        if failures.len() == MOST_FAILURES {
            break;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let took_ms = TokioExecutor::new().now().monotonic.since(begun);
    println!("{name}: {} histories in {took_ms} ms\n{}", seeds.end - seeds.start, tally.table());
    if seeds.end - seeds.start >= how.histories {
        let missing = tally.missing(EXPECTED.iter().chain(how.expected).copied());
        assert!(missing.is_empty(), "the histories are too kind, nowhere happened: {missing:?}");
    }
}

fn seeds(histories: u64) -> Range<u64> {
    let number = |name| env::var(name).ok().map(|value| value.parse::<u64>().expect("it is a number"));
    match (number("HISTORY_SEED"), number("HISTORIES")) {
        (Some(seed), count) => seed..seed + count.unwrap_or(1),
        (None, count) => 0..count.unwrap_or(histories),
    }
}

fn history(seed: u64, how: How, tally: Tally) -> Result<(), String> {
    let sim = SimExecutor::new(seed);
    let mut chaos = Chaos::new(&sim, how, tally);
    let told = sim.block_on(live(&sim, &mut chaos, how));
    chaos.end();
    told
}

async fn live(sim: &SimExecutor, chaos: &mut Chaos, how: How) -> Result<(), String> {
    chaos.open();
    for _ in 0..chaos.dice().below(EVENTS) {
        chaos.strike().await;
        for _ in 0..chaos.dice().below(6) {
            sim.pass(ms(chaos.dice().below(how.unit_ms()))).await;
            chaos.oracle.verdict()?;
        }
    }
    chaos.heal();
    chaos.oracle.calm_down();
    wind_down(sim, chaos, how).await?;
    visit(sim, chaos, how).await?;
    quiet(sim, chaos, how).await
}

/// When everything works again, everybody who waits is served.
async fn wind_down(sim: &SimExecutor, chaos: &Chaos, how: How) -> Result<(), String> {
    chaos.oracle.set_over(true);
    for _ in 0..PATIENCE / 4 {
        if chaos.crew.working() == 0 {
            return Ok(());
        }
        sim.pass(ms(how.unit_ms() * 4)).await;
        chaos.oracle.verdict()?;
    }
    Err(format!("{} still wait: {:?}", chaos.crew.working(), chaos.vault.entries()))
}

/// Sessions that the dead left, at keys that nobody wants any more too, are ended by whoever has one open for longer than
/// they may be silent. Each opening shows some of them; and of those that end themselves, some are on their way to.
async fn sweep(sim: &SimExecutor, chaos: &Chaos, how: How) -> Result<(), String> {
    let line = Line::new(chaos.vault.clone(), sim.clone(), chaos.oracle.clone(), how.lease_ms);
    for _ in 0..MOST_SWEEPS {
        if left(chaos).is_empty() {
            return Ok(());
        }
        let sweeper = LeaseManager::builder(line.clone(), sim.clone()).lease(ms(how.lease_ms)).build().unwrap();
        let guard = sweeper.lock(chaos.vault.keys()[0].as_str()).priority(i32::MIN).acquire().await.unwrap();
        sim.pass(ms(how.unit_ms() * LONGEST_SILENCE)).await;
        drop(guard);
        sweeper.close().await;
        chaos.oracle.verdict()?;
    }
    Ok(())
}

/// The sessions that are there although nobody lives in them.
fn left(chaos: &Chaos) -> Vec<SessionId> {
    let living = chaos.sessions();
    chaos.vault.sessions().into_iter().filter(|session| !living.contains(session)).collect()
}

/// Whatever the dead left is cleared away by the next who comes.
async fn visit(sim: &SimExecutor, chaos: &Chaos, how: How) -> Result<(), String> {
    // What a context sent under a name that it gave up since may come as late as this.
    sim.pass(ms(how.applies_ms.1)).await;
    let line = Line::new(chaos.vault.clone(), sim.clone(), chaos.oracle.clone(), how.lease_ms);
    let visitor = LeaseManager::builder(line, sim.clone()).lease(ms(how.lease_ms)).build().unwrap();
    for key in chaos.vault.keys() {
        // After all others: there may be dead waiters of small priority.
        let asked = visitor.lock(key.as_str()).priority(i32::MIN).acquire();
        match select(Box::pin(asked), Box::pin(sim.pass(ms(how.unit_ms() * PATIENCE)))).await {
            Either::Left((guard, _)) => drop(guard.unwrap().release().await.unwrap()),
            Either::Right(_) => return Err(format!("never granted again: {:?}", chaos.vault.entries())),
        }
        chaos.oracle.verdict()?;
    }
    visitor.close().await;
    // What is on its way arrives, and is given back.
    sim.pass(ms(how.unit_ms() * 60)).await;
    sweep(sim, chaos, how).await?;
    chaos.oracle.verdict()?;
    idle(chaos, "after a visit")
}

/// While nothing but answers is lost, nobody leaves anything behind.
async fn quiet(sim: &SimExecutor, chaos: &Chaos, how: How) -> Result<(), String> {
    let before = chaos.oracle.granted();
    chaos.oracle.set_over(false);
    chaos.resume_work();
    for _ in 0..4 {
        chaos.annoy();
        sim.pass(ms(how.unit_ms())).await;
        chaos.oracle.verdict()?;
    }
    wind_down(sim, chaos, how).await?;
    // What was given back has gone, however slowly.
    sim.pass(ms(how.unit_ms() * 60)).await;
    chaos.oracle.verdict()?;
    chaos.close_all().await;
    chaos.oracle.verdict()?;
    if how.applies_ms.1 > 0 {
        // What was opened too late, nobody may be left to end.
        sweep(sim, chaos, how).await?;
    }
    if chaos.oracle.granted() == before {
        return chaos.oracle.tally.count("nobody was granted in quiet times", Ok(()));
    }
    idle(chaos, "in quiet times")
}

fn idle(chaos: &Chaos, when: &str) -> Result<(), String> {
    let (entries, left) = (chaos.vault.entries(), left(chaos));
    if entries.is_empty() && left.is_empty() {
        Ok(())
    } else {
        Err(format!("left behind {when}: {entries:?}, sessions {left:?}"))
    }
}
