//! Over any store that processes share, the cost of a list depends on the names in use, not on those that were in use before.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use leasehold::{
    LeaseManager, StoreError,
    executor::{Executor, Shared, TokioExecutor},
    machine::{
        Acquire, Action, Applied, Batch, Beat, Key, Now, Operation, Outcome, Reply, RequestId, SessionId, SessionStep,
        StoreClock,
    },
    signal::Signals,
    store::{Reach, Store},
};

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);
/// Long enough that nobody waits for its end, and that no request is given up.
const LONG: Duration = Duration::from_secs(3_600);
const COUNTS: [usize; 3] = [1, 100, 10_000];
/// How many names one transaction uses: etcd allows 128 rows in it.
const AT_ONCE: usize = 50;
/// The session that uses names and leaves them.
const ME: SessionId = SessionId(7);

/// A store, and how many names its callers have looked at.
#[derive(Debug)]
struct Counting<S> {
    store: S,
    looks: AtomicUsize,
}

#[async_trait::async_trait]
impl<S: Store> Store for Counting<S> {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        let looks = batch.operations.iter().filter(|operation| operation.action == Action::Inspect).count();
        let reply = self.store.transact(batch, now, limit).await?;
        self.looks.fetch_add(looks, SeqCst);
        Ok(reply)
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        self.store.keys(prefix).await
    }

    fn signals(&self) -> Option<Shared<dyn Signals>> {
        self.store.signals()
    }

    async fn close(&self) {
        self.store.close().await;
    }

    fn clock(&self) -> StoreClock {
        self.store.clock()
    }

    fn reach(&self) -> Reach {
        self.store.reach()
    }
}

/// Names that were acquired and released, and whose records nobody has deleted.
struct Idle<'a, S> {
    store: &'a S,
    used: usize,
}

impl<S: Store> Idle<'_, S> {
    async fn reach(&mut self, count: usize) {
        while self.used < count {
            let numbers = self.used..count.min(self.used + AT_ONCE);
            let names: Vec<_> = numbers.clone().map(|number| format!("name {number}")).collect();
            let requests: Vec<_> = numbers.map(|number| u64::try_from(number).unwrap() + 1).collect();
            let ask = |number: &u64| Action::Acquire(Acquire::new(RequestId(*number), *number));
            let granted = self.transact(names.iter().zip(requests.iter().map(ask))).await;
            let release = |(number, outcome): (&u64, &Outcome)| {
                let Outcome::Granted(granted) = outcome else { panic!("request {number}: {outcome:?}") };
                Action::Release { token: granted.block.first, request: RequestId(*number) }
            };
            self.used += names.len();
            self.transact(names.iter().zip(requests.iter().zip(&granted).map(release))).await;
        }
    }

    /// Runs one transaction, again if nothing of it was applied. The first one opens the session.
    async fn transact(&self, operations: impl Iterator<Item = (&String, Action)>) -> Vec<Outcome> {
        let operation = |(name, action): (&String, Action)| Operation { key: Key::new(name).unwrap(), action };
        let mut batch = Batch::new(ME, operations.map(operation).collect());
        if self.used == 0 {
            let beat = Beat { beat: 1, lease_ms: 3_600_000, ..Beat::default() };
            batch.step = SessionStep::Open { beat, instance: String::new() };
        }
        loop {
            match self.store.transact(batch.clone(), TokioExecutor::new().now(), BUSY).await {
                Ok(reply) => return reply.answers.into_iter().map(|answer| answer.outcome).collect(),
                Err(error) => assert!(error.retry && error.applied == Applied::No, "{error}"),
            }
        }
    }
}

fn manager(store: impl Store) -> LeaseManager {
    let builder = LeaseManager::builder(store, TokioExecutor::new()).lease(LONG).store_timeout(BUSY);
    builder.linger(Duration::ZERO).build().expect("the options fit together")
}

/// One name is held, one is shared by two contexts, and for one a context waits. Beside them there are ever more that nobody uses.
pub(crate) async fn a_list_looks_at_no_name_that_nobody_uses<S: Store>(open: impl AsyncFn() -> S) {
    let store = Arc::new(Counting { store: open().await, looks: AtomicUsize::new(0) });
    let (reader, one, other) = (manager(Arc::clone(&store)), manager(open().await), manager(open().await));
    let mut idle = Idle { store: &store.store, used: 0 };
    let _held = [one.lock("name held").acquire().await.unwrap(), one.lock("name wanted").acquire().await.unwrap()];
    let _shared = [
        one.lock("name shared").shared().acquire().await.unwrap(),
        other.lock("name shared").shared().acquire().await.unwrap(),
    ];
    let wanted = tokio::spawn(other.lock("name wanted").acquire());
    while reader.status("name wanted").await.unwrap().queue.is_empty() {
        tokio::task::yield_now().await;
    }
    let mut looks = Vec::new();
    for count in COUNTS {
        idle.reach(count).await;
        let before = store.looks.load(SeqCst);
        let listed = reader.list("name").await.unwrap();
        let counts = listed.iter().map(|status| (status.key.as_str(), status.holders.len(), status.queue.len()));
        assert_eq!(counts.collect::<Vec<_>>(), [("name held", 1, 0), ("name shared", 2, 0), ("name wanted", 1, 1)]);
        looks.push(store.looks.load(SeqCst) - before);
    }
    assert_eq!(looks, [3; 3], "beside {COUNTS:?} names that nobody uses");
    wanted.abort();
}
