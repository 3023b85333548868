//! Contexts to which everything happens that may happen.

use futures::future::{Either, select};
use leasehold::{
    LeaseManager, StoreError,
    executor::{Executor, SimExecutor},
    machine::{Applied, Batch, Now, Reply, StoreClock},
    store::{Fault, FaultyStore, MemoryStore, Reach, Store},
};

use crate::{
    doubles::{LateSignals, PausingExecutor, SlowStore},
    oracle::{Oracle, Tally},
    world::{Dice, ms},
};

const YEAR_MS: i64 = 31_536_000_000;

/// In what way a world is unkind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Of the test that runs it.
    pub(crate) name: &'static str,
    pub(crate) lease_ms: u64,
    /// How long a store takes to apply, at least and at most; and then to answer.
    pub(crate) applies_ms: (u64, u64),
    pub(crate) answers_ms: (u64, u64),
    /// How late a signal may be; 0 for signals that neither dawdle nor get lost.
    pub(crate) late_ms: u64,
    /// Whether machines sleep, so that their monotonic clocks stand still.
    pub(crate) pauses: bool,
    pub(crate) clocks: &'static [StoreClock],
    /// How many histories show all that is expected, and take a few seconds at most.
    pub(crate) histories: u64,
    /// What must have happened in them, besides what happens everywhere.
    pub(crate) expected: &'static [&'static str],
}

/// A context: its manager, its executor to freeze, its connection to break.
pub(crate) struct Context {
    pub(crate) leases: LeaseManager,
    pub(crate) executor: PausingExecutor,
    pub(crate) store: FaultyStore<MemoryStore>,
}

/// A world and who is in it.
pub(crate) struct Chaos {
    pub(crate) how: How,
    pub(crate) sim: SimExecutor,
    pub(crate) memory: MemoryStore,
    pub(crate) oracle: Oracle,
    pub(crate) contexts: Vec<Context>,
    /// What a context does when it comes.
    pub(crate) begin: fn(&Context, &Oracle),
}

impl Chaos {
    pub(crate) fn dice(&self) -> Dice<'_> {
        Dice(&self.sim)
    }

    /// A context comes.
    pub(crate) fn join(&mut self) {
        let (how, tally) = (self.how, &self.oracle.tally);
        let sim = self.sim.context();
        let executor = PausingExecutor::new(sim.clone());
        let store = FaultyStore::new(self.memory.clone());
        // Some are prompt: where all are late, nobody overtakes anybody.
        let (applies, answers) =
            if self.dice().one_in(3) { ((0, 0), (0, 0)) } else { (how.applies_ms, how.answers_ms) };
        let slow =
            SlowStore::new(store.clone(), sim.clone(), applies.0..=applies.1).answering_in(answers.0..=answers.1);
        // A builder's own time limit is a quarter of the lease, and at most 5 s.
        let limit_ms = (how.lease_ms / 4).min(5_000);
        let timed = TimedStore { inner: slow, sim: sim.clone(), limit_ms, tally: tally.clone() };
        let signals = LateSignals::new(&self.memory.reach(), sim, how.late_ms, tally.clone());
        let builder = LeaseManager::builder(timed, executor.clone()).signals(signals).lease(ms(how.lease_ms));
        let leases = builder.beacon(self.dice().one_in(2)).build().unwrap();
        let context = Context { leases, executor, store };
        (self.begin)(&context, &self.oracle);
        self.contexts.push(context);
    }

    /// One misfortune, or the end of some.
    pub(crate) async fn strike(&mut self) {
        let chosen = self.dice().index(self.contexts.len());
        let context = &self.contexts[chosen];
        match self.dice().below(if self.how.pauses { 20 } else { 12 }) {
            0 => self.freeze(context),
            1 | 2 => self.awake().for_each(|context| context.executor.sim.thaw()),
            3 => self.jump(),
            4 => context.store.fail_always(Some(Fault::Refuse)),
            5 => context.store.fail_always(Some(Fault::Silence)),
            6 => context.store.fail_always(Some(Fault::Stall)),
            7 => (0..self.dice().below(6)).for_each(|_| context.store.inject(Fault::LoseReply)),
            8 | 9 => self.contexts.iter().for_each(|context| context.store.fail_always(None)),
            10 => self.crash(chosen),
            11 => self.sim.pass(ms(self.how.lease_ms)).await,
            fall if fall % 2 == 0 => self.sleep(context),
            _ => self.asleep().for_each(|context| context.executor.resume()),
        }
    }

    /// All troubles end.
    pub(crate) fn heal(&self) {
        for context in &self.contexts {
            context.executor.resume();
            context.store.heal();
        }
    }

    fn awake(&self) -> impl Iterator<Item = &Context> {
        self.contexts.iter().filter(|context| !context.executor.is_paused())
    }

    fn asleep(&self) -> impl Iterator<Item = &Context> {
        self.contexts.iter().filter(|context| context.executor.is_paused())
    }

    fn freeze(&self, context: &Context) {
        self.oracle.tally.count("a context froze", ());
        context.executor.sim.freeze();
    }

    fn sleep(&self, context: &Context) {
        self.oracle.tally.count("a machine slept", ());
        context.executor.pause();
    }

    fn jump(&self) {
        self.oracle.tally.count("the wall clock jumped", ());
        self.sim.set_wall_clock(if self.dice().one_in(2) { YEAR_MS } else { -YEAR_MS });
    }

    /// A context dies without a word, and another comes in its place.
    fn crash(&mut self, chosen: usize) {
        let Context { leases, executor, store } = self.contexts.swap_remove(chosen);
        executor.sim.kill();
        store.fail_always(Some(Fault::Fail));
        drop(self.oracle.bury(leases.incarnation()));
        drop(leases);
        // What the end of the guards began does not go on either.
        executor.sim.kill();
        self.oracle.tally.count("a context crashed", ());
        self.join();
    }
}

/// Counts what a store does to its context.
#[derive(Debug)]
struct TimedStore<S> {
    inner: S,
    sim: SimExecutor,
    limit_ms: u64,
    tally: Tally,
}

#[async_trait::async_trait]
impl<S: Store> Store for TimedStore<S> {
    async fn transact(&self, batch: Batch, now: Now) -> Result<Reply, StoreError> {
        let limit = self.sim.sleep(ms(self.limit_ms));
        let reply = match select(self.inner.transact(batch, now), limit).await {
            Either::Left((reply, _)) => reply,
            Either::Right(((), late)) => {
                self.tally.count("a transaction overran its time limit", ());
                self.tally.count("an answer came after the time limit", late.await)
            }
        };
        match &reply {
            Err(error) if error.applied == Applied::Unknown => self.tally.count("an answer was lost", reply),
            Err(_) => self.tally.count("a transaction was refused", reply),
            Ok(_) => reply,
        }
    }

    async fn close(&self) {
        self.inner.close().await;
    }

    fn clock(&self) -> StoreClock {
        self.inner.clock()
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }
}
