//! Processes count together, and die.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    thread,
    time::{Duration, Instant},
};

use redis::Client;

use crate::{
    SHORT_LEASE, context,
    other::{Other, kills_more, say},
    shared,
};

/// Writes down what it is told, and by which token.
const WRITE: &str = "redis.call('SET', KEYS[1], ARGV[1])
redis.call('RPUSH', KEYS[2], ARGV[2])";

/// The other process: reads the number without any care, and writes the next one in a fenced script.
pub(crate) async fn count(client: &Client, prefix: &str) {
    let (store, leases) = context(client, prefix).await;
    let leases = leases.lease(SHORT_LEASE).build().unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    loop {
        // On a busy machine the server may not answer for as long as such a short lease: then it asks anew.
        let Ok(guard) = leases.lock("k").acquire().await else { continue };
        let read: Option<u64> =
            redis::cmd("GET").arg(format!("{prefix}: n")).query_async(&mut connection).await.unwrap();
        let write = store.script(WRITE).key(format!("{prefix}: n")).key(format!("{prefix}: tokens"));
        let written = guard.fence(write.arg(read.unwrap_or_default() + 1).arg(guard.token().as_u64())).await;
        if written.is_ok_and(|answer| answer.is_ok()) {
            say("counted");
        }
        drop(guard.release().await);
    }
}

/// One of three is killed again and again, whatever it does in that moment.
#[test]
fn processes_that_are_killed_lose_no_count_and_share_no_token() {
    let Some(server) = shared() else { return };
    let start = || {
        let mut other = Other::start("counter", &(server.url().as_str(), "counter"));
        assert_eq!(other.hear(), "counted");
        other
    };
    let mut others: Vec<Other> = (0..3).map(|_| start()).collect();
    let (began, mut deaths) = (Instant::now(), 0);
    let counted = || server.ask::<Option<usize>>(&["GET", "counter: n"]).unwrap_or_default();
    while kills_more(began, || deaths >= 5 && counted() > 100) {
        let random = RandomState::new().build_hasher().finish();
        thread::sleep(Duration::from_micros(random % 300_000));
        let victim = usize::try_from(random % 3).unwrap();
        others[victim].kill();
        // It counts again soon after: whoever it left behind was replaced.
        others[victim] = start();
        deaths += 1;
    }
    others.iter_mut().for_each(Other::kill);

    let count: usize = server.ask(&["GET", "counter: n"]);
    let tokens: Vec<u64> = server.ask(&["LRANGE", "counter: tokens", "0", "-1"]);
    println!("{count} counts by {} processes, {deaths} of which were killed while they counted", deaths + 3);
    assert_eq!(count, tokens.len(), "each count was written upon the one before it");
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "tokens grow strictly");
    assert!(deaths >= 5 && count > 100, "{deaths} deaths and {count} counts show little");
}
