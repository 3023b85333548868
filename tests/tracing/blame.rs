//! Which span an event is told in, and which manager it names.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt as _, poll};
use leasehold::{LeaseManager, executor::SimExecutor, store::MemoryStore};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::with_default,
};
use tracing_core::span::Current;

/// One event: what it says, the span that it stands in, and the manager that it names.
#[derive(Clone, Debug, Default)]
struct Told {
    message: String,
    span: Option<&'static str>,
    number: usize,
    holder: String,
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "holder" => self.holder = format!("{value:?}"),
            _ => {}
        }
    }
}

/// A subscriber that keeps its spans apart.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    spans: Vec<&'static Metadata<'static>>,
    entered: Vec<u64>,
    told: Vec<Told>,
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut seen = self.0.lock().unwrap();
        seen.spans.push(attributes.metadata());
        span::Id::from_u64(seen.spans.len() as u64)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut seen = self.0.lock().unwrap();
        let mut told = Told::default();
        event.record(&mut told);
        let entered = seen.entered.last().copied().filter(|_| event.is_contextual());
        if let Some(number) = event.parent().map(span::Id::into_u64).or(entered) {
            told.number = usize::try_from(number).unwrap();
            told.span = Some(seen.spans[told.number - 1].name());
        }
        seen.told.push(told);
    }

    fn enter(&self, span: &span::Id) {
        self.0.lock().unwrap().entered.push(span.into_u64());
    }

    fn exit(&self, _: &span::Id) {
        self.0.lock().unwrap().entered.pop();
    }

    fn current_span(&self) -> Current {
        let seen = self.0.lock().unwrap();
        let Some(number) = seen.entered.last() else { return Current::none() };
        Current::new(span::Id::from_u64(*number), seen.spans[usize::try_from(*number).unwrap() - 1])
    }
}

/// What is told of a scenario over one store, with two managers.
fn told(scenario: impl AsyncFnOnce(&LeaseManager, &LeaseManager, &SimExecutor)) -> Vec<Told> {
    let (spans, world, store) = (Spans::default(), SimExecutor::new(1), MemoryStore::new());
    let build = || LeaseManager::builder(store.clone(), world.context()).build().unwrap();
    let (one, two) = (build(), build());
    with_default(spans.clone(), || world.block_on(async { scenario(&one, &two, &world).await }));
    let seen = spans.0.lock().unwrap();
    seen.told.clone()
}

fn all<'a>(told: &'a [Told], message: &str) -> Vec<&'a Told> {
    let found: Vec<_> = told.iter().filter(|told| told.message == message).collect();
    assert!(!found.is_empty(), "{message:?} is not in {told:#?}");
    found
}

/// The waiter of the same context is granted in place by whoever drops the guard; that of another by a message.
#[test]
fn a_grant_is_told_in_the_span_of_its_request() {
    for elsewhere in [false, true] {
        let told = told(async |one, two, world| {
            let guard = one.lock("k").acquire().await.unwrap();
            let waiter = if elsewhere { two } else { one };
            let mut waiting = Box::pin(waiter.lock("k").acquire());
            assert!(poll!(&mut waiting).is_pending());
            tracing::info_span!("releaser").in_scope(|| drop(guard));
            drop(waiting.await.unwrap());
            world.pass(Duration::from_secs(1)).await;
        });
        for message in ["lease granted", "lease released"] {
            let numbers: Vec<_> = all(&told, message).iter().map(|told| (told.span, told.number)).collect();
            assert_eq!(numbers, [(Some("lease"), 1), (Some("lease"), 2)], "{message}, elsewhere: {elsewhere}");
        }
    }
}

/// The user's own span stands for a request whose own one nobody listens to, and no other's.
#[test]
fn a_loss_is_told_in_no_span_of_a_stranger() {
    let told = told(async |one, _, _| {
        let robbed = one.lock("k").acquire().await.unwrap();
        let thief = one.lock("k").steal().now_or_never().unwrap().unwrap();
        drop((robbed, thief));
    });
    assert_eq!(all(&told, "lease lost")[0].number, 1);
}

#[test]
fn each_event_names_its_manager() {
    let mut names = Vec::new();
    let told = told(async |one, two, world| {
        names = vec![one.session().to_string(), two.session().to_string()];
        let guard = one.lock("k").acquire().await.unwrap();
        let mut waiting = Box::pin(two.lock("k").acquire());
        assert!(poll!(&mut waiting).is_pending());
        world.pass(Duration::from_secs(90)).await;
        guard.release().await.unwrap();
        let mut withdrawn = Box::pin(one.lock("k").acquire());
        assert!(poll!(&mut withdrawn).is_pending());
        drop(withdrawn);
        let _robbed = waiting.await.unwrap();
        let _thief = two.lock("k").steal().await.unwrap();
        one.close().await;
        two.close().await;
    });
    for (message, holders) in [
        ("lease awaited", vec![1, 0]),
        ("the wait for a lease gets long", vec![1]),
        ("lease released", vec![0]),
        ("lease awaited in vain", vec![0]),
        ("lease lost", vec![1, 1]),
    ] {
        let named: Vec<_> = all(&told, message).iter().map(|told| told.holder.as_str()).collect();
        assert_eq!(
            named,
            holders.iter().map(|number: &usize| names[*number].as_str()).collect::<Vec<_>>(),
            "{message}"
        );
    }
}
