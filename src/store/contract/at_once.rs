//! Several transactions at once: the suite polls them in turn, step by step, each round in another order and from another
//! step on. A store that reads, yields and writes mixes them up.

use alloc::vec::Vec;

use futures::future::{join, join_all};

use super::client::{Client, Seen, pause};
use crate::machine::Token;
use crate::store::Store;

const CONTEXTS: usize = 4;
const ROUNDS: usize = 12;

/// A connection for each context.
async fn connect<S: Store>(open: impl AsyncFn() -> S, first: u128) -> Vec<Client<S>> {
    let mut clients = Vec::new();
    for me in first..first + CONTEXTS as u128 {
        clients.push(Client::new(open().await, me));
    }
    clients
}

/// How many steps of the others the one in this place leaves to them before its first: in the first round none.
const fn head_start(place: usize, round: usize) -> usize {
    place * round % (CONTEXTS + 1)
}

/// Several contexts ask for one key at once, each by a connection of its own: only one is granted.
pub async fn transactions_at_once_exclude_each_other<S: Store>(open: impl AsyncFn() -> S) {
    let mut clients = connect(open, 20).await;
    let mut last = Token::default();
    for round in 0..ROUNDS {
        clients.rotate_left(1);
        let asks = clients.iter_mut().enumerate().map(|(place, client)| async move {
            pause(head_start(place, round)).await;
            (client.acquire("at once").await, client)
        });
        let answers = join_all(asks).await;
        let mut winners = Vec::new();
        for (seen, client) in answers {
            match seen {
                Seen::Granted(token) => winners.push((token, client)),
                other => assert_eq!(other, Seen::Busy, "who is not granted finds the key taken"),
            }
        }
        assert_eq!(
            winners.len(),
            1,
            "of several transactions at once only one is granted the key: read, apply and write in \
            one transaction that no other can interleave with"
        );
        for (token, client) in winners {
            assert!(token > last, "tokens grow");
            last = token;
            assert_eq!(
                client.give_back("at once", token).await,
                Seen::Released,
                "what was granted is there until its release"
            );
        }
    }
}

/// Several contexts share one key: each of their transactions at once writes what the others keep.
pub async fn transactions_at_once_lose_no_update<S: Store>(open: impl AsyncFn() -> S) {
    const LOST: &str = "no update is lost: a transaction writes to what the one before it has written";
    let mut clients = connect(open, 30).await;
    for round in 0..ROUNDS {
        clients.rotate_left(1);
        let asks = clients.iter_mut().enumerate().map(|(place, client)| async move {
            pause(head_start(place, round)).await;
            client.share("count").await.token()
        });
        let mut tokens = join_all(asks).await;
        let (_, mut found) = clients[0].inspect("count").await.status();
        let releases = clients.iter_mut().zip(&tokens).enumerate().map(|(place, (client, token))| async move {
            pause(head_start(place, round)).await;
            client.give_back("count", *token).await
        });
        let released = join_all(releases).await;
        tokens.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, tokens, "{LOST}");
        assert!(released.iter().all(|seen| *seen == Seen::Released), "{LOST}: {released:?}");
        assert_eq!(clients[0].inspect("count").await.status().1, [], "{LOST}");
        tokens.dedup();
        assert_eq!(tokens.len(), CONTEXTS, "a token is granted once: {LOST}");
    }
}

/// Two contexts ask for the same two keys at once, each beginning with another one, while a third context looks. One of
/// the two gets both keys, and the onlooker sees that both are held or that none is.
pub async fn batches_at_once_are_seen_whole<S: Store>(open: impl AsyncFn() -> S) {
    let mut clients = connect(open, 50).await;
    let mut onlooker = clients.remove(0);
    clients.truncate(2);
    for round in 0..ROUNDS {
        let asks = clients.iter_mut().enumerate().map(|(place, client)| async move {
            pause(head_start(place, round)).await;
            let keys = in_order(place);
            let asks = keys.map(|key| client.ask_next(key));
            (client.run(asks).await, keys, client)
        });
        let look = async {
            pause(round % CONTEXTS).await;
            let looks = in_order(round).map(|key| onlooker.look(key));
            onlooker.run(looks).await
        };
        let (answers, looks) = join(join_all(asks), look).await;
        let mut winners = 0;
        for (seen, keys, client) in answers {
            winners += usize::from(release_both(client, keys, &seen).await);
        }
        assert_eq!(winners, 1, "a batch is one transaction: of two at once one is granted both keys");
        let held = looks.into_iter().map(|seen| seen.status().1.len()).collect::<Vec<_>>();
        assert_eq!(held[0], held[1], "a batch is one transaction: others see all of it or nothing");
    }
}

/// Two keys, now the one and now the other first.
fn in_order(number: usize) -> [&'static str; 2] {
    let mut keys = ["whole, left", "whole, right"];
    keys.rotate_left(number % 2);
    keys
}

/// Gives back both keys if both were granted. Whether they were; nothing else may be but that both are taken.
async fn release_both<S: Store>(client: &mut Client<S>, keys: [&str; 2], seen: &[Seen]) -> bool {
    let [Seen::Granted(first), Seen::Granted(second)] = *seen else {
        assert_eq!(seen, [Seen::Busy, Seen::Busy], "a batch is one transaction: nobody comes between its keys");
        return false;
    };
    let releases = [client.release(keys[0], first), client.release(keys[1], second)];
    assert_eq!(
        client.run(releases).await,
        [Seen::Released, Seen::Released],
        "what was granted is there until its release"
    );
    true
}
