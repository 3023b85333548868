//! The contract suite of signals: those of a process keep it, and each way to be wrong is refused.

use std::{
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use leasehold::{
    LostReason,
    executor::{Executor as _, SimExecutor, WeakShared},
    machine::{Action, Batch, Key, Message, Operation, SessionId},
    signal::{
        Beacons, Inbox, LocalSignals, Notice, Signals,
        contract::{self, Half},
    },
    store::{Reach, Store},
};

use crate::support::world::{HEARTBEAT, LEASE, everywhere, ms};

/// A store that no other test shares.
fn reach() -> Reach {
    static LAST: AtomicU64 = AtomicU64::new(1 << 40);
    Reach::Process(LAST.fetch_add(1, Relaxed))
}

#[test]
fn the_signals_of_a_process_keep_the_contract() {
    for reach in [reach(), Reach::Named("the contract of signals".into())] {
        let open = async || LocalSignals::new(&reach);
        SimExecutor::new(1).block_on(contract::all(open, async || ()));
    }
}

#[test]
fn a_context_of_a_process_that_is_dropped_is_seen_to_die() {
    let reach = reach();
    let one = Half::new(LocalSignals::new(&reach));
    let other = RefCell::new(Some(Half::new(LocalSignals::new(&reach))));
    let obey = async |line: String| other.borrow().as_ref().expect("it lives").obey(&line);
    let kill = async || drop(other.take());
    let seen = contract::a_death_is_seen(async |line: String| one.obey(&line), obey, kill, async || ());
    SimExecutor::new(1).block_on(seen);
}

/// How signals can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// They bring messages back to their sender.
    Echoes,
    /// They bring no message that is for one context.
    LosesLetters,
    /// They go on bringing messages to a context that rests.
    NeverRests,
    /// They say that a beacon is to be expected, and raise none.
    PromisesBeacons,
    /// They see a beacon gone as soon as they watch it.
    BuriesTheLiving,
    /// They never see a beacon gone.
    MissesDeaths,
    /// They tell twice of a beacon that is gone.
    TellsTwice,
    /// They ignore `unwatch`.
    WatchesOn,
    /// They end all watches of a beacon with one of them.
    EndsAllWatches,
    /// If one beacon is gone, they say so of every one that is watched.
    BuriesAll,
    /// They see no beacons of others, and do not say so.
    SeesItselfOnly,
    /// They say that nobody can see their beacons, and tell of them all the same.
    SaysLessThanItDoes,
}

/// Signals within a process, with a flaw. Messages and beacons go over hubs of their own.
#[derive(Debug)]
struct Flawed {
    flaw: Flaw,
    messages: LocalSignals,
    beacons: LocalSignals,
    inbox: Mutex<Option<Arc<Relay>>>,
    watched: Arc<Mutex<Vec<(u64, SessionId)>>>,
}

struct Relay {
    flaw: Flaw,
    watched: Arc<Mutex<Vec<(u64, SessionId)>>>,
    inbox: WeakShared<dyn Inbox>,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Relay({:?})", self.flaw)
    }
}

impl Inbox for Relay {
    fn notice(&self, notice: Notice) {
        let Some(inbox) = self.inbox.upgrade() else { return };
        if self.flaw == Flaw::TellsTwice && matches!(notice, Notice::BeaconGone { .. }) {
            inbox.notice(notice.clone());
        }
        if self.flaw == Flaw::BuriesAll && matches!(notice, Notice::BeaconGone { .. }) {
            let all = std::mem::take(&mut *self.watched.lock().unwrap());
            return all.into_iter().for_each(|(watch, _)| inbox.notice(Notice::BeaconGone { watch }));
        }
        inbox.notice(notice);
    }
}

impl Flawed {
    fn new(flaw: Flaw, hub: &Reach) -> Self {
        let alone = reach();
        let beacons = LocalSignals::new(if flaw == Flaw::SeesItselfOnly { &alone } else { hub });
        let messages = LocalSignals::new(&Reach::Named(format!("{hub:?}")));
        Self { flaw, messages, beacons, inbox: Mutex::default(), watched: Arc::default() }
    }

    fn tell(&self, notice: Notice) {
        let inbox = self.inbox.lock().unwrap().clone();
        inbox.expect("it is awake").notice(notice);
    }
}

impl Signals for Flawed {
    fn beacons(&self) -> Beacons {
        if self.flaw == Flaw::SaysLessThanItDoes { Beacons::None } else { Beacons::All }
    }

    fn wake(&self, session: SessionId, beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool {
        let relay = Arc::new(Relay { flaw: self.flaw, watched: self.watched.clone(), inbox });
        let shared: Arc<dyn Inbox> = relay.clone();
        *self.inbox.lock().unwrap() = Some(relay);
        self.messages.wake(session, false, Arc::downgrade(&shared));
        self.flaw == Flaw::PromisesBeacons || self.beacons.wake(session, beacon, Arc::downgrade(&shared))
    }

    fn rest(&self) {
        if self.flaw != Flaw::NeverRests {
            self.messages.rest();
        }
        self.watched.lock().unwrap().clear();
        self.beacons.rest();
    }

    fn send(&self, message: &Message) {
        if self.flaw == Flaw::Echoes {
            self.tell(Notice::Message(message.clone()));
        }
        if self.flaw != Flaw::LosesLetters || message.body.recipient().is_none() {
            self.messages.send(message);
        }
    }

    fn watch(&self, watch: u64, session: SessionId) {
        self.watched.lock().unwrap().push((watch, session));
        match self.flaw {
            Flaw::BuriesTheLiving => self.tell(Notice::BeaconGone { watch }),
            Flaw::MissesDeaths => {}
            _ => self.beacons.watch(watch, session),
        }
    }

    fn unwatch(&self, watch: u64) {
        let mut watched = self.watched.lock().unwrap();
        let session = watched.iter().find(|(known, _)| *known == watch).map(|(_, session)| *session);
        let ends = |(known, whose): &mut (u64, SessionId)| {
            *known == watch || (self.flaw == Flaw::EndsAllWatches && Some(*whose) == session)
        };
        let ended: Vec<_> = watched.extract_if(.., ends).collect();
        drop(watched);
        if self.flaw != Flaw::WatchesOn {
            ended.into_iter().for_each(|(watch, _)| self.beacons.unwatch(watch));
        }
    }
}

fn all(flaw: Flaw) {
    let (hub, opened) = (reach(), Cell::new(0));
    let open = async || {
        opened.set(opened.get() + 1);
        Flawed::new(flaw, &hub)
    };
    SimExecutor::new(1).block_on(contract::all(open, async || ()));
    assert_eq!(opened.get(), 2);
}

#[test]
fn the_contract_names_the_rule_that_signals_break() {
    all(Flaw::None);
    for (flaw, rule) in [
        (Flaw::Echoes, "a message does not come back to its sender"),
        (Flaw::LosesLetters, "a message for one context reaches that one"),
        (Flaw::NeverRests, "who rests hears nothing"),
        (Flaw::PromisesBeacons, "then `BeaconStands` follows"),
        (Flaw::BuriesTheLiving, "a waiter would evict a living holder"),
        (Flaw::MissesDeaths, "each watch reports that its beacon was lowered"),
        (Flaw::TellsTwice, "a watch reports a beacon gone exactly once"),
        (Flaw::WatchesOn, "a watch that was ended reports nothing"),
        (Flaw::EndsAllWatches, "each watch reports that its beacon was lowered"),
        (Flaw::BuriesAll, "a waiter would evict a living holder"),
        (Flaw::SeesItselfOnly, "a waiter would evict a living holder"),
        (Flaw::SaysLessThanItDoes, "signals that say `Beacons::None` raise none"),
    ] {
        let refused = catch_unwind(AssertUnwindSafe(|| all(flaw)));
        let Err(sentence) = refused else { panic!("signals with the flaw {flaw:?} were accepted") };
        let literal = sentence.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let sentence = literal.or_else(|| sentence.downcast_ref::<String>().cloned()).expect("a panic has a sentence");
        assert!(sentence.contains(rule), "{flaw:?} is refused with {sentence:?}");
    }
}

/// Signals of a store whose server can be replaced.
#[derive(Debug)]
struct Wire {
    inner: LocalSignals,
    inbox: Arc<Mutex<Option<WeakShared<dyn Inbox>>>>,
}

impl Signals for Wire {
    fn beacons(&self) -> Beacons {
        self.inner.beacons()
    }

    fn wake(&self, session: SessionId, beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool {
        *self.inbox.lock().unwrap() = Some(inbox.clone());
        self.inner.wake(session, beacon, inbox)
    }

    fn rest(&self) {
        self.inner.rest();
    }

    fn send(&self, message: &Message) {
        self.inner.send(message);
    }

    fn watch(&self, watch: u64, session: SessionId) {
        self.inner.watch(watch, session);
    }

    fn unwatch(&self, watch: u64) {
        self.inner.unwatch(watch);
    }
}

/// A heartbeat reads no records: if the context did not ask about its leases then, it would believe in the lost one for ever.
#[test]
fn a_holder_whose_new_server_lacks_the_grant_learns_of_it_when_the_store_reconnects() {
    everywhere(async |world| {
        let inbox = Arc::default();
        let wire = Wire { inner: LocalSignals::new(&reach()), inbox: Arc::clone(&inbox) };
        let tab = world.dark_tab().with(|builder| builder.beacon(false).signals(wire));
        let (lost, kept) =
            (tab.leases.lock("lost").acquire().await.unwrap(), tab.leases.lock("kept").acquire().await.unwrap());
        let grant = tab.leases.status("lost").await.unwrap().holders.pop().expect("it is held");
        let seen = tab.store.take_seen();
        let request = seen.iter().flat_map(|batch| &batch.operations).find_map(|operation| match &operation.action {
            Action::Acquire(ask) if operation.key.as_str() == "lost" => Some(ask.request),
            _ => None,
        });
        let action = Action::Release { token: grant.token, request: request.expect("it was asked for") };
        let key = Key::new("lost").unwrap();
        let loss = Batch::new(grant.holder, vec![Operation { key, action }]);
        world.shared.transact(loss, world.sim.now(), LEASE).await.unwrap();
        world.sim.pass(HEARTBEAT * 2).await;
        assert!(lost.is_valid(), "no heartbeat shows it");
        let told = inbox.lock().unwrap().clone().and_then(|inbox: WeakShared<dyn Inbox>| inbox.upgrade());
        told.expect("it is awake").notice(Notice::Reconnected);
        let reason = world.within(ms(1), lost.lost()).await;
        assert_eq!(reason, Some(LostReason::Evicted));
        assert!(kept.is_valid() && kept.verify().await.unwrap());
    });
}
