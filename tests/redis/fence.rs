//! Scripts that run only while a lease is current.

use leasehold::{
    FenceError, LeaseGuard, LeaseManager, LostReason, Mode,
    executor::TokioExecutor,
    store::{Fault, FaultyStore, RedisScript, RedisStore},
};
use redis::{Client, RedisError, Value};
use tokio::{runtime::Runtime, task::spawn_blocking};

use crate::{
    LONG_LEASE, SHORT_LEASE, context, open,
    other::{Other, say, told},
    shared,
};

/// Adds to a number, and gives it back.
fn add(store: &RedisStore, key: &str, much: u64) -> RedisScript {
    store.script("return redis.call('INCRBY', KEYS[1], ARGV[1])").key(key).arg(much)
}

async fn number(guard: &LeaseGuard, script: RedisScript) -> Result<i64, FenceError> {
    guard.fence(script).await.map(|value| redis::from_redis_value(value.unwrap()).unwrap())
}

#[tokio::test]
async fn a_script_runs_with_its_own_keys_and_arguments_while_its_lease_is_current() {
    let Some(server) = shared() else { return };
    let (store, leases) = context(&server.client(), "runs").await;
    let leases = leases.lease(LONG_LEASE).build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let before = server.ask::<i64>(&["HLEN", "{runs}:rows"]);

    let two = store.script("return {#KEYS, KEYS[1], KEYS[2], #ARGV, ARGV[1], ARGV[2]}");
    let two = two.key("{runs}:a").key("b\0").arg("").arg(&[255_u8][..]);
    let answer: Vec<Value> = redis::from_redis_value(guard.fence(two).await.unwrap().unwrap()).unwrap();
    let text = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
    let expected = [Value::Int(2), text(b"{runs}:a"), text(b"b\0"), Value::Int(2), text(b""), text(&[255])];
    assert_eq!(answer, expected);

    let none = store.script("return { #KEYS, #ARGV } -- and no more");
    assert_eq!(guard.fence(none).await.unwrap().unwrap(), Value::Array(vec![Value::Int(0), Value::Int(0)]));
    assert_eq!(guard.fence(store.script("")).await.unwrap().unwrap(), Value::Nil);
    assert_eq!(number(&guard, add(&store, "runs: n", 2)).await, Ok(2));
    assert_eq!(number(&guard, add(&store, "runs: n", 3)).await, Ok(5));
    assert_eq!(server.ask::<i64>(&["HLEN", "{runs}:rows"]), before, "the rows stay as they were");
}

/// A handle of the store that has not read the lease yet reads it before it judges.
#[tokio::test]
async fn a_script_of_a_fresh_handle_runs_under_a_lease_of_another() {
    let Some(server) = shared() else { return };
    let (_store, leases) = context(&server.client(), "unseen").await;
    let leases = leases.lease(LONG_LEASE).build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let fresh = open(&server.client(), "unseen").await;
    assert_eq!(number(&guard, add(&fresh, "unseen: n", 1)).await, Ok(1));
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_lease_that_another_took_writes_nothing() {
    let Some(server) = shared() else { return };
    let (store, leases) = context(&server.client(), "taken").await;
    let (others_store, others) = context(&server.client(), "taken").await;
    let (leases, others) = (leases.lease(LONG_LEASE).build().unwrap(), others.build().unwrap());
    let guard = leases.lock("k").acquire().await.unwrap();
    assert_eq!(number(&guard, add(&store, "taken: n", 1)).await, Ok(1));
    let stolen = others.lock("k").steal().await.unwrap();
    assert_eq!(
        number(&guard, add(&store, "taken: n", 10)).await,
        Err(FenceError::Lost { key: "k".into(), reason: LostReason::Stolen })
    );
    assert_eq!(number(&stolen, add(&others_store, "taken: n", 2)).await, Ok(3), "nothing else was written");
    guard.lost().await;
    assert_eq!(
        number(&guard, add(&store, "taken: n", 10)).await,
        Err(FenceError::Lost { key: "k".into(), reason: LostReason::Stolen })
    );

    let released = others.lock("free").acquire().await.unwrap();
    drop(released.release().await);
    assert_eq!(
        number(&released, add(&others_store, "taken: n", 10)).await,
        Err(FenceError::Released { key: "free".into() })
    );
    assert_eq!(server.ask::<i64>(&["GET", "taken: n"]), 3);
}

#[tokio::test]
async fn nothing_from_before_a_wipe_passes() {
    let Some(server) = shared() else { return };
    let (store, leases) = context(&server.client(), "wiped").await;
    let leases = leases.lease(LONG_LEASE).build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let _: i64 = server.ask(&["DEL", "{wiped}:rows"]);
    let refused = number(&guard, add(&store, "wiped: n", 1)).await;
    assert_eq!(refused, Err(FenceError::Lost { key: "k".into(), reason: LostReason::StoreCleared }));

    let _: i64 = server.ask(&["DEL", "{wiped}:rows"]);
    let (others_store, others) = context(&server.client(), "wiped").await;
    let next = others.build().unwrap().lock("k").acquire().await.unwrap();
    assert!(next.token() > guard.token(), "tokens grow over a wipe, by the clock");
    assert_eq!(number(&next, add(&others_store, "wiped: n", 1)).await, Ok(1), "nothing was written");
}

/// Another hand changes a row in one place. The holder's process still remembers the row as it was.
#[tokio::test]
async fn a_fence_compares_every_part_of_its_grant() {
    let Some(server) = shared() else { return };
    let changes = [
        ("lease:k", "\"holder\":\"", "\"holder\":\"00"),
        ("lease:k", "\"request\":", "\"request\":1"),
        ("lease:k", "\"token\":", "\"token\":1"),
        ("lease:k", "\"grants\":[{", "\"grants\":[],\"earlier\":[{"),
        ("lease:k", "\"format\":1", "\"format\":2"),
        ("lease:k", "{", "{{"),
        ("store", "\"store\":\"", "\"store\":\"00"),
        ("store", "\"format\":1", "\"format\":2"),
    ];
    for (number, (row, part, other)) in changes.into_iter().enumerate() {
        let (prefix, written) = (format!("parts {number}"), format!("parts {number}: n"));
        let rows = format!("{{{prefix}}}:rows");
        let (store, leases) = context(&server.client(), &prefix).await;
        let leases = leases.lease(LONG_LEASE).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        assert_eq!(number_of(&guard, &store, &written).await, Ok(1));
        let text: String = server.ask(&["HGET", &rows, row]);
        assert!(text.contains(part), "{part} is not in {text}");
        let _: i64 = server.ask(&["HSET", &rows, row, &text.replacen(part, other, 1)]);
        let refused = number_of(&guard, &store, &written).await;
        assert!(refused.is_err(), "{part} was not compared");
        assert_eq!(server.ask::<i64>(&["GET", &written]), 1, "{refused:?}");
    }
}

async fn number_of(guard: &LeaseGuard, store: &RedisStore, key: &str) -> Result<i64, FenceError> {
    number(guard, add(store, key, 1)).await
}

#[tokio::test]
async fn a_script_of_another_store_is_refused() {
    let Some(server) = shared() else { return };
    let (_store, leases) = context(&server.client(), "here").await;
    let (elsewhere, _) = context(&server.client(), "elsewhere").await;
    let leases = leases.build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let refused = number(&guard, add(&elsewhere, "elsewhere: n", 1)).await;
    assert!(matches!(&refused, Err(FenceError::Misuse(sentence)) if sentence.contains("RedisStore")), "{refused:?}");
}

#[tokio::test]
async fn what_a_script_fails_by_is_told_apart_from_its_fence() {
    let Some(server) = shared() else { return };
    let (store, leases) = context(&server.client(), "fails").await;
    let leases = leases.build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();

    let refused = guard.fence(store.script("return redis.call(")).await;
    assert!(
        matches!(&refused, Err(FenceError::Misuse(sentence)) if sentence.contains("Redis cannot read the script")),
        "{refused:?}"
    );

    let failed = async |text: &str| -> RedisError {
        guard.fence(store.script(text).key("fails: list")).await.unwrap().unwrap_err()
    };
    assert!(failed("return redis.error_reply('MINE is the reason')").await.to_string().contains("is the reason"));
    assert!(failed("error('so be it')").await.to_string().contains("so be it"));
    let _: i64 = server.ask(&["RPUSH", "fails: list", "one"]);
    assert_eq!(failed("return redis.call('INCR', KEYS[1])").await.code(), Some("WRONGTYPE"));
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_fenced_script_renews_the_lease_if_it_is_asked_to() {
    let Some(server) = shared() else { return };
    let (store, leases) = context(&server.client(), "renews").await;
    // Its heartbeats are a third of an hour apart.
    let leases = leases.lease(LONG_LEASE).build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let fresh = guard.remaining();
    while guard.remaining() + SHORT_LEASE / 10 > fresh {
        tokio::task::yield_now().await;
    }
    let worn = guard.remaining();
    assert_eq!(number(&guard, add(&store, "renews: n", 1)).await, Ok(1));
    assert!(guard.remaining() <= worn, "a plain fence renews nothing");
    guard.fence_and_renew(add(&store, "renews: n", 1)).await.unwrap().unwrap();
    assert!(guard.remaining() > worn, "{:?} is no more than {worn:?}", guard.remaining());
    assert_eq!(server.ask::<i64>(&["GET", "renews: n"]), 2);
}

/// Each of them changes the record while the holder writes.
#[tokio::test]
async fn who_queues_and_goes_does_not_disturb_a_fence() {
    const TIMES: i64 = 200;
    let Some(server) = shared() else { return };
    let (store, leases) = context(&server.client(), "queued").await;
    let leases = leases.lease(LONG_LEASE).build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (_, others) = context(&server.client(), "queued").await;
        let others = others.build().unwrap();
        tasks.push(tokio::spawn(async move {
            loop {
                let wait = others.lock("k").timeout(std::time::Duration::from_millis(1)).acquire().await;
                assert!(wait.is_err(), "the key is held");
            }
        }));
    }
    for time in 1..=TIMES {
        assert_eq!(number(&guard, add(&store, "queued: n", 1)).await, Ok(time));
    }
    tasks.into_iter().for_each(|task| task.abort());
    let times: u64 = server.ask::<u64>(&["GET", "queued: n"]);
    assert_eq!(times, TIMES.unsigned_abs(), "each script ran once");
}

/// The other process: holds the key, and writes whenever it is told to.
pub(crate) fn write_when_told(runtime: &Runtime, client: &Client, prefix: &str) {
    let (store, leases) = runtime.block_on(context(client, prefix));
    let leases = leases.lease(SHORT_LEASE).build().unwrap();
    let guard = runtime.block_on(leases.lock("k").acquire()).unwrap();
    say("held");
    for name in told() {
        match runtime.block_on(number(&guard, add(&store, &name, 1))) {
            Ok(count) => say(&format!("wrote {count}")),
            Err(error) => say(&error.to_string()),
        }
    }
}

#[tokio::test]
async fn a_process_that_was_stopped_past_its_lease_writes_nothing() {
    let Some(server) = shared() else { return };
    let (store, leases) = context(&server.client(), "stopped").await;
    let leases = leases.lease(SHORT_LEASE).build().unwrap();
    let mut other = spawn_blocking(|| {
        let mut other = Other::start("writer", &(server.url().as_str(), "stopped"));
        assert_eq!(other.hear(), "held");
        assert_eq!(other.ask("stopped: n"), "wrote 1");
        other.stop();
        // It reads this when it goes on.
        other.tell("stopped: n");
        other
    })
    .await
    .unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    assert_eq!(number(&guard, add(&store, "stopped: n", 1)).await, Ok(2));
    let said = spawn_blocking(move || {
        other.go_on();
        other.hear()
    });
    let said = said.await.unwrap();
    assert!(said.starts_with("the lease of the key \"k\" is lost: "), "{said}");
    assert_eq!(number(&guard, add(&store, "stopped: n", 1)).await, Ok(3), "the stopped process wrote nothing");
}

/// The server has upgraded the lease, and its holder has not heard the answer.
#[tokio::test]
async fn a_script_runs_while_its_lease_is_being_upgraded() {
    let Some(server) = shared() else { return };
    let (store, others) = context(&server.client(), "upgrading").await;
    let (others, faulty) = (others.build().unwrap(), FaultyStore::new(store.clone()));
    let leases = LeaseManager::builder(faulty.clone(), TokioExecutor::new()).lease(LONG_LEASE).build().unwrap();
    let guard = leases.lock("k").shared().acquire().await.unwrap();
    faulty.inject(Fault::LoseReply);
    // Nor can it ask.
    faulty.fail_always(Some(Fault::Refuse));
    let upgrading = guard.clone();
    let upgrade = tokio::spawn(async move { upgrading.upgrade().await });
    let is_upgraded =
        async || others.status("k").await.unwrap().holders.iter().any(|holder| holder.mode == Mode::Exclusive);
    while !is_upgraded().await {
        tokio::task::yield_now().await;
    }
    assert_eq!(guard.mode(), Mode::Shared, "it does not know");
    assert_eq!(number(&guard, add(&store, "upgrading: n", 2)).await, Ok(2));
    faulty.fail_always(None);
    upgrade.await.unwrap().unwrap();
    assert_eq!(number(&guard, add(&store, "upgrading: n", 3)).await, Ok(5));
}

/// The user began the fence relying on being alone.
#[tokio::test]
async fn a_script_of_an_exclusive_guard_does_not_run_after_its_downgrade() {
    let Some(server) = shared() else { return };
    let (store, leases) = context(&server.client(), "downgraded").await;
    let leases = leases.lease(LONG_LEASE).build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let late = number(&guard, add(&store, "downgraded: n", 1));
    let fenced = guard.fence(add(&store, "downgraded: n", 2));
    guard.downgrade().await.unwrap();
    let refused = fenced.await.expect_err("others may read by now").to_string();
    assert!(refused.contains("the lease was downgraded after this fence began"), "{refused}");
    assert_eq!(late.await, Ok(1), "its fence began after the downgrade, as one that shares");
}
