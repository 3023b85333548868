//! Transactions that a store decides by what it remembers, although others have written to the rows since.

use std::time::{Duration, Instant};

use leasehold::{LeaseManager, LostReason, executor::TokioExecutor};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    leases::with_longer_leases,
    proxy::{Commit, Proxy},
    server::{PATIENCE, Place, on_server},
    until::until,
};

async fn manager(place: &Place) -> LeaseManager {
    let builder = LeaseManager::builder(place.store().await, TokioExecutor::new());
    builder.lease(Duration::from_secs(60)).linger(Duration::ZERO).build().unwrap()
}

async fn turn(leases: &LeaseManager) -> u64 {
    let guard = timeout(PATIENCE, leases.lock("k").acquire()).await.unwrap().unwrap();
    let token = guard.token().as_u64();
    guard.release().await.unwrap();
    token
}

/// A manager whose store has prepared its statements and remembers the key.
async fn settled(place: &Place) -> LeaseManager {
    let leases = manager(place).await;
    for _ in 0..5 {
        turn(&leases).await;
    }
    leases
}

#[test]
fn another_context_that_acquired_the_key_meanwhile_is_noticed() {
    on_server("rewrite_held", |place| async move {
        let (one, other) = (settled(&place).await, settled(&place).await);
        let mut last = turn(&one).await;
        for (near, far) in [(&one, &other), (&other, &one)].into_iter().cycle().take(6) {
            let guard = far.lock("k").acquire().await.unwrap();
            assert!(near.lock("k").try_acquire().await.unwrap().is_none(), "two hold it");
            assert!(guard.token().as_u64() > last, "tokens grow");
            guard.release().await.unwrap();
            last = turn(near).await;
        }
    });
}

/// The row of the session is gone: a lease that it acquired by memory would belong to nobody.
#[test]
fn a_session_that_ended_meanwhile_is_not_granted_anything() {
    on_server("rewrite_ended", |place| async move {
        let (leases, client) = (settled(&place).await, place.client().await);
        client.batch_execute("DELETE FROM rewrite_ended_session").await.unwrap();
        let guard = timeout(PATIENCE, leases.lock("k").acquire()).await.unwrap().unwrap();
        assert!(guard.verify().await.is_ok());
        let ids = client.query("SELECT encode(id, 'hex') FROM rewrite_ended_session", &[]).await.unwrap();
        let record = client.query_one("SELECT text FROM rewrite_ended_record", &[]).await.unwrap();
        let (ids, record): (Vec<String>, &str) = (ids.iter().map(|row| row.get(0)).collect(), record.get(0));
        assert!(ids.len() == 1 && record.contains(&ids[0]), "{ids:?} {record}");
    });
}

/// The tables were restored from a backup, or somebody wrote to them.
#[test]
fn a_store_with_another_id_or_format_is_noticed() {
    on_server("rewrite_other", |place| async move {
        let (leases, client) = (settled(&place).await, place.client().await);
        let write = async |change: &str| {
            let sql = format!("UPDATE rewrite_other_store SET text = {change}");
            assert_eq!(client.execute(&sql, &[]).await.unwrap(), 1);
        };
        write("replace(text, '\"format\":1', '\"format\":2')").await;
        let error =
            timeout(PATIENCE, leases.lock("k").acquire()).await.unwrap().expect_err("it knows only the first format");
        assert!(error.to_string().contains("update this program"), "{error}");
        write("replace(text, '\"format\":2', '\"format\":1')").await;
        let held = leases.lock("held").acquire().await.unwrap();
        turn(&leases).await;
        write("jsonb_set(text::jsonb, '{store}', to_jsonb(repeat('7', 32)))").await;
        // The context decided by a store that is gone, so it must not report a lease.
        assert!(leases.lock("k").try_acquire().await.is_ok_and(|granted| granted.is_none()));
        assert_eq!(timeout(PATIENCE, held.lost()).await.unwrap(), LostReason::StoreCleared);
    });
}

/// Even a transaction that the store decides from memory is synced to the disk, and each of its statements sees what others have committed.
#[test]
fn what_a_user_has_set_for_transactions_does_not_hold_for_those_of_the_store() {
    on_server("rewrite_settings", |place| async move {
        let client = place.client().await;
        drop(place.store().await);
        let note = "CREATE TABLE rewrite_settings_seen (synced text, isolation text); \
             CREATE FUNCTION rewrite_settings() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO rewrite_settings_seen \
             VALUES (current_setting('synchronous_commit'), current_setting('transaction_isolation')); RETURN NEW; END $$; \
             CREATE TRIGGER rewrite_settings BEFORE INSERT OR UPDATE ON rewrite_settings_record \
             FOR EACH ROW EXECUTE FUNCTION rewrite_settings()";
        client.batch_execute(note).await.unwrap();
        let settings = "options=-csynchronous_commit%3Doff%20-cdefault_transaction_isolation%3Dserializable";
        settled(&Place { url: format!("{}?{settings}", place.url), ..place.clone() }).await;
        let seen = client.query("SELECT DISTINCT synced, isolation FROM rewrite_settings_seen", &[]).await.unwrap();
        let seen: Vec<(&str, &str)> = seen.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert_eq!(seen, [("on", "read committed")]);
    });
}

/// Whether a rewrite waits for a lock.
async fn rewrite_waits(place: &Place, name: &str) -> bool {
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock' \
        AND query LIKE 'BEGIN %_rewrite(%'";
    place.client().await.query_one(waits, &[&name]).await.unwrap().get::<_, i64>(0) == 1
}

/// Another program keeps the record locked, and leaves it as it was, or changes it.
#[test]
fn a_locked_record_is_waited_for_and_then_compared() {
    on_server("rewrite_locked", |place| async move {
        let named = Place { url: format!("{}?application_name=rewrite_locked", place.url), ..place.clone() };
        let leases = settled(&named).await;
        let lock = "BEGIN; SELECT text FROM rewrite_locked_record FOR SHARE";
        let change = "BEGIN; UPDATE rewrite_locked_record SET text = replace(text, '{\"format\":1', '{\"format\":1,\"other\":7')";
        for statement in [lock, change] {
            turn(&leases).await;
            let user = place.client().await;
            user.batch_execute(statement).await.unwrap();
            let asked = leases.clone();
            let waiting = tokio::spawn(async move { turn(&asked).await });
            until("the transaction waits", async || rewrite_waits(&place, "rewrite_locked").await).await;
            user.batch_execute("COMMIT").await.unwrap();
            timeout(PATIENCE, waiting).await.unwrap().unwrap();
        }
        let record = place.client().await.query_one("SELECT text FROM rewrite_locked_record", &[]).await.unwrap();
        assert!(record.get::<_, &str>(0).contains("\"other\":7"), "what another program wrote is lost");
    });
}

/// Takes turns until two of three in a row needed exactly two round trips, which shows that the store remembers the key. A message that is
/// sent again may add a trip, on a busy machine to more than one turn. Returns the largest token.
async fn two_trips(leases: &LeaseManager, proxy: &Proxy) -> u64 {
    let (mut token, mut took) = (turn(leases).await, Vec::new());
    let remembers = |took: &[usize]| took.iter().rev().take(3).filter(|trips| **trips == 2).count() >= 2;
    while !remembers(&took) {
        assert!(took.len() < 40, "the store does not remember the key: the turns took {took:?} round trips");
        let trips = proxy.trips();
        token = u64::max(token, turn(leases).await);
        took.push(proxy.trips() - trips);
    }
    token
}

/// A commit is lost, or its answer is. The context acquires the key all the same, and releases it for the next context.
#[test]
fn a_key_is_acquired_and_released_although_a_commit_or_its_answer_is_lost() {
    on_server("rewrite_lost", |place| async move {
        drop(place.store().await);
        let proxy = place.proxy();
        let leases = settled(&place.behind(proxy.port)).await;
        for (round, commit) in [Commit::LosesAnswer, Commit::IsLost].into_iter().cycle().take(6).enumerate() {
            let last = two_trips(&leases, &proxy).await;
            proxy.let_next_commit(commit);
            let guard = timeout(PATIENCE, leases.lock("k").acquire()).await.unwrap().unwrap();
            assert!(guard.token().as_u64() > last, "tokens grow");
            let other = manager(&place).await;
            assert!(other.lock("k").try_acquire().await.unwrap().is_none(), "two hold it");
            proxy.let_next_commit(commit);
            guard.release().await.unwrap();
            until("the proxy loses the commit of the release, or its answer", async || proxy.hits() == 2 * round + 2)
                .await;
            assert!(timeout(PATIENCE, other.lock("k").acquire()).await.unwrap().unwrap().is_valid());
            other.close().await;
        }
    });
}

/// Transactions of the user lock the record of a key `FOR SHARE`, each before the last one ends. Whoever wants that key must not keep
/// the heartbeats of its other leases waiting.
#[test]
fn a_stream_of_shared_locks_of_one_record_leaves_other_leases_alone() {
    on_server("rewrite_stream", |place| async move {
        with_longer_leases(Duration::from_secs(3), async |lease| {
            let builder = LeaseManager::builder(place.store().await, TokioExecutor::new());
            let leases = builder.lease(lease).linger(Duration::ZERO).build().unwrap();
            for _ in 0..5 {
                turn(&leases).await;
            }
            let held = leases.lock("held").acquire().await.unwrap();
            let mut fences = JoinSet::new();
            for offset_ms in [0, 50, 100] {
                let user = place.client().await;
                fences.spawn(async move {
                    sleep(Duration::from_millis(offset_ms)).await;
                    let lock = "BEGIN; SELECT text FROM rewrite_stream_record WHERE key = 'k' FOR SHARE; \
                    SELECT pg_sleep(0.15); COMMIT";
                    loop {
                        user.batch_execute(lock).await.unwrap();
                    }
                });
            }
            sleep(Duration::from_millis(300)).await;
            let asking = tokio::spawn(async move { leases.lock("k").timeout(PATIENCE).acquire().await.map(drop) });
            let since = Instant::now();
            while since.elapsed() < lease * 8 / 3 && held.is_valid() {
                sleep(Duration::from_millis(20)).await;
            }
            asking.abort();
            if held.is_valid() { Ok(()) } else { Err(format!("in doubt after {:?}", since.elapsed())) }
        })
        .await;
    });
}

/// A transaction locks the record of one lease, and then fences and renews another one, while the first is given back. It does not wait
/// in a circle with that.
#[test]
fn a_transaction_that_fences_two_leases_does_not_deadlock() {
    on_server("rewrite_fences", |place| async move {
        let named = Place { url: format!("{}?application_name=rewrite_fences", place.url), ..place.clone() };
        let leases = settled(&named).await;
        let held = leases.lock("held").acquire().await.unwrap();
        turn(&leases).await;
        let guard = leases.lock("k").acquire().await.unwrap();
        let mut user = place.client().await;
        let mut transaction = user.transaction().await.unwrap();
        let lock = "SELECT text FROM rewrite_fences_record WHERE key = 'k' FOR SHARE";
        transaction.query(lock, &[]).await.unwrap();
        let releasing = tokio::spawn(async move { guard.release().await });
        until("the release waits", async || rewrite_waits(&place, "rewrite_fences").await).await;
        // Longer than deadlock_timeout, so that the server ends whoever comes last.
        sleep(Duration::from_millis(1_300)).await;
        drop(held.fence_and_renew(&mut transaction).await.unwrap());
        transaction.commit().await.unwrap();
        releasing.await.unwrap().unwrap();
    });
}
