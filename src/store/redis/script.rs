//! A fence for a script of the user's.

use core::{fmt, time::Duration};
use std::{
    boxed::Box,
    format,
    string::{String, ToString},
    sync::{Arc, atomic::AtomicBool},
    vec::Vec,
};

use redis::{RedisError, RedisResult, ToRedisArgs, Value};
use tokio::time::sleep;

use super::{
    attempt::{Attempt, Place, View, fact_of_store},
    compare::{Comparison, Outcome, ScriptInput},
    contest::{AT_ONCE, TRIES, pause},
    failure::{self, Stage},
    lua::Script,
    reach_of,
};
use crate::executor::{MaybeSendFuture, Shared};
use crate::machine::{Applied, FORMAT, Grant, Operation, RequestId, Row, SessionId, StoreError, StoreId, Ticket};
use crate::store::{Fence, FenceError, FencedTransaction, Reach, inside::inside};

/// Whether the script ran, and what it gave back or failed by.
type Verdict = Result<RedisResult<Value>, FenceError>;

/// Lua's numbers are exact below this.
const EXACT: u64 = 1 << 53;

/// A fence waits no longer than this for its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A Lua script that runs only while a lease is current: made by [`RedisStore::script`](super::RedisStore::script), and run
/// by [`LeaseGuard::fence`](crate::LeaseGuard::fence).
///
/// Redis runs one script at a time. In front of your script, the store puts a check of the record that says who holds the lease. Both
/// run as one script: either the lease is current and your script runs, or nothing is written. The check uses no clock. A holder that
/// was stopped, or whose script took an hour to reach the server, writes nothing once another holder was granted the lease.
///
/// * The script finds its own keys and arguments in `KEYS` and `ARGV`, and may return any value. In a cluster its keys must have the
///   hash tag of the store, as in `{leasehold}:visits`. While their slot is migrated, a script with a key that does not exist
///   fails as [`FenceError::Store`], without having run. It must not begin with a `#!` line.
/// * The outer error of the answer says that the script did not run. The exception is [`FenceError::Store`] with
///   [`Applied::Unknown`]: the connection broke meanwhile, and the script may have run. The inner
///   error is the script's own. Redis does not undo what a script wrote before it failed.
/// * It usually takes one round trip, and waits 10 s at most.
///
/// # Cancel safety
/// If the answer is dropped, the script may or may not run. It never runs without the lease.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use leasehold::{LeaseManager, executor::TokioExecutor, store::RedisStore};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Arc::new(RedisStore::connect("redis://127.0.0.1/").await?);
/// let leases = LeaseManager::builder(Arc::clone(&store), TokioExecutor::new()).build()?;
/// let guard = leases.lock("visits").acquire().await?;
///
/// let count = store.script("return redis.call('INCRBY', KEYS[1], ARGV[1])").key("visits").arg(5);
/// let visits: i64 = redis::from_redis_value(guard.fence(count).await??)?;
/// # let _ = visits;
/// # Ok(()) }
/// ```
#[must_use = "a script runs only when it is passed to `LeaseGuard::fence`"]
pub struct RedisScript {
    place: Arc<Place>,
    reach: Reach,
    script: Script,
    input: ScriptInput,
}

impl RedisScript {
    pub(super) fn new(place: Arc<Place>, store: StoreId, text: &str) -> Self {
        let reach = reach_of(&place, store);
        Self { place, reach, script: Script::around(text), input: ScriptInput::default() }
    }

    /// Adds a key that the script uses: the first is `KEYS[1]`.
    pub fn key(mut self, key: impl ToRedisArgs) -> Self {
        self.input.keys.extend(key.to_redis_args());
        self
    }

    /// Adds an argument: the first is `ARGV[1]`.
    pub fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.input.arguments.extend(argument.to_redis_args());
        self
    }

    async fn run(self, fence: Shared<dyn Fence>) -> Verdict {
        if fence.reach() != self.reach {
            return Err(FenceError::Misuse(String::from(
                "the lease is not kept in the store of this script; make the script by the `RedisStore` that the lease's \
                 manager was built with",
            )));
        }
        let runtime = self.place.runtime.clone();
        let work = async move {
            let running = AtomicBool::new(false);
            let verdict = self.place.link.within(PATIENCE, &running, self.attempts(&*fence, &running)).await;
            if !matches!(&verdict, Err(error) if error.applied != Applied::No) {
                fence.over();
            }
            verdict
        };
        let ran = inside(&runtime, work).await.and_then(|ran| ran);
        ran.map_err(FenceError::Store)?.and_then(compiled)
    }

    /// Judges and runs the script, until nothing that the verdict rests on is written in between.
    async fn attempts(&self, fence: &dyn Fence, running: &AtomicBool) -> Result<Verdict, StoreError> {
        let mut view = View::new(&self.place.memory);
        for tries in 0..TRIES {
            if tries > AT_ONCE {
                sleep(pause(tries - AT_ONCE, self.place.pace.trip())).await;
            }
            let mut attempt = self.load(&view, fence)?;
            let is_held = attempt.has_all_rows() && fence.ticket().finds_its_grant(&attempt.records);
            if !attempt.is_certain && !is_held {
                // A guess must not be judged: what is refused stays refused.
                self.look(attempt.into_question(), &mut view).await?;
                continue;
            }
            if let Err(why) = fence.judge(attempt.store, &mut attempt.records) {
                return Ok(Err(why));
            }
            if let Some(verdict) = self.send(attempt, fence, &mut view, running).await? {
                return Ok(verdict);
            }
        }
        Err(failure::of_contention(TRIES))
    }

    /// Runs the script if what was judged still stands; `None` if not.
    async fn send(
        &self,
        attempt: Attempt,
        fence: &dyn Fence,
        view: &mut View<'_>,
        running: &AtomicBool,
    ) -> Result<Option<Verdict>, StoreError> {
        let (link, stage) = (&self.place.link, Stage::Writing(running));
        // Others may queue for the key meanwhile.
        let facts = facts_of(fence.ticket(), &attempt);
        let mut comparison = attempt.into_comparison();
        comparison.facts = facts;
        comparison.facts.retain(|(name, _)| comparison.writes.iter().all(|(written, _)| written != name));
        match comparison.run(link, &self.script, self.place.keys(), &self.input, stage).await? {
            Ok(Outcome::Stale { snapshot, .. }) => view.found(snapshot),
            Ok(Outcome::Done { said: value, .. }) => {
                view.wrote(&comparison);
                fence.committed();
                return Ok(Some(Ok(value.extract_error())));
            }
            Err(refusal) if is_of_the_script(&refusal) => return Ok(Some(Ok(Err(refusal)))),
            Err(refusal) => return Err(link.refused(&refusal, stage)),
        }
        Ok(None)
    }

    fn load(&self, view: &View<'_>, fence: &dyn Fence) -> Result<Attempt, StoreError> {
        let ticket = fence.ticket();
        // The verdict rests on the record. The own row takes the heartbeat, and tells what became of a grant that is gone.
        view.load(&ticket.batch.keys(), StoreId::default(), |records| {
            let wants_own = ticket.renews() || !ticket.finds_its_grant(records);
            if wants_own { Vec::from([ticket.batch.session]) } else { Vec::<SessionId>::new() }
        })
    }

    /// Reads the rows as they stand. If they are as they were guessed, that is known now, too.
    async fn look(&self, question: Comparison, view: &mut View<'_>) -> Result<(), StoreError> {
        let (link, keys, stage) = (&self.place.link, self.place.keys(), Stage::Reading);
        match question.run(link, &self.place.plain, keys, &ScriptInput::NONE, stage).await? {
            Ok(Outcome::Stale { snapshot, .. }) => view.found(snapshot),
            Ok(Outcome::Done { .. }) => view.found(question.read.into_iter().collect()),
            Err(refusal) => return Err(link.refused(&refusal, stage)),
        }
        Ok(())
    }
}

/// What must stand in the rows that a fence reads: whose store it is, and the grant. The records are not written, since a
/// fence changes none. The mode is compared, too, because a downgrade does not change the token: so a script that was under way for the
/// exclusive grant is refused.
fn facts_of(ticket: &Ticket, attempt: &Attempt) -> Vec<(String, String)> {
    let mut facts: Vec<_> = attempt.store.map(fact_of_store).into_iter().collect();
    for Operation { key, .. } in &ticket.batch.operations {
        let grant = ticket.grant_in(&attempt.records, key);
        let Some(Grant { holder, request: RequestId(request @ ..EXACT), mode, block, .. }) = grant else { continue };
        let (token, mode) = (block.first, mode.name());
        let grant = format!(
            "{{\"format\":{FORMAT},\"holder\":\"{holder}\",\"token\":{token},\"request\":{request},\"mode\":\"{mode}\"}}"
        );
        facts.push((Row::Record(key.clone()).to_string(), grant));
    }
    facts
}

/// Whether the script caused it: Redis then says where in a script it happened. It says that of some refusals of its own, too:
/// they come at the first write.
fn is_of_the_script(refusal: &RedisError) -> bool {
    let is_of_the_server =
        matches!(refusal.code(), Some("BUSY" | "NOSCRIPT" | "READONLY" | "OOM" | "MISCONF" | "NOREPLICAS"));
    !is_of_the_server && refusal.detail().is_some_and(|detail| detail.contains("script"))
}

/// A script that the server cannot read never checked the lease.
fn compiled(answer: RedisResult<Value>) -> Verdict {
    match answer {
        Err(error) if error.detail().is_some_and(|detail| detail.contains("compiling script")) => {
            Err(FenceError::Misuse(format!("Redis cannot read the script: {error}; correct its text")))
        }
        answer => Ok(answer),
    }
}

impl FencedTransaction for RedisScript {
    type Passed = RedisResult<Value>;
    type Answer = MaybeSendFuture<'static, Verdict>;

    fn check(self, fence: Shared<dyn Fence>) -> Self::Answer {
        Box::pin(self.run(fence))
    }

    fn refuse(self, why: FenceError) -> Self::Answer {
        Box::pin(core::future::ready(Err(why)))
    }
}

impl fmt::Debug for RedisScript {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RedisScript({}, {:?})", self.place.rows, self.input)
    }
}
