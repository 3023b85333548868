//! A store that others keep busy. A request without a time limit fails after a lease, whether it asks for one key or for several.

use alloc::{vec, vec::Vec};

use super::{LEASE_MS, ME, OTHER, STORE, Script, events, granted, looked, named, said, served::Served};
use crate::machine::{
    Body, Config, Event, Input, Machine, Message, Mode, Options, Outcome, Output, RequestId, StoreError, Turn, TurnId,
};

/// Keeps the store busy for this long. Returns which requests failed, and when.
fn busy_for(script: &mut Script, span_ms: u64) -> Vec<(u64, TurnId)> {
    let (mut at, mut failed) = (0, Vec::new());
    while at < span_ms {
        let outputs = if script.is_sent() {
            let id = script.sent().0;
            script.result(id, Err(StoreError::busy("others keep it")))
        } else {
            at += 50;
            script.tick(50).to_vec()
        };
        let told = events(&outputs).into_iter().filter_map(|event| match event {
            Event::Failed { turn, .. } => Some((at, turn)),
            _ => None,
        });
        failed.extend(told);
    }
    failed
}

#[test]
fn a_request_for_one_key_fails_after_a_lease() {
    let mut script = Script::new();
    script.ask_for(Turn::new(TurnId(1), script.key.clone()));
    let failed = busy_for(&mut script, 2 * LEASE_MS);
    assert!(matches!(failed[..], [(LEASE_MS.., TurnId(1))]), "{failed:?}");
}

#[test]
fn a_request_for_several_keys_fails_after_a_lease_too() {
    let mut script = Script::new();
    let turns = vec![(1, "a"), (2, "b")].into_iter();
    let turns = turns.map(|(id, name)| Turn { alone: true, ..Turn::new(TurnId(id), named(name)) });
    script.input(Input::AcquireAll(turns.collect()));
    let failed = busy_for(&mut script, 2 * LEASE_MS);
    assert!(matches!(failed[..], [(LEASE_MS.., TurnId(1)), (LEASE_MS.., TurnId(2))]), "{failed:?}");
}

#[test]
fn a_try_for_several_keys_fails_soon() {
    let mut script = Script::new();
    let turns = vec![(1, "a"), (2, "b")].into_iter();
    let turns = turns.map(|(id, name)| Turn { alone: true, wait: false, ..Turn::new(TurnId(id), named(name)) });
    script.input(Input::AcquireAll(turns.collect()));
    let failed = busy_for(&mut script, LEASE_MS);
    assert!(matches!(failed[..], [(..1_000, TurnId(1)), (..1_000, TurnId(2))]), "{failed:?}");
}

/// A page asked for a lease and then ran a long task: the store answered meanwhile, but the page could not read the answer.
#[test]
fn a_context_that_stood_still_for_a_lease_asks_again_before_it_tells_that_the_store_is_silent() {
    let mut script = Script::holding();
    script.ask_for(Turn::new(TurnId(2), named("other")));
    assert!(script.is_sent());
    let told = events(script.tick(2 * LEASE_MS));
    assert!(told.iter().all(|event| !matches!(event, Event::Failed { .. })), "{told:?}");
    script.until_sent();
    let mut granted_to_it = false;
    for _ in 0..5 {
        let outcomes: Vec<_> = script.actions().iter().map(|_| granted(128)).collect();
        let told = script.answer(outcomes);
        granted_to_it |= events(told).iter().any(|event| matches!(event, Event::Granted { turn: TurnId(2), .. }));
        if granted_to_it {
            break;
        }
        script.until_sent();
    }
    assert!(granted_to_it, "it was not granted after all");
}

#[test]
fn whoever_waits_behind_a_guard_of_its_own_context_is_told_after_a_lease() {
    let mut script = Script::holding();
    script.acquire(2, true);
    let silent_ms = (0..2 * LEASE_MS).step_by(50).find(|_| {
        let told = events(script.tick(50));
        told.iter().any(|event| matches!(event, Event::Failed { turn: TurnId(2), .. }))
    });
    assert!(silent_ms.is_some_and(|ms| ms <= LEASE_MS + 5_000), "{silent_ms:?}");
}

/// Request 2 waits for a guard of its own context.
fn behind_own_guard() -> Script {
    let mut script = Script::holding();
    script.acquire(2, true);
    script
}

/// Request 2 waits for another context, whose record has given out tokens up to this one.
fn in_queue(last_token: u64) -> Script {
    let mut script = Script::new();
    script.queue(2, last_token);
    script
}

/// In a hidden page each timer comes a minute late, as if the page had been frozen every time.
#[test]
fn whoever_waits_where_every_timer_is_late_is_told_of_a_silent_store_too() {
    for mut script in [behind_own_guard(), in_queue(100)] {
        let told = (0..10).any(|_| {
            let told = events(script.tick(60_000));
            told.iter().any(|event| matches!(event, Event::Failed { turn: TurnId(2), .. }))
        });
        assert!(told, "ten minutes have passed");
    }
}

/// A laptop wakes up before its network does. A browser that clears a site's data ends the connection, and fails the next one.
#[test]
fn one_error_after_a_freeze_or_a_lost_connection_ends_no_wait() {
    let frozen = |script: &mut Script| _ = script.tick(600_000);
    let cut = |script: &mut Script| _ = script.input(Input::Doubt);
    for (what, mut script, doubted) in [
        ("own guard, frozen", behind_own_guard(), &frozen as &dyn Fn(&mut Script)),
        ("queue, frozen", in_queue(64), &frozen),
        ("own guard, cut", behind_own_guard(), &cut),
    ] {
        doubted(&mut script);
        let errors = (1..10).find(|_| {
            script.until_sent();
            script.now_ms += 1;
            script.refuse();
            let is_told = |output: &Output| matches!(output, Output::Event(Event::Failed { turn: TurnId(2), .. }));
            script.outputs.iter().any(is_told)
        });
        assert!(errors.is_some_and(|errors| errors >= 3), "{what}: {errors:?}");
    }
}

/// The network goes away before the laptop sleeps, and comes back after the laptop has woken up.
#[test]
fn errors_from_before_a_freeze_do_not_count_after_it() {
    let unheard = || {
        let mut script = Script::new();
        script.acquire(2, true);
        script
    };
    let several = || {
        let mut script = Script::new();
        let turn = |number, key| Turn { alone: true, ..Turn::new(TurnId(number), named(key)) };
        script.input(Input::AcquireAll(vec![turn(2, "a"), turn(3, "b")]));
        script
    };
    for (what, mut script) in
        [("own guard", behind_own_guard()), ("queue", in_queue(64)), ("unheard", unheard()), ("several", several())]
    {
        let fails = |script: &mut Script| {
            script.until_sent();
            script.now_ms += 1;
            let busy = Err(StoreError::busy("locked by others"));
            script.input(Input::Reply { id: script.sent().0, result: busy });
            let is_told = |output: &Output| matches!(output, Output::Event(Event::Failed { turn: TurnId(2), .. }));
            script.outputs.iter().any(is_told)
        };
        for _ in 0..3 {
            assert!(!fails(&mut script), "{what}: a lease has not passed");
        }
        script.tick(600_000);
        let errors = (1..10).find(|_| fails(&mut script));
        assert!(errors.is_some_and(|errors| errors >= 3), "{what}: {errors:?}");
    }
}

impl Served {
    /// Its second request shares the key only once the writer that queues has gone.
    fn behind_a_writer() -> Self {
        let (mut served, mut writer) = (Self::new(), Script::new());
        writer.machine = Machine::new(Config::parse(&Options::default()).unwrap(), OTHER);
        let share = |turn| Turn { mode: Mode::Shared, ..Turn::new(TurnId(turn), named("k")) };
        served.ask(share(1));
        served.serve();
        writer.acquire(1, true);
        writer.input(Input::BeaconStands(OTHER));
        served.apply(&writer.sent().1);
        let body = Body::Wanted { holder: ME, by: OTHER, tries: false };
        served.input(Input::Message(Message { store: STORE, key: named("k"), body }));
        // Now the first may hand the lease on no longer.
        served.pass(100);
        served.ask(share(2));
        served.serve();
        served
    }
}

/// A heartbeat comes meanwhile. Its query whether the writer still queues waits for the store, too.
#[test]
fn a_reader_is_granted_as_soon_as_a_busy_store_has_ended_a_dead_writer() {
    for waits_ms in [0, 2_000] {
        let mut served = Served::behind_a_writer();
        served.pass(8_500);
        served.ask(Turn::new(TurnId(3), named("another")));
        let (id, batch) = served.script.sent();
        (0..waits_ms / 10).for_each(|_| _ = served.script.tick(10));
        served.input(Input::BeaconGone { watch: 1 });
        assert!(!served.is_granted(2), "the writer still queues");
        let reply = served.apply(&batch);
        served.input(Input::Reply { id, result: Ok(reply) });
        served.serve();
        assert!(served.is_granted(2), "the store was busy for {waits_ms} ms");
    }
}

impl Script {
    /// Passes this time, in which looks are answered with the place of this request.
    fn look_on(&mut self, request: RequestId, span_ms: u64) {
        for _ in 0..span_ms / 10 {
            self.tick(10);
            if self.is_sent() {
                let looks: Vec<_> = self.actions().iter().map(|_| looked(request, 64, self.now_ms)).collect();
                self.answer(looks);
            }
        }
    }

    /// Which requests fail within two leases, while the store says after this time of each transaction with the key that it is locked.
    fn fail_at_locked_key(&mut self, waits_ms: u64) -> Vec<TurnId> {
        let (mut failed, until) = (Vec::new(), self.now_ms + 2 * LEASE_MS);
        while self.now_ms < until {
            let outputs = if self.is_sent() {
                let (id, batch) = self.sent();
                let result = if batch.keys().contains(&self.key) {
                    self.now_ms += waits_ms;
                    Err(StoreError::locked("kept locked"))
                } else {
                    Ok(said(batch.operations.iter().map(|_| Outcome::Withdrawn)))
                };
                self.result(id, result)
            } else {
                self.tick(10).to_vec()
            };
            failed.extend(events(&outputs).into_iter().filter_map(|event| match event {
                Event::Failed { turn, .. } => Some(turn),
                _ => None,
            }));
        }
        failed.sort_unstable();
        failed
    }
}

/// Another request of its context has a place at the locked key, so that looks at that key fail, too.
#[test]
fn a_request_for_several_keys_fails_at_all_of_them_however_long_one_stays_locked() {
    for waits_ms in [0, 40, 500] {
        for later_ms in (0..10_000).step_by(200) {
            let mut script = Script::new();
            let request = script.queue(1, 64);
            script.look_on(request, later_ms);
            let turns = [(2, "a"), (3, "k"), (4, "z")].into_iter();
            let turns = turns.map(|(id, name)| Turn { alone: true, ..Turn::new(TurnId(id), named(name)) });
            script.input(Input::AcquireAll(turns.collect()));
            let failed = script.fail_at_locked_key(waits_ms);
            assert_eq!(failed, [1, 2, 3, 4].map(TurnId), "asked after {later_ms} ms, told after {waits_ms} ms");
        }
    }
}

impl Script {
    /// Which requests fail within two leases, while the store says a second after each transaction with the key that it is locked, and
    /// takes all others. Each half second another context may say that the session of this one has ended.
    fn fail_while_told_of_its_end(&mut self, is_told: bool) -> Vec<TurnId> {
        let (mut failed, mut under_way) = (Vec::new(), None);
        for at in (self.now_ms..self.now_ms + 2 * LEASE_MS).step_by(10) {
            self.now_ms = at;
            let outputs = match under_way.take_if(|(_, answered_at)| *answered_at <= at) {
                Some((id, _)) => self.result(id, Err(StoreError::locked("kept locked"))),
                None if is_told && at % 500 == 0 => self.signal(Body::Ended { holder: ME }).to_vec(),
                None => self.tick(0).to_vec(),
            };
            failed.extend(events(&outputs).into_iter().filter_map(|event| match event {
                Event::Failed { turn, .. } => Some(turn),
                _ => None,
            }));
            while self.is_sent() {
                let (id, batch) = self.sent();
                if batch.keys().contains(&self.key) {
                    under_way = Some((id, at + 1_000));
                    break;
                }
                self.result(id, Ok(said(batch.operations.iter().map(|_| Outcome::Withdrawn))));
            }
        }
        failed
    }
}

/// The store says otherwise, at each heartbeat.
#[test]
fn whoever_is_told_of_its_end_all_the_time_hears_of_a_locked_key_as_soon_as_anybody() {
    for is_told in [false, true] {
        let mut script = Script::new();
        script.ask_for(Turn::new(TurnId(1), named("other")));
        script.answer([granted(64)]);
        script.acquire(2, true);
        assert_eq!(script.fail_while_told_of_its_end(is_told), [TurnId(2)], "told: {is_told}");
    }
}
