//! What is told to who listens: all of it, in order, and to nobody's harm.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use futures::{StreamExt as _, future::join_all};
use leasehold::{
    LeaseEvent, LeaseEventKind as Kind, LeaseEvents, LeaseManager, LostReason, Mode, ReleaseOutcome, Token,
    executor::Executor as _, store::Fault,
};

use crate::support::world::{Dice, HEARTBEAT, LEASE, Tab, World, everywhere, ms, secs};

/// What was told by now.
fn told(events: &mut LeaseEvents) -> Vec<LeaseEvent> {
    let mut context = Context::from_waker(Waker::noop());
    let mut told = Vec::new();
    while let Poll::Ready(Some(event)) = events.poll_next_unpin(&mut context) {
        told.push(event);
    }
    told
}

fn names(told: &[LeaseEvent]) -> Vec<&'static str> {
    told.iter().map(|event| event.kind.name()).collect()
}

fn has_ended(events: &mut LeaseEvents) -> bool {
    matches!(events.poll_next_unpin(&mut Context::from_waker(Waker::noop())), Poll::Ready(None))
}

#[test]
fn a_lease_is_told_from_its_wait_to_its_end() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let mut events = two.leases.events();
        let first = one.leases.lock("k").shared().acquire().await.unwrap();
        let wait = two.leases.lock("k").acquire();
        let give = async {
            world.sim.pass(secs(3)).await;
            first.release().await.unwrap();
        };
        let (guard, ()) = futures::join!(wait, give);
        let guard = guard.unwrap();
        // Frozen for longer than the lease, with nobody after it: a doubt that the store dispels.
        two.executor.freeze();
        world.sim.pass(LEASE * 2).await;
        two.executor.thaw();
        world.sim.pass(secs(1)).await;
        guard.release().await.unwrap();
        let (told, token) = (told(&mut events), guard.token());
        assert_eq!(names(&told), ["waiting", "granted", "suspect", "certain", "released"]);
        assert!(told.iter().all(|event| event.key.as_str() == "k" && event.mode == Mode::Exclusive));
        assert_eq!(told[0].kind, Kind::Waiting { ahead: 1 });
        let Kind::Granted { waited, holder, .. } = told[1].kind else { unreachable!("by its name") };
        assert!(waited >= secs(3) && waited < secs(4) && holder == two.leases.session(), "{:?}", told[1]);
        assert_eq!(told[1].kind, Kind::Granted { token, holder, waited });
        assert_eq!([told[2].kind, told[3].kind], [Kind::Suspect { token }, Kind::Certain { token }]);
        let Kind::Released { held, .. } = told[4].kind else { unreachable!("by its name") };
        assert!(held > LEASE * 2 && told[4].kind == Kind::Released { token, held });
    });
}

#[test]
fn who_cannot_renew_is_told_of_a_doubt_before_the_loss() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let mut events = one.leases.events();
        let guard = one.leases.lock("k").acquire().await.unwrap();
        one.store.fail_always(Some(Fault::Refuse));
        let next = two.leases.lock("k").acquire().await.unwrap();
        let before = told(&mut events);
        assert_eq!(names(&before), ["granted", "suspect"], "told before another had it");
        one.store.fail_always(None);
        let reason = guard.lost().await;
        let after = told(&mut events);
        let Kind::Lost { token, reason: told, held } = after[0].kind else { panic!("{after:?}") };
        assert_eq!((token, told, after.len()), (guard.token(), reason, 1));
        assert!(held > LEASE - HEARTBEAT && next.token() > token);
        guard.release().await.unwrap();
        assert!(has_not_more(&mut events), "the end is told once");
    });
}

fn has_not_more(events: &mut LeaseEvents) -> bool {
    told(events).is_empty()
}

#[test]
fn each_loss_is_told_with_its_reason() {
    everywhere(async |world| {
        let (one, two) = (world.tab().with(|builder| builder.linger(Duration::ZERO)), world.tab());
        let mut events = one.leases.events();
        let lost = |events: &mut LeaseEvents| {
            told(events).into_iter().filter_map(|event| match event.kind {
                Kind::Lost { reason, .. } => Some(reason),
                _ => None,
            })
        };
        let robbed = one.leases.lock("k").acquire().await.unwrap();
        let thief = two.leases.lock("k").steal().await.unwrap();
        robbed.lost().await;
        assert_eq!(lost(&mut events).collect::<Vec<_>>(), [LostReason::Stolen]);
        thief.release().await.unwrap();
        let _suspended = one.leases.lock("k").acquire().await.unwrap();
        one.leases.suspend();
        assert_eq!(lost(&mut events).collect::<Vec<_>>(), [LostReason::Suspended]);
        one.leases.wake();
        let silent = one.leases.lock("k").acquire().await.unwrap();
        one.store.fail_always(Some(Fault::Refuse));
        assert!(silent.release().await.is_err());
        assert_eq!(lost(&mut events).collect::<Vec<_>>(), [LostReason::StoreFailed], "nobody knows what became of it");
    });
}

/// The context has nothing to ask the store: the user limited the hold, or chose to renew the lease by hand.
#[test]
fn a_lease_that_ends_as_its_user_chose_is_lost_without_a_doubt() {
    everywhere(async |world| {
        let tab = world.tab();
        let mut events = tab.leases.events();
        let limited = tab.leases.lock("k").max_hold(secs(30));
        let not_renewed = tab.leases.lock("k").auto_renew(false);
        for request in [limited, not_renewed] {
            let guard = request.acquire().await.unwrap();
            assert_eq!(guard.lost().await, LostReason::Expired);
            assert_eq!(names(&told(&mut events)), ["granted", "lost"]);
        }
    });
}

#[test]
fn a_wait_in_vain_is_told() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let _held = one.leases.lock("k").acquire().await.unwrap();
        let mut events = two.leases.events();
        assert!(two.leases.lock("k").timeout(secs(7)).acquire().await.is_err());
        assert_eq!(told(&mut events)[1].kind, Kind::Withdrawn { waited: secs(7) });
        assert!(world.within(secs(2), two.leases.lock("k").shared().acquire()).await.is_none());
        let dropped = told(&mut events);
        assert_eq!((names(&dropped), dropped[1].mode), (vec!["waiting", "withdrawn"], Mode::Shared));
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
        assert!(has_not_more(&mut events), "who only tries does not wait");
    });
}

#[test]
fn the_stream_ends_when_the_manager_closes() {
    everywhere(async |world| {
        let tab = world.tab();
        let mut events = tab.leases.events();
        let _held = tab.leases.lock("held").acquire().await.unwrap();
        let listens = async { (&mut events).collect::<Vec<_>>().await };
        let (heard, ()) = futures::join!(listens, tab.leases.close());
        assert_eq!(names(&heard), ["granted", "lost"]);
        assert!(has_ended(&mut events) && has_ended(&mut tab.leases.events()), "and who comes later hears nothing");
    });
}

#[test]
fn the_stream_ends_with_the_last_guard_of_a_manager_that_went() {
    everywhere(async |world| {
        let Tab { leases, .. } = world.tab();
        let mut events = leases.events();
        let guard = leases.lock("k").acquire().await.unwrap();
        drop(leases);
        assert_eq!(names(&told(&mut events)), ["granted"]);
        guard.release().await.unwrap();
        drop(guard);
        let start = world.now();
        let rest = world.within(secs(60), (&mut events).collect::<Vec<_>>()).await;
        assert_eq!(rest.as_deref().map(names), Some(vec!["released"]));
        assert!(world.ms_since(start) < 10_000, "it was woken for the end");
    });
}

#[test]
fn each_listener_hears_from_its_own_beginning() {
    everywhere(async |world| {
        let tab = world.tab();
        let (mut early, left) = (tab.leases.events(), tab.leases.events());
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        drop(left);
        let mut late = tab.leases.events();
        guard.release().await.unwrap();
        assert_eq!(names(&told(&mut early)), ["granted", "released"]);
        assert_eq!(names(&told(&mut late)), ["released"]);
    });
}

#[test]
fn who_does_not_read_holds_nobody_up() {
    let world = World::new(1);
    world.run(async {
        let tab = world.tab();
        let mut events = tab.leases.events();
        let mut tokens = Vec::new();
        for _ in 0..3_000 {
            let guard = tab.leases.lock("k").acquire().await.unwrap();
            tokens.push(guard.token());
            guard.release().await.unwrap();
        }
        let missed = 6_000 - 4_096;
        assert_eq!(events.missed(), missed as u64);
        let kept = told(&mut events);
        assert_eq!((kept.len(), kept.last().map(|event| event.kind.name())), (4_096, Some("released")));
        // Each guard has two events, and the oldest are dropped.
        assert_eq!(kept[0].kind.token(), Some(tokens[missed / 2]));
    });
}

/// Asks back while it is woken: under a lock that would never end.
struct Curious(LeaseManager, Mutex<Vec<u64>>);

impl Wake for Curious {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0.stats().granted);
    }
}

#[test]
fn who_is_woken_may_ask_back_and_finds_it_done() {
    everywhere(async |world| {
        let tab = world.tab();
        let mut events = tab.leases.events();
        let curious = Arc::new(Curious(tab.leases.clone(), Mutex::default()));
        let waker = Waker::from(curious.clone());
        assert!(events.poll_next_unpin(&mut Context::from_waker(&waker)).is_pending());
        let _guard = tab.leases.lock("k").acquire().await.unwrap();
        assert_eq!(*curious.1.lock().unwrap(), [1]);
    });
}

/// What was told of one guard so far, and whether its release found it gone.
#[derive(Default)]
struct Story(Vec<Kind>, bool);

impl Story {
    /// Granted once, doubts that come and go, one end; and no loss by silence without a doubt before.
    fn add(&mut self, kind: Kind) {
        let before = self.0.last().map(|kind| kind.name());
        let fits = match kind {
            Kind::Granted { .. } => before.is_none(),
            Kind::Suspect { .. } => matches!(before, Some("granted" | "certain")),
            Kind::Certain { .. } => before == Some("suspect"),
            Kind::Lost { reason: LostReason::Expired, .. } if !self.1 => before == Some("suspect"),
            Kind::Lost { .. } | Kind::Released { .. } => matches!(before, Some("granted" | "certain" | "suspect")),
            _ => false,
        };
        assert!(fits, "{kind:?} after {:?}", self.0);
        self.0.push(kind);
    }

    fn has_ended(&self) -> bool {
        matches!(self.0.last(), Some(Kind::Lost { .. } | Kind::Released { .. }))
    }
}

/// Takes turns. The tokens of the leases that were gone although they were given back in time: the store did not hear it.
async fn turns(world: &World, tab: &Tab) -> Vec<Token> {
    let (dice, mut unheard) = (Dice(&world.sim), Vec::new());
    for _ in 0..12 {
        let patience = ms(dice.below(30_000));
        if let Ok(guard) = tab.leases.lock("k").timeout(patience).acquire().await {
            tab.executor.sleep(ms(dice.below(4_000))).await;
            let valid = guard.is_valid();
            // A frozen context first looks at its clocks, and then goes on.
            tab.executor.sleep(ms(u64::from(!valid))).await;
            if guard.release().await == Ok(ReleaseOutcome::Lost) && valid {
                unheard.push(guard.token());
            }
        }
        tab.executor.sleep(ms(dice.below(500))).await;
    }
    unheard
}

async fn trouble(world: &World, tabs: &[Tab]) {
    let dice = Dice(&world.sim);
    for _ in 0..12 {
        let tab = &tabs[dice.index(tabs.len())];
        let pause = ms(dice.below(60_000));
        if dice.one_in(2) {
            tab.executor.freeze();
            world.sim.pass(pause).await;
            tab.executor.thaw();
        } else {
            tab.store.fail_always(Some(Fault::Refuse));
            world.sim.pass(pause).await;
            tab.store.fail_always(None);
        }
        world.sim.pass(ms(dice.below(5_000))).await;
    }
}

#[test]
fn every_guard_is_told_from_its_grant_to_one_end_whatever_happens() {
    let mut counted = BTreeMap::<&str, usize>::new();
    for seed in 0..60 {
        let world = World::new(seed);
        world.run(async {
            let tabs: Vec<Tab> = (0..3).map(|_| world.dark_tab()).collect();
            let mut streams: Vec<LeaseEvents> = tabs.iter().map(|tab| tab.leases.events()).collect();
            let all = join_all(tabs.iter().map(|tab| turns(&world, tab)));
            let (unheard, ()) = futures::join!(all, trouble(&world, &tabs));
            join_all(tabs.iter().map(|tab| tab.leases.close())).await;
            for events in &mut streams {
                let begun = unheard.iter().flatten().map(|token| (*token, Story(Vec::new(), true)));
                let mut stories: BTreeMap<Token, Story> = begun.collect();
                for event in told(events) {
                    *counted.entry(event.kind.name()).or_default() += 1;
                    if let Some(token) = event.kind.token() {
                        stories.entry(token).or_default().add(event.kind);
                    }
                }
                assert!(stories.values().all(|story| story.has_ended() || story.0.is_empty()), "seed {seed}");
            }
        });
    }
    for name in ["waiting", "withdrawn", "granted", "suspect", "certain", "lost", "released"] {
        assert!(counted.get(name).is_some_and(|count| *count > 10), "{name}: {counted:?}");
    }
}

#[test]
fn the_statistics_count_what_the_events_tell() {
    everywhere(async |world| {
        let tab = world.tab().with(|builder| builder.linger(ms(0)));
        let mut events = tab.leases.events();
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        tab.store.fail_always(Some(Fault::Refuse));
        guard.release().await.unwrap_err();
        let kinds: Vec<_> = told(&mut events).iter().map(|event| event.kind.name()).collect();
        let stats = tab.leases.stats();
        assert_eq!((kinds.as_slice(), stats.lost, stats.released), (&["granted", "lost"][..], 1, 0));
    });
}
