//! Transactions that nobody awaits any more: a context gave up, or somebody dropped the future of a request.

use alloc::{format, vec::Vec};

use super::client::Client;
use crate::store::Store;

/// After how many steps of the others a transaction is dropped. Over a network, the answer is under way by the last of them.
const STEPS: [usize; 9] = [0, 1, 2, 3, 4, 6, 10, 100, 1_000];

/// A transaction that is dropped halfway is committed as a whole or not at all, and the next one of the same connection is a transaction of
/// its own. This drops several, each after more steps than the one before.
pub async fn a_dropped_transaction_is_whole_or_nothing<S: Store>(open: impl AsyncFn() -> S) {
    let (mut one, mut onlooker) = (Client::new(open().await, 44), Client::new(open().await, 45));
    one.acquire("dropped").await.token();
    for steps in STEPS {
        let keys = ["left", "right"].map(|side| format!("dropped after {steps}, {side}"));
        let asks = keys.each_ref().map(|key| one.ask_next(key));
        one.run_and_drop(asks, steps).await;
        let looks = keys.each_ref().map(|key| onlooker.look(key));
        let held = onlooker.run(looks).await.into_iter().map(|seen| seen.status().1.len());
        let held: Vec<_> = held.collect();
        assert_eq!(
            held[0], held[1],
            "a transaction that is dropped halfway is committed as a whole or rolled back: after {steps} steps"
        );
        let asks = keys.each_ref().map(|key| onlooker.ask_next(key));
        onlooker.run(asks).await;
        let looks = keys.each_ref().map(|key| onlooker.look(key));
        let granted = onlooker.run(looks).await;
        let next = format!("after {steps}");
        let token = one.acquire(&next).await.token();
        let (_, seen) = onlooker.inspect(&next).await.status();
        assert_eq!(
            seen,
            [token],
            "what follows a dropped transaction is a transaction of its own: after {steps} steps"
        );
        let looks = keys.each_ref().map(|key| onlooker.look(key));
        assert_eq!(
            onlooker.run(looks).await,
            granted,
            "what was granted after a dropped transaction stays granted: the dropped one may write only if nobody wrote since it read"
        );
    }
}
