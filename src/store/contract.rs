//! The contract of a store, as tests that any store runs.
//!
//! ```
//! # use leasehold::{executor::SimExecutor, store::{MemoryStore, contract}};
//! let shared = MemoryStore::new();
//! SimExecutor::new(1).block_on(contract::all(async || shared.clone()));
//! ```

use alloc::{string::String, vec::Vec};

use super::Store;
use crate::machine::{
    Acquire, Action, Answer, Batch, Incarnation, Key, Monotonic, Now, Operation, Outcome, Reply, RequestId, StoreClock,
    StoreErrorKind, Token, Wall,
};

/// Runs the whole contract. `open` makes a new connection to the same, empty store each time it is called.
///
/// # Panics
/// With a sentence that names the rule, if the store breaks one.
pub async fn all<S: Store>(open: impl AsyncFn() -> S) {
    committed_is_seen_by_a_second_connection(&open).await;
    a_batch_is_applied_in_order_and_as_one(&open).await;
    keys_do_not_meet(&open).await;
    a_busy_key_is_left_as_it_is(&open).await;
    interleaved_turns_exclude_each_other(&open).await;
    a_silent_holder_goes_as_the_clock_says(&open).await;
    a_closed_handle_says_so(&open).await;
}

/// X1: what a transaction answered is there for everybody.
pub async fn committed_is_seen_by_a_second_connection<S: Store>(open: impl AsyncFn() -> S) {
    let (mut one, mut other) = (Client::new(open().await, 1), Client::new(open().await, 2));
    let token = one.acquire("x1").await.token();
    let seen = other.inspect("x1").await;
    let Outcome::Status { last_token, grants, .. } = seen else { panic!("Inspect answers the status: {seen:?}") };
    assert_eq!(grants.len(), 1, "a second connection sees the grant");
    assert_eq!(grants[0].block.first, token, "and its token");
    assert!(last_token > token, "and that its block is reserved");
    let third = Client::new(open().await, 3).acquire("x1").await;
    assert!(matches!(third.0, Outcome::Busy { .. }), "a third connection is refused: {third:?}");
    assert_eq!(one.last_store, other.last_store, "all connections know the store by one id");
}

/// A batch is one transaction: its operations see each other, in order.
pub async fn a_batch_is_applied_in_order_and_as_one<S: Store>(open: impl AsyncFn() -> S) {
    let mut client = Client::new(open().await, 4);
    let (first, again) = (client.ask("batch", 1), client.ask("batch", 2));
    let answers = client.run([first, again]).await;
    assert!(matches!(answers[0].outcome, Outcome::Granted { .. }), "the first is granted: {answers:?}");
    assert!(matches!(answers[1].outcome, Outcome::Busy { .. }), "the second sees it: {answers:?}");
    let token = Outcomes(answers[0].outcome.clone()).token();
    let (release, ask) = (client.release("batch", token), client.ask("batch", 3));
    let answers = client.run([release, ask]).await;
    assert_eq!(answers[0].outcome, Outcome::Released, "released first");
    assert!(Outcomes(answers[1].outcome.clone()).token() > token, "then granted with a larger token");
}

/// Several keys in one transaction, whatever their names.
pub async fn keys_do_not_meet<S: Store>(open: impl AsyncFn() -> S) {
    let mut client = Client::new(open().await, 5);
    let long = "k".repeat(1024);
    let names = ["a", "A", "a ", "\u{0}", "\u{1f98a}", "store", "[\"store\"]", "__proto__", "1", long.as_str()];
    let asks: Vec<_> = names.iter().map(|name| client.ask(name, 1)).collect();
    let answers = client.run(asks).await;
    assert_eq!(answers.len(), names.len(), "one answer an operation");
    for (name, answer) in names.iter().zip(answers) {
        assert!(matches!(answer.outcome, Outcome::Granted { .. }), "{name:?} is a key of its own: {answer:?}");
    }
}

/// A refusal changes nothing.
pub async fn a_busy_key_is_left_as_it_is<S: Store>(open: impl AsyncFn() -> S) {
    let (mut one, mut other) = (Client::new(open().await, 6), Client::new(open().await, 7));
    one.acquire("busy").await;
    let before = one.inspect("busy").await;
    assert!(matches!(other.acquire("busy").await.0, Outcome::Busy { .. }), "taken is taken");
    assert_eq!(one.inspect("busy").await, before, "and a refusal leaves no trace");
}

/// Two connections take turns; never are both granted, and tokens only grow.
pub async fn interleaved_turns_exclude_each_other<S: Store>(open: impl AsyncFn() -> S) {
    let mut clients = [Client::new(open().await, 8), Client::new(open().await, 9)];
    let mut last = Token::default();
    for turn in 0..20 {
        let [one, other] = &mut clients;
        let (holder, rival) = if turn % 3 == 0 { (other, one) } else { (one, other) };
        let token = holder.acquire("turns").await.token();
        assert!(token > last, "tokens grow");
        last = token;
        assert!(matches!(rival.acquire("turns").await.0, Outcome::Busy { .. }), "never two holders");
        let stale = rival.release("turns", token);
        let stale = rival.run([stale]).await;
        assert!(matches!(stale[0].outcome, Outcome::NotCurrent { .. }), "only the holder releases");
        let release = holder.release("turns", token);
        assert_eq!(holder.run([release]).await[0].outcome, Outcome::Released, "the holder releases");
    }
}

/// A trusted clock ends a lease; others must not.
pub async fn a_silent_holder_goes_as_the_clock_says<S: Store>(open: impl AsyncFn() -> S) {
    let (mut one, mut other) = (Client::new(open().await, 10), Client::new(open().await, 11));
    one.acquire("silent").await;
    other.now_ms += LEASE_MS * 10;
    let granted = matches!(other.acquire("silent").await.0, Outcome::Granted { .. });
    assert_eq!(granted, other.store.clock() == StoreClock::Trusted, "only a trusted clock ends a lease");
}

/// Closing one handle closes no other.
pub async fn a_closed_handle_says_so<S: Store>(open: impl AsyncFn() -> S) {
    let (mut one, mut other) = (Client::new(open().await, 12), Client::new(open().await, 13));
    one.acquire("closed").await;
    one.store.close().await;
    let operation = one.operation("closed", Action::Inspect);
    let refused = one.store.transact(Batch(Vec::from([operation])), one.now()).await;
    let kind = refused.map_err(|error| error.kind).err();
    assert_eq!(kind, Some(StoreErrorKind::Closed), "a closed handle says that it is closed");
    assert!(matches!(other.inspect("closed").await, Outcome::Status { grants, .. } if grants.len() == 1));
}

const LEASE_MS: u64 = 10_000;

/// One context that speaks to the store without a machine.
struct Client<S> {
    store: S,
    me: Incarnation,
    requests: u64,
    now_ms: u64,
    last_store: Option<crate::machine::StoreId>,
}

#[derive(Debug)]
struct Outcomes(Outcome);

impl Outcomes {
    fn token(&self) -> Token {
        match self.0 {
            Outcome::Granted(granted) => granted.block.first,
            ref other => panic!("a free key is granted: {other:?}"),
        }
    }
}

impl<S: Store> Client<S> {
    fn new(store: S, me: u128) -> Self {
        Self { store, me: Incarnation(me), requests: 0, now_ms: 1_000_000, last_store: None }
    }

    fn now(&self) -> Now {
        Now { monotonic: Monotonic::from_ms(self.now_ms), wall: Wall::from_ms(self.now_ms) }
    }

    fn operation(&self, key: &str, action: Action) -> Operation {
        let key = Key::new(key).unwrap_or_else(|invalid| panic!("{invalid}"));
        Operation { key, holder: self.me, action }
    }

    fn ask(&mut self, key: &str, request: u64) -> Operation {
        self.requests = self.requests.max(request);
        let info = String::from("\"contract\" \u{1f98a}");
        let acquire = Acquire { info, ..Acquire::new(RequestId(request), request, LEASE_MS) };
        self.operation(key, Action::Acquire(acquire))
    }

    fn release(&self, key: &str, token: Token) -> Operation {
        self.operation(key, Action::Release { token, request: RequestId(0) })
    }

    async fn run(&mut self, operations: impl IntoIterator<Item = Operation>) -> Vec<Answer> {
        let batch = Batch(operations.into_iter().collect());
        let reply = self.store.transact(batch, self.now()).await;
        let Reply { store, answers } = reply.unwrap_or_else(|error| panic!("a sound store answers: {error}"));
        self.last_store = Some(store);
        answers
    }

    async fn acquire(&mut self, key: &str) -> Outcomes {
        let ask = self.ask(key, self.requests + 1);
        Outcomes(self.run([ask]).await.swap_remove(0).outcome)
    }

    async fn inspect(&mut self, key: &str) -> Outcome {
        let inspect = self.operation(key, Action::Inspect);
        self.run([inspect]).await.swap_remove(0).outcome
    }
}
