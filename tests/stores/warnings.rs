//! The warnings that a store gives by `tracing`.

use std::{
    fmt::Debug,
    mem,
    sync::{Arc, Mutex},
};

use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    dispatcher::DefaultGuard,
    field::{Field, Visit},
    span,
    subscriber::set_default,
};

/// Keeps the messages of the warnings of this thread.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Keeps them until the second value is dropped.
    pub(crate) fn listen() -> (Self, (DefaultGuard, Dispatch)) {
        let told = Self::default();
        // With only one subscriber, a thread without a subscriber could turn the warning off for all threads.
        let second = Dispatch::new(told.clone());
        (told.clone(), (set_default(told), second))
    }

    /// Takes those that were given so far.
    pub(crate) fn take(&self) -> Vec<String> {
        mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Visit for Warnings {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "leasehold" && *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
