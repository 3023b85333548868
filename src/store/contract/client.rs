//! One context that speaks to a store without a machine. Only here does the suite name operations and outcomes.

use alloc::{format, string::String, vec::Vec};
use core::{pin::pin, task::Poll, time::Duration};

use futures::future::{poll_fn, select};

use crate::machine::{
    Acquire, Action, Answer, Applied, Batch, Beat, Ending, Key, Mode, Monotonic, Now, Operation, Outcome, Reply,
    RequestId, SessionId, SessionStep, StoreClock, StoreError, StoreErrorKind, StoreId, Token, Wall,
};
use crate::store::Store;

pub(super) const LEASE_MS: u64 = 10_000;
/// What each request says about itself.
const INFO: &str = "\"contract\" \\ \u{e9}\u{1f98a}";
/// More than a sound store takes for a transaction.
const LIMIT: Duration = Duration::from_secs(10);
/// How often a transaction may say that it was not applied and should be tried again.
const TRIES: usize = 1_000;

pub(super) struct Client<S> {
    store: S,
    me: SessionId,
    requests: u64,
    /// What was granted to it, by which request.
    granted: Vec<(Key, Token, RequestId)>,
    /// When its session was opened, if it was.
    opened_ms: Option<u64>,
    /// Its latest heartbeat.
    beat: u64,
    /// The latest request that a transaction carried.
    sent: u64,
    now_ms: u64,
    peers: Vec<SessionId>,
    id: Option<StoreId>,
}

/// What the store answered, as far as the contract looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Granted(Token),
    Busy,
    Released,
    NotCurrent,
    /// The last token, the first tokens of the grants, and the whole answer as text.
    Status(Token, Vec<Token>, String),
    Unreadable,
    Other(String),
}

impl Seen {
    pub(super) fn token(&self) -> Token {
        match self {
            Self::Granted(token) => *token,
            other => panic!(
                "a free key is granted: load the rows of all sessions that `sessions_of` names, and apply the batch once: {other:?}"
            ),
        }
    }

    /// Whether the state of the record contains everything that a request said about itself.
    pub(super) fn tells_info(&self) -> bool {
        matches!(self, Self::Status(.., whole) if whole.contains(&format!("{INFO:?}")))
    }

    /// The last token, and the first tokens of the grants.
    pub(super) fn status(self) -> (Token, Vec<Token>) {
        match self {
            Self::Status(last_token, tokens, _) => (last_token, tokens),
            other => panic!("a look is answered with the state of the record: {other:?}"),
        }
    }
}

impl From<Outcome> for Seen {
    fn from(outcome: Outcome) -> Self {
        let whole = format!("{outcome:?}");
        match outcome {
            Outcome::Granted(granted) => Self::Granted(granted.block.first),
            Outcome::Busy { .. } => Self::Busy,
            Outcome::Released => Self::Released,
            Outcome::NotCurrent { .. } => Self::NotCurrent,
            Outcome::Status { last_token, grants, .. } => {
                Self::Status(last_token, grants.iter().map(|grant| grant.block.first).collect(), whole)
            }
            Outcome::Unreadable(_) => Self::Unreadable,
            _ => Self::Other(whole),
        }
    }
}

/// Yields to all other tasks this many times.
pub(super) async fn pause(times: usize) {
    let mut left = times;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl<S: Store> Client<S> {
    pub(super) fn new(store: S, me: u128) -> Self {
        Self {
            store,
            me: SessionId(me),
            requests: 0,
            sent: 0,
            granted: Vec::new(),
            opened_ms: None,
            beat: 1,
            now_ms: 1_000_000,
            id: None,
            peers: Vec::new(),
        }
    }

    pub(super) fn clock(&self) -> StoreClock {
        self.store.clock()
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    /// The sessions that it was told of.
    pub(super) fn peers(&self) -> &[SessionId] {
        &self.peers
    }

    pub(super) fn session(&self) -> SessionId {
        self.me
    }

    pub(super) fn store_id(&self) -> StoreId {
        self.id.unwrap_or_else(|| panic!("it was asked for something before"))
    }

    pub(super) async fn close(&self) {
        self.store.close().await;
    }

    pub(super) async fn is_closed(&self) -> bool {
        let look = Batch::new(self.me, Vec::from([self.look("closed")]));
        let refused = self.transact(&look).await;
        refused.is_err_and(|error| error.kind == StoreErrorKind::Closed)
    }

    fn now(&self) -> Now {
        Now { monotonic: Monotonic::from_ms(self.now_ms), wall: Wall::from_ms(self.now_ms) }
    }

    fn operation(&self, key: &str, action: Action) -> Operation {
        let key = Key::new(key).unwrap_or_else(|invalid| panic!("{invalid}"));
        Operation { key, action }
    }

    fn ask_as(&mut self, key: &str, request: u64, mode: Mode) -> Operation {
        self.requests = self.requests.max(request);
        let acquire = Acquire { info: INFO.into(), mode, ..Acquire::new(RequestId(request), request) };
        self.operation(key, Action::Acquire(acquire))
    }

    pub(super) fn ask(&mut self, key: &str, request: u64) -> Operation {
        self.ask_as(key, request, Mode::Exclusive)
    }

    /// Asks by the next request.
    pub(super) fn ask_next(&mut self, key: &str) -> Operation {
        self.ask(key, self.requests + 1)
    }

    pub(super) fn release(&self, key: &str, token: Token) -> Operation {
        let by = self.granted.iter().find(|(known, granted, _)| (known.as_str(), *granted) == (key, token));
        let request = by.map_or(RequestId(0), |(.., request)| *request);
        self.operation(key, Action::Release { token, request })
    }

    /// A release names the request by which the lease was granted, too.
    fn note_grants(&mut self, batch: &Batch, answers: &[Answer]) {
        for (operation, answer) in batch.operations.iter().zip(answers) {
            if let (Action::Acquire(ask), Outcome::Granted(granted)) = (&operation.action, &answer.outcome) {
                self.granted.push((operation.key.clone(), granted.block.first, ask.request));
            }
        }
    }

    pub(super) fn look(&self, key: &str) -> Operation {
        self.operation(key, Action::Inspect)
    }

    /// Every second client asks the store to answer at once, so that both ways meet in each test.
    async fn transact(&self, batch: &Batch) -> Result<Reply, StoreError> {
        if self.me.0 % 2 == 1
            && let Some(answer) = self.store.transact_at_once(batch, self.now())
        {
            return answer;
        }
        self.store.transact(batch.clone(), self.now(), LIMIT).await
    }

    /// For how long this session is certainly there, if a batch names nothing that may have been asked before.
    fn sure_ms(&self, batch: &Batch, opened_ms: u64) -> u64 {
        let is_new = |operation: &Operation| match &operation.action {
            Action::Acquire(ask) => ask.request.0 > self.sent,
            Action::Release { .. } => true,
            _ => false,
        };
        let vouches = batch.operations.iter().all(is_new);
        if vouches { (opened_ms + LEASE_MS / 2).saturating_sub(self.now_ms) } else { 0 }
    }

    /// One transaction.
    pub(super) async fn run(&mut self, operations: impl IntoIterator<Item = Operation>) -> Vec<Seen> {
        let mut batch = Batch::new(self.me, operations.into_iter().collect());
        if let Some(opened_ms) = self.opened_ms {
            batch.sure_ms = self.sure_ms(&batch, opened_ms);
        }
        self.commit(batch).await
    }

    /// Commits the batch, and opens the session if it is not open yet. A batch that was certainly not applied is tried again,
    /// as a machine does.
    async fn commit(&mut self, mut batch: Batch) -> Vec<Seen> {
        if self.opened_ms.is_none() {
            batch.step = SessionStep::Open { beat: self.heartbeat(), instance: String::new() };
        }
        for _ in 0..TRIES {
            match self.transact(&batch).await {
                Ok(Reply { store, answers, peers, .. }) => {
                    self.opened_ms.get_or_insert(self.now_ms);
                    self.sent = self.requests;
                    self.peers.extend(peers.iter().map(|peer| peer.session));
                    self.note_grants(&batch, &answers);
                    let known = *self.id.get_or_insert(store);
                    assert_eq!(store, known, "the store keeps its id from one transaction to the next");
                    return answers.into_iter().map(|answer| answer.outcome.into()).collect();
                }
                Err(error) if error.retry && error.applied == Applied::No => pause(1).await,
                Err(error) => panic!("a sound store answers: {error}"),
            }
        }
        panic!("a sound store answers: {TRIES} times it said that nothing was applied and that trying again may help");
    }

    fn heartbeat(&self) -> Beat {
        Beat { beat: self.beat, lease_ms: LEASE_MS, ..Beat::default() }
    }

    /// Sends a heartbeat, in a transaction without any operation. Returns its number.
    pub(super) async fn beat(&mut self) -> u64 {
        self.beat += 1;
        self.commit(Batch { step: SessionStep::Beat(self.heartbeat()), ..Batch::new(self.me, Vec::new()) }).await;
        self.beat
    }

    /// Deletes the record of a key that nobody uses, in a transaction without any operation.
    pub(super) async fn forget(&mut self, key: &str) {
        let forgets = Vec::from([self.look(key).key]);
        self.commit(Batch { forgets, ..Batch::new(self.me, Vec::new()) }).await;
    }

    /// Ends its session, in a transaction without any operation.
    pub(super) async fn leave(&mut self) {
        self.commit(Batch { step: SessionStep::Close, ..Batch::new(self.me, Vec::new()) }).await;
    }

    /// Asks for a key, and in the same transaction ends another session if that one was not heard from since this beat.
    pub(super) async fn acquire_from(&mut self, session: SessionId, beat: u64, key: &str) -> Seen {
        let (ends, ask) = (Vec::from([Ending { session, beat: Some(beat) }]), self.ask_next(key));
        self.commit(Batch { ends, ..Batch::new(self.me, Vec::from([ask])) }).await.swap_remove(0)
    }

    /// Begins a transaction, and drops it after this many steps of the others, if it is still under way.
    pub(super) async fn run_and_drop(&mut self, operations: impl IntoIterator<Item = Operation>, steps: usize) {
        let batch = Batch::new(self.me, operations.into_iter().collect());
        self.sent = self.requests;
        select(self.store.transact(batch, self.now(), LIMIT), pin!(pause(steps))).await;
    }

    /// The names of the keys that begin with this text; `None` if the store cannot list keys.
    pub(super) async fn keys(&self, prefix: &str) -> Option<Vec<String>> {
        match self.store.keys(prefix).await {
            Ok(keys) => Some(keys.iter().map(|key| key.as_str().into()).collect()),
            Err(error) if error.kind == StoreErrorKind::Unsupported => None,
            Err(error) => panic!("a sound store lists its keys: {error}"),
        }
    }

    pub(super) async fn acquire(&mut self, key: &str) -> Seen {
        let ask = self.ask_next(key);
        self.run([ask]).await.swap_remove(0)
    }

    /// Asks for a key, and queues if it is taken.
    pub(super) async fn wait_for(&mut self, key: &str) {
        let mut ask = self.ask_next(key);
        if let Action::Acquire(ask) = &mut ask.action {
            ask.wait = true;
        }
        self.run([ask]).await;
    }

    pub(super) async fn share(&mut self, key: &str) -> Seen {
        let ask = self.ask_as(key, self.requests + 1, Mode::Shared);
        self.run([ask]).await.swap_remove(0)
    }

    pub(super) async fn give_back(&mut self, key: &str, token: Token) -> Seen {
        let release = self.release(key, token);
        self.run([release]).await.swap_remove(0)
    }

    pub(super) async fn inspect(&mut self, key: &str) -> Seen {
        let look = self.look(key);
        self.run([look]).await.swap_remove(0)
    }
}
