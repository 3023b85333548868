//! The contract of all stores.

use std::time::Duration;

use leasehold::{
    LeaseManager,
    executor::{Executor, TokioExecutor},
    machine::{Batch, Beat, Key, SessionId, SessionStep, StoreClock},
    store::{Durability, PostgresStore, Reach, Store, contract},
};
use tokio::runtime::Runtime;

use crate::{
    names,
    server::{PATIENCE, Place, on_server},
    until::until,
};

#[test]
fn the_store_keeps_the_contract() {
    on_server("contract_all", |place| async move { contract::all(async || place.store().await).await });
}

#[test]
fn new_sessions_are_told_of_others() {
    on_server("contract_peers", |place| async move {
        contract::new_sessions_are_told_of_others(async || place.store().await).await;
    });
}

#[test]
fn what_cannot_be_read_is_left_as_it_is() {
    on_server("contract_unreadable", |place| async move {
        let user = place.client().await;
        let put = async |key: String, text: String| {
            let statement = "INSERT INTO contract_unreadable_record VALUES (convert_to($1, 'UTF8'), $2)";
            user.execute(statement, &[&key, &text]).await.unwrap();
        };
        let read = async |key: String| {
            let statement = "SELECT text FROM contract_unreadable_record WHERE key = convert_to($1, 'UTF8')";
            user.query_opt(statement, &[&key]).await.unwrap().map(|row| row.get(0))
        };
        contract::unreadable(async || place.store().await, put, read).await;
    });
}

#[test]
fn a_list_looks_at_no_name_that_nobody_uses() {
    on_server("contract_names", |place| async move {
        names::a_list_looks_at_no_name_that_nobody_uses(async || place.store().await).await;
    });
}

#[test]
fn threads_take_turns() {
    let Some(place) = Place::new("contract_threads") else { return };
    let runtime = Runtime::new().unwrap();
    contract::in_threads(async || place.store().await, |work| runtime.block_on(work));
}

/// Handles that share connections keep the contract, too.
#[test]
fn clones_keep_the_contract() {
    on_server("contract_clones", |place| async move {
        let first = place.store().await;
        contract::all(async || first.clone()).await;
    });
}

#[test]
fn a_prefix_and_a_schema_are_stores_of_their_own() {
    on_server("contract_a", |place| async move {
        let user = place.client().await;
        user.batch_execute("CREATE SCHEMA \"of its own\"").await.unwrap();
        let elsewhere = format!("{}?options=-csearch_path%3D%22of%5C%20its%5C%20own%22", place.url);
        let stores = [
            place.store().await,
            Place { prefix: "contract_b".into(), ..place.clone() }.store().await,
            Place { url: elsewhere, ..place.clone() }.store().await,
        ];
        let reaches: Vec<Reach> = stores.iter().map(Store::reach).collect();
        assert_ne!(reaches[0], reaches[1]);
        assert_ne!(reaches[0], reaches[2]);
        assert_eq!(place.store().await.reach(), reaches[0], "who opens the same tables names them alike");
        for (number, store) in stores.into_iter().enumerate() {
            let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
            let guard = leases.lock("k").try_acquire().await.unwrap();
            std::mem::forget(guard.unwrap_or_else(|| panic!("the key is free in store {number}")));
        }
    });
}

#[test]
fn keys_are_listed_by_their_prefix() {
    on_server("contract_keys", |place| async move {
        let leases = LeaseManager::builder(place.store().await, TokioExecutor::new()).build().unwrap();
        let mut guards = Vec::new();
        for key in ["a", "a%", "a%b", "a_b", "a\0b", "b", "ä"] {
            guards.push(leases.lock(key).info("\0 \u{1f98a} \\").acquire().await.unwrap());
        }
        assert_eq!(leases.status("a\0b").await.unwrap().holders[0].info, "\0 \u{1f98a} \\");
        let listed = async |prefix: &str| -> Vec<String> {
            let listed = leases.list(prefix).await.unwrap();
            listed.iter().map(|status| status.key.as_str().to_owned()).collect()
        };
        assert_eq!(listed("a").await, ["a", "a\0b", "a%", "a%b", "a_b"]);
        assert_eq!(listed("a%").await, ["a%", "a%b"]);
        assert_eq!(listed("a\0").await, ["a\0b"]);
        assert_eq!(listed("ä").await, ["ä"]);
        assert_eq!(listed("").await.len(), 7);
    });
}

/// The longest keys take more bytes in UTF-8 than PostgreSQL indexes, and cannot be made shorter by compression.
#[test]
fn the_longest_keys_are_leased_and_listed() {
    on_server("contract_long", |place| async move {
        let letters = (0..1_024_u32).map(|n| 0x4e00 + (n.wrapping_mul(2_654_435_761) >> 8) % 20_000);
        let long: String = letters.filter_map(char::from_u32).collect();
        let other = long.replacen(|_| true, "\u{ffff}", 1);
        let leases = LeaseManager::builder(place.store().await, TokioExecutor::new()).build().unwrap();
        let mut guards = Vec::new();
        for key in [&long, &other] {
            guards.push(leases.lock(key).acquire().await.unwrap());
        }
        let rival = LeaseManager::builder(place.store().await, TokioExecutor::new()).build().unwrap();
        assert!(rival.lock(&long).try_acquire().await.unwrap().is_none());
        let store = place.store().await;
        assert_eq!(store.keys(&long[..9]).await.unwrap(), [Key::new(&long).unwrap()]);
        assert_eq!(store.keys("\u{ffff}").await.unwrap(), [Key::new(&other).unwrap()]);
        assert_eq!(store.keys("").await.unwrap().len(), 2);
    });
}

/// However many other keys there are.
#[test]
fn a_list_of_few_keys_reads_few_rows() {
    on_server("contract_few", |place| async move {
        let (store, user) = (place.store().await, place.client().await);
        let fill = "INSERT INTO contract_few_record SELECT convert_to('b' || n, 'UTF8'), '{}' FROM generate_series(1, 10000) AS n; \
                    INSERT INTO contract_few_record VALUES ('a', '{}'); ANALYZE contract_few_record";
        user.batch_execute(fill).await.unwrap();
        let read = async || -> (i64, i64) {
            let read = "SELECT coalesce(idx_scan, 0), seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables \
                        WHERE relname = 'contract_few_record'";
            let row = user.query_one(read, &[]).await.unwrap();
            (row.get(0), row.get(1))
        };
        let before = read().await;
        assert_eq!(store.keys("a").await.unwrap(), [Key::new("a").unwrap()]);
        until("the server has counted", async || read().await.0 > before.0).await;
        let rows = read().await.1 - before.1;
        assert!(rows < 10, "{rows} rows were read");
    });
}

/// A later version may have added a field that says that somebody uses the record.
#[test]
fn a_record_with_more_fields_is_listed() {
    on_server("contract_more", |place| async move {
        let (store, user) = (place.store().await, place.client().await);
        let begin = r#"{"format":1,"last_token":77,"revision":44"#;
        let idle = r#""grants":[],"queue":[],"last_exclusive":55"#;
        for (key, text) in [
            ("idle", format!("{begin},{idle}}}")),
            ("after", format!(r#"{begin},{idle},"more":1}}"#)),
            ("before", format!(r#"{begin},"more":1,{idle}}}"#)),
            ("broken", format!("{begin},{idle},}}")),
            ("twice", format!(r#"{begin},"grants":[7],"queue":[8],"last_exclusive":55}},"revision":1,{idle}}}"#)),
        ] {
            let insert = format!("INSERT INTO contract_more_record VALUES ('{key}', '{text}')");
            user.batch_execute(&insert).await.unwrap();
        }
        let listed = ["after", "before", "broken", "twice"].map(|key| Key::new(key).unwrap());
        assert_eq!(store.keys("").await.unwrap(), listed);
    });
}

/// Each context forgets what it no longer uses, but for the last few hundred keys. So it takes many contexts to leave many.
#[test]
fn a_store_with_many_idle_records_is_swept() {
    on_server("contract_swept", |place| async move {
        let user = place.client().await;
        let count = async || user.query_one("SELECT count(*) FROM contract_swept_record", &[]).await.unwrap().get(0);
        let records = async || -> i64 { count().await };
        let leases = async || {
            LeaseManager::builder(place.store().await, TokioExecutor::new()).linger(Duration::ZERO).build().unwrap()
        };
        for context in 0..3 {
            let leases = leases().await;
            for name in 0..200 {
                let guard = leases.lock(&format!("{context}-{name}")).acquire().await.unwrap();
                guard.release().await.unwrap();
            }
            leases.close().await;
        }
        assert_eq!(records().await, 600, "idle records stay at first");
        let leases = leases().await;
        let guard = leases.lock("0-199").acquire().await.unwrap();
        while records().await > 1 {
            tokio::task::yield_now().await;
        }
        assert!(guard.is_valid());
        assert!(guard.token().as_u64() > 64, "tokens go on growing: {:?}", guard.token());
    });
}

#[test]
fn durability_is_as_the_user_says() {
    on_server("contract_durability", |place| async move {
        let store = place.builder().connect().await.unwrap();
        assert_eq!((store.durability(), store.clock()), (Durability::Local, StoreClock::Observed));
        let quorum = place.builder().durability(Durability::Quorum).connect().await.unwrap();
        assert_eq!(quorum.durability(), Durability::Quorum);
    });
}

/// All find a store without an id, each writes one, and only one of them stays.
#[test]
fn a_new_store_gets_one_id_although_many_draw_one() {
    on_server("contract_new", |place| async move {
        for _ in 0..5 {
            let mut stores = Vec::new();
            for _ in 0..8 {
                stores.push(place.store().await);
            }
            let asks = stores.iter().zip(1..).map(|(store, session)| {
                // Whoever only looks writes no id.
                let beat = Beat { beat: 1, lease_ms: 60_000, ..Beat::default() };
                let step = SessionStep::Open { beat, instance: String::new() };
                let batch = Batch { step, ..Batch::new(SessionId(session), vec![]) };
                store.transact(batch, TokioExecutor::new().now(), PATIENCE)
            });
            let replies = futures::future::try_join_all(asks).await.unwrap();
            let kept: String =
                place.client().await.query_one("SELECT text FROM contract_new_store", &[]).await.unwrap().get(0);
            for reply in replies {
                assert!(kept.contains(&reply.store.to_string()), "{} is not in {kept}", reply.store);
            }
            place.client().await.batch_execute("UPDATE contract_new_store SET text = NULL").await.unwrap();
        }
    });
}

/// The rows go, and so does what they were: a new store has a new id.
#[test]
fn a_store_that_was_wiped_is_another_one() {
    on_server("contract_wiped", |place| async move {
        let text = async || -> String {
            let statement = "SELECT text FROM contract_wiped_store";
            place.client().await.query_one(statement, &[]).await.unwrap().get(0)
        };
        let acquire = async |store: PostgresStore| {
            let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
            drop(leases.lock("k").acquire().await.unwrap());
            leases.close().await;
        };
        acquire(place.store().await).await;
        let before = text().await;
        let tables = "contract_wiped_store, contract_wiped_record, contract_wiped_session";
        place.client().await.batch_execute(&format!("TRUNCATE {tables}")).await.unwrap();
        let refused = place.builder().connect().await.unwrap();
        let refused = LeaseManager::builder(refused, TokioExecutor::new()).build().unwrap();
        let error = refused.lock("k").acquire().await.unwrap_err().to_string();
        assert!(error.contains("contract_wiped_store lost its only row"), "{error}");
        acquire(place.store().await).await;
        assert_ne!(text().await, before);
    });
}
