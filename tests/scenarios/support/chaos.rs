//! Contexts to which everything happens that may happen.

use std::{collections::BTreeSet, time::Duration};

use leasehold::{
    LeaseManager, LostReason,
    executor::{Executor, Lifecycle, SimExecutor},
    machine::{SessionId, StoreClock},
    store::Fault,
};

use crate::support::{
    doubles::{LateSignals, PausingExecutor},
    line::Line,
    oracle::{Oracle, Tally},
    vault::Vault,
    worker::{Crew, Worker},
    world::{Dice, ms},
};

const YEAR_MS: i64 = 31_536_000_000;
/// How many contexts are named, by the same few names.
const NAMES: u64 = 3;

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
    /// Whether the store may lose its last commit; then wall clocks do not jump, for tokens rest on them.
    pub(crate) forgets: bool,
    /// Whether others keep records locked, and the store refuses transactions that are too large, and some others for good.
    pub(crate) locks: bool,
    /// How many contexts there are at most.
    pub(crate) crowd: u64,
    pub(crate) clocks: &'static [StoreClock],
    /// How many histories show all that is expected, and take a few seconds at most.
    pub(crate) histories: u64,
    /// What must have happened in them, besides what happens everywhere.
    pub(crate) expected: &'static [&'static str],
}

impl How {
    /// The time in which things happen: a twentieth of the lease.
    pub(crate) fn unit_ms(&self) -> u64 {
        self.lease_ms / 20
    }
}

/// A context: its manager, its executor to freeze, its line to break.
struct Context {
    leases: LeaseManager,
    executor: PausingExecutor,
    line: Line,
    number: u64,
    suspended: bool,
}

/// A world and who is in it.
pub(crate) struct Chaos {
    how: How,
    sim: SimExecutor,
    pub(crate) vault: Vault,
    pub(crate) oracle: Oracle,
    pub(crate) crew: Crew,
    contexts: Vec<Context>,
    /// Those that were closed, and may not have come to their end.
    closed: Vec<Context>,
    last_number: u64,
}

impl Chaos {
    pub(crate) fn new(sim: &SimExecutor, how: How, tally: Tally) -> Self {
        let dice = Dice(sim);
        let clock = how.clocks[dice.index(how.clocks.len())];
        let keys = match dice.below(8) {
            0 => 4 + dice.index(17),
            few => 1 + usize::try_from(few).unwrap() / 3,
        };
        let oracle = Oracle::new(sim.clone(), tally, ms(how.lease_ms));
        let vault = Vault::new(clock, how.forgets, keys, oracle.clone());
        Self {
            how,
            sim: sim.clone(),
            vault,
            oracle,
            crew: Crew::default(),
            contexts: Vec::new(),
            closed: Vec::new(),
            last_number: 0,
        }
    }

    pub(crate) fn dice(&self) -> Dice<'_> {
        Dice(&self.sim)
    }

    fn units(&self, count: u64) -> Duration {
        ms(self.how.unit_ms() * count)
    }

    /// The first contexts come: mostly few.
    pub(crate) fn open(&mut self) {
        let count = match self.dice().below(40) {
            0 => 2 + self.dice().below(self.how.crowd - 1),
            1..=10 => 4 + self.dice().below(2),
            _ => 2 + self.dice().below(2),
        };
        (0..count).for_each(|_| self.join());
    }

    /// A context comes, with people who work in it.
    fn join(&mut self) {
        let (how, dice) = (self.how, Dice(&self.sim));
        let executor = PausingExecutor::new(self.sim.context());
        // A builder's own time limit is a quarter of the lease, and at most 5 s.
        let limit_ms = (how.lease_ms / 4).min(5_000);
        let mut line = Line::new(self.vault.clone(), executor.sim.clone(), self.oracle.clone(), limit_ms);
        // Some are prompt: where all are late, nobody overtakes anybody.
        if !dice.one_in(3) {
            (line.applies_ms, line.answers_ms) = (how.applies_ms, how.answers_ms);
        }
        // Drawn from nothing, so that older seeds go on meaning what they meant.
        line.abandons = !self.last_number.is_multiple_of(3);
        let tally = self.oracle.tally.clone();
        let signals = LateSignals::new(&self.vault.reach(), executor.sim.clone(), how.late_ms, tally);
        let mut builder =
            LeaseManager::builder(line.clone(), executor.clone()).signals(signals).lease(ms(how.lease_ms));
        if dice.one_in(4) {
            builder = builder.linger(Duration::ZERO);
        }
        if dice.one_in(6) {
            builder = builder.instance(format!("w{}", dice.below(NAMES)));
        }
        let leases = builder.beacon(dice.one_in(2)).build().unwrap();
        self.last_number += 1;
        let context = Context { leases, executor, line, number: self.last_number, suspended: false };
        for _ in 0..1 + dice.below(3) {
            self.employ(&context);
        }
        self.contexts.push(context);
    }

    fn employ(&self, context: &Context) {
        let worker = Worker {
            leases: context.leases.clone(),
            executor: context.executor.clone(),
            vault: self.vault.clone(),
            oracle: self.oracle.clone(),
            how: self.how,
            context: context.number,
            shift: self.crew.begin_shift(),
        };
        context.executor.spawn(Box::pin(worker.work()));
    }

    /// Everybody who is there works again.
    pub(crate) fn resume_work(&self) {
        self.contexts.iter().for_each(|context| self.employ(context));
    }

    /// One misfortune, or the end of some.
    pub(crate) async fn strike(&mut self) {
        let chosen = self.dice().index(self.contexts.len());
        let context = &self.contexts[chosen];
        let most = match self.how {
            How { locks: true, .. } => 36,
            How { pauses: true, .. } => 28,
            _ => 20,
        };
        let what = self.dice().below(most);
        self.oracle.tell(|| format!("strike {what} at {} {:04x}", context.number, context.leases.session().0 & 0xffff));
        match what {
            0 => self.freeze(context),
            1 | 2 => self.awake().for_each(|context| context.executor.sim.thaw()),
            3 if self.how.forgets => self.forget(),
            3 => self.jump(),
            4 => context.line.fail_always(Some(Fault::Refuse)),
            5 => context.line.fail_always(Some(Fault::Silence)),
            6 => context.line.fail_always(Some(Fault::Stall)),
            7 | 8 => context.line.lose_answers(self.dice().below(6)),
            9..=11 => self.contexts.iter().for_each(|context| context.line.heal()),
            12 => self.crash(chosen),
            13 => self.sim.pass(self.units(20)).await,
            14 => self.close(chosen),
            15 => self.suspend(chosen),
            16 | 17 => self.wake(),
            18 | 19 => {}
            hitch if self.how.locks => self.hitch(context, hitch),
            fall if fall % 2 == 0 => self.sleep(context),
            _ => self.asleep().for_each(|context| context.executor.resume()),
        }
    }

    /// What happens to a server that others use, too, or to the connection to it.
    fn hitch(&self, context: &Context, what: u64) {
        let (dice, keys) = (self.dice(), self.vault.keys().len());
        match what {
            20..=24 => self.vault.lock(dice.index(keys)),
            25 => (0..keys).for_each(|key| self.vault.lock(key)),
            26 | 27 => self.vault.unlock(Some(dice.index(keys))),
            28 | 29 => self.vault.unlock(None),
            30 | 31 => context.line.narrow(Some(1 + dice.index(3))),
            32 => {
                self.oracle.may_lose(context.number, LostReason::StoreFailed);
                context.line.fail(1 + dice.below(3));
            }
            33 => context.line.be_busy(1 + dice.below(4)),
            34 => {
                self.oracle.may_lose(context.number, LostReason::StoreFailed);
                context.line.tell(true);
            }
            _ => context.line.tell(false),
        }
    }

    /// All troubles end.
    pub(crate) fn heal(&mut self) {
        self.vault.unlock(None);
        for context in self.contexts.iter().chain(&self.closed) {
            context.executor.resume();
            context.line.heal();
        }
        if self.how.forgets {
            // What was given back by a commit that was lost stands under a session that lives, and blocks for as long.
            (0..self.contexts.len()).for_each(|chosen| self.suspend(chosen));
        }
        self.wake();
    }

    /// Answers get lost now and then, and nothing else goes wrong.
    pub(crate) fn annoy(&self) {
        for context in &self.contexts {
            context.line.lose_answers(self.dice().below(2));
        }
    }

    /// The sessions that may be there when nothing is wanted any more: those of the living, and of those who still give
    /// something back.
    pub(crate) fn sessions(&self) -> BTreeSet<SessionId> {
        self.contexts.iter().chain(&self.closed).map(|context| context.leases.session()).collect()
    }

    /// Everybody closes in good order.
    pub(crate) async fn close_all(&self) {
        for context in &self.contexts {
            self.oracle.may_lose(context.number, LostReason::Closed);
            context.leases.close().await;
        }
    }

    /// Nothing of this world goes on.
    pub(crate) fn end(&mut self) {
        let all = || self.contexts.iter().chain(&self.closed);
        all().for_each(|context| context.executor.sim.kill());
        all().for_each(|context| drop(self.oracle.bury(context.number)));
        let executors: Vec<_> = all().map(|context| context.executor.sim.clone()).collect();
        self.contexts.clear();
        self.closed.clear();
        // What the end of the guards began does not go on either.
        executors.iter().for_each(SimExecutor::kill);
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

    /// The store loses its last commit; that takes a moment of wall time, on which the tokens rest.
    fn forget(&self) {
        if self.vault.forget_last() {
            self.oracle.tally.count("a commit was lost", ());
            self.sim.set_wall_clock(2);
            self.oracle.shake(self.sim.now().monotonic.plus(self.how.lease_ms * 3));
        }
    }

    /// A context dies without a word, and another comes in its place.
    fn crash(&mut self, chosen: usize) {
        self.oracle.tally.count("a context crashed", ());
        let Context { leases, executor, line, number, .. } = self.contexts.swap_remove(chosen);
        executor.sim.kill();
        line.fail_always(Some(Fault::Fail));
        drop(self.oracle.bury(number));
        drop(leases);
        // What the end of the guards began does not go on either.
        executor.sim.kill();
        self.join();
    }

    /// A context ends in good order, if it can, and another comes in its place.
    fn close(&mut self, chosen: usize) {
        self.oracle.tally.count("a context was closed", ());
        let context = self.contexts.swap_remove(chosen);
        self.oracle.may_lose(context.number, LostReason::Closed);
        let leases = context.leases.clone();
        context.executor.spawn(Box::pin(async move { leases.close().await }));
        self.closed.push(context);
        self.join();
    }

    fn suspend(&mut self, chosen: usize) {
        let context = &mut self.contexts[chosen];
        // A context that does not run cannot hear that it is to stop.
        if !context.executor.is_paused() {
            self.oracle.may_lose(context.number, LostReason::Suspended);
            // Half of them. No random number is drawn, so older seeds still give the same histories.
            if context.number.is_multiple_of(2) {
                self.oracle.tally.count("a context was told that it ends", ());
                context.executor.sim.tell(Lifecycle::Ending);
            } else {
                self.oracle.tally.count("a context was suspended", ());
                context.leases.suspend();
            }
            context.suspended = true;
        }
    }

    fn wake(&mut self) {
        for context in self.contexts.iter_mut().filter(|context| !context.executor.is_paused()) {
            if std::mem::take(&mut context.suspended) {
                context.leases.wake();
            }
        }
    }
}
