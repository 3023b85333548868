//! What is told to `tracing`: structured, and nothing is formatted unless somebody listens.
#![cfg(not(all(target_family = "wasm", target_os = "unknown")))]

#[path = "tracing/blame.rs"]
mod blame;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{
    LeaseManager, OnLoss,
    executor::SimExecutor,
    store::{Fault, FaultyStore, MemoryStore},
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::with_default,
};

/// The fields of one event, as text.
type Fields = BTreeMap<&'static str, String>;

/// Keeps what is told at one level and above.
struct Listener {
    level: Level,
    told: Arc<Mutex<Vec<Fields>>>,
}

#[derive(Default)]
struct Reader(Fields);

impl Visit for Reader {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut reader = Reader::default();
        attributes.record(&mut reader);
        reader.0.insert("span", attributes.metadata().name().into());
        reader.0.insert("target", attributes.metadata().target().into());
        self.told.lock().unwrap().push(reader.0);
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut reader = Reader::default();
        event.record(&mut reader);
        reader.0.insert("target", event.metadata().target().into());
        self.told.lock().unwrap().push(reader.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// What is told of a scenario.
fn told(level: Level, scenario: impl AsyncFnOnce(&SimExecutor)) -> Vec<Fields> {
    let told = Arc::<Mutex<Vec<_>>>::default();
    let world = SimExecutor::new(1);
    let listener = Listener { level, told: told.clone() };
    with_default(listener, || world.block_on(async { scenario(&world).await }));
    let told = told.lock().unwrap();
    told.clone()
}

fn manager(world: &SimExecutor) -> LeaseManager {
    LeaseManager::builder(MemoryStore::new(), world.context()).build().unwrap()
}

fn find<'a>(told: &'a [Fields], message: &str) -> &'a Fields {
    let is_it = |fields: &&Fields| fields.get("message").is_some_and(|text| text == message);
    told.iter().find(is_it).unwrap_or_else(|| panic!("{message:?} is not in {told:#?}"))
}

#[test]
fn a_lease_is_told_from_its_request_to_its_end() {
    let told = told(Level::DEBUG, async |world| {
        let leases = manager(world);
        let guard = leases.lock("notes").shared().acquire().await.unwrap();
        world.pass(Duration::from_secs(3)).await;
        guard.release().await.unwrap();
        let robbed = leases.lock("notes").acquire().await.unwrap();
        let _thief = leases.lock("notes").steal().await.unwrap();
        drop(robbed);
    });
    let span = told.iter().find(|fields| fields.get("span").is_some_and(|name| name == "lease")).unwrap();
    assert_eq!((span["key"].as_str(), span["mode"].as_str()), ("\"notes\"", "\"shared\""));
    let granted = find(&told, "lease granted");
    assert_eq!((granted["key"].as_str(), granted["mode"].as_str()), ("notes", "\"shared\""));
    assert!(granted["token"].parse::<u64>().unwrap() > 0 && granted["holder"].len() == 32);
    let released = find(&told, "lease released");
    assert_eq!((&released["token"], released["held_ms"].as_str()), (&granted["token"], "3000"));
    assert_eq!(find(&told, "lease lost")["reason"], "\"Stolen\"");
}

/// Programs filter by it, so it must not be the path of a module, which may move.
#[test]
fn all_is_told_under_one_target() {
    let told = told(Level::TRACE, async |world| {
        let leases = manager(world);
        let robbed = leases.lock("notes").acquire().await.unwrap();
        let _thief = leases.lock("notes").steal().await.unwrap();
        drop(robbed);
        leases.close().await;
    });
    assert!(told.iter().all(|fields| fields["target"] == "leasehold"), "{told:#?}");
    for message in ["store transaction", "lease granted", "lease lost"] {
        find(&told, message);
    }
}

#[test]
fn a_long_wait_is_told_once() {
    let told = told(Level::WARN, async |world| {
        let leases = manager(world);
        let _held = leases.lock("notes").acquire().await.unwrap();
        let waited = leases.lock("notes").timeout(Duration::from_secs(300)).acquire().await;
        assert!(waited.is_err());
    });
    let long: Vec<_> = told.iter().filter(|fields| fields.contains_key("waited_ms")).collect();
    assert_eq!(long.len(), 1, "{told:?}");
    assert_eq!((long[0]["key"].as_str(), long[0]["waited_ms"].as_str()), ("notes", "60000"));
    assert_eq!(long[0]["held_here"], "true", "the task waits for itself");
}

/// A server may refuse writes for hours, for example because its disk is full.
#[test]
fn an_election_tells_once_why_it_waits_for_its_store() {
    let outages = told(Level::WARN, async |world| {
        let store = FaultyStore::new(MemoryStore::new());
        let leases = LeaseManager::builder(store.clone(), world.context()).build().unwrap();
        leases.lock("other").acquire().await.unwrap().release().await.unwrap();
        let lead = leases.elect("notes", async |_| ());
        let outage = async {
            for fault in [Fault::Refuse, Fault::LoseReply] {
                store.fail_always(Some(fault));
                world.pass(Duration::from_secs(600)).await;
            }
            store.fail_always(None);
        };
        store.fail_always(Some(Fault::Refuse));
        futures::join!(async { lead.await.unwrap() }, outage);
    });
    let causes: Vec<_> = outages.iter().filter_map(|fields| fields.get("cause")).collect();
    assert_eq!(causes, ["\"refused on demand\"", "\"the answer was lost on demand\""], "{outages:?}");
    assert_eq!(find(&outages, "the election waits for a store that fails")["key"], "notes");
}

#[test]
fn a_guard_that_outlives_its_manager_is_told_by_its_key() {
    for closes in [false, true] {
        let told = told(Level::WARN, async |world| {
            let leases = manager(world);
            let forgotten = leases.lock("forgotten").acquire().await.unwrap();
            drop(leases.lock("given back").acquire().await.unwrap());
            if closes {
                leases.close().await;
            }
            drop(leases);
            std::mem::forget(forgotten);
        });
        let leak = told.iter().find(|fields| fields["message"].contains("while a guard of this key lived")).unwrap();
        assert_eq!(leak["key"], "forgotten");
        assert!(!told.iter().any(|fields| fields["key"] == "given back"), "{told:?}");
    }
}

#[test]
fn a_graceful_close_warns_once_of_each_guard() {
    let told = told(Level::WARN, async |world| {
        let leases = manager(world);
        let held = [leases.lock("a").acquire().await.unwrap(), leases.lock("b").acquire().await.unwrap()];
        leases.close().await;
        drop(held);
    });
    let keys: Vec<_> = told.iter().map(|fields| fields["key"].as_str()).collect();
    assert_eq!(keys, ["a", "b"], "{told:?}");
}

/// A program that follows the guides is told nothing at its SIGTERM that it could mend.
#[test]
fn a_graceful_close_does_not_warn_of_work_that_ends_with_its_lease() {
    let told = told(Level::WARN, async |world| {
        let leases = manager(world);
        let lead = leases.elect("lead", async |_| std::future::pending::<()>().await);
        let run = leases.lock("run").on_loss(OnLoss::Abort).run(async |_| std::future::pending::<()>().await);
        let notified = leases.lock("notified").run(async |lease| lease.lost().await);
        let close = async {
            world.pass(Duration::from_secs(1)).await;
            leases.close().await;
        };
        let (led, ran, _, ()) = futures::join!(lead, run, notified, close);
        assert!(led.is_err() && ran.is_err());
    });
    let keys: Vec<_> = told.iter().map(|fields| fields["key"].as_str()).collect();
    assert_eq!(keys, ["notified"], "{told:?}");
}

#[test]
fn who_listens_may_ask_back() {
    struct Curious(Listener, LeaseManager);

    impl Subscriber for Curious {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            self.0.enabled(metadata)
        }

        fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
            self.0.new_span(attributes)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, _: &Event<'_>) {
            let granted = Fields::from([("granted", self.1.stats().granted.to_string())]);
            self.0.told.lock().unwrap().push(granted);
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    let world = SimExecutor::new(1);
    let leases = manager(&world);
    let told = Arc::<Mutex<Vec<_>>>::default();
    let curious = Curious(Listener { level: Level::DEBUG, told: told.clone() }, leases.clone());
    let guard = with_default(curious, || world.block_on(leases.lock("notes").acquire()));
    assert!(guard.is_ok() && told.lock().unwrap().last().is_some_and(|fields| fields["granted"] == "1"));
}

#[test]
fn who_does_not_listen_is_told_nothing() {
    let told = told(Level::ERROR, async |world| {
        let leases = manager(world);
        let guard = leases.lock("notes").acquire().await.unwrap();
        leases.close().await;
        drop(guard);
    });
    assert!(told.is_empty(), "{told:?}");
}
