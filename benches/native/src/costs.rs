//! What the core costs as its numbers grow: keys that are held, contexts and requests that queue, names that were used.
//! Curves, not points: a cost that grows faster than what it is for shows between two of them. What takes long is counted in
//! the time of this thread's own processor, in which it makes no difference what else the machine does.

use std::slice;

use cpu_time::ThreadTime;
use futures::future::join_all;
use leasehold::machine::{Action, Input, Key, Operation, Record, Row, Turn, TurnId};
use leasehold::{LeaseManager, store::MemoryStore};

use crate::{
    bare_context::{Context, store, turn},
    figures::{Figures, Target, micros, number},
    leases, waiting,
};

pub(crate) async fn measure(figures: &mut Figures) {
    held_keys(figures);
    queued_contexts(figures);
    alone(figures);
    texts(figures);
    fresh_names(figures);
    requests_at_once(figures);
    requests_given_up(figures);
    silent_holder(figures);
    local_waiters(figures).await;
    awaited_keys(figures).await;
    dropped_guards(figures).await;
    crowded_process(figures).await;
    contexts_gone(figures).await;
    waiting::measure(figures).await;
}

/// A heartbeat of one who holds many keys, and what it takes to doubt them all and be certain again.
fn held_keys(figures: &mut Figures) {
    let names = [
        (1, "heartbeat_1_key_us", "heartbeat_1_key_bytes", "doubt_1_key_ms"),
        (1_000, "heartbeat_1000_keys_us", "heartbeat_1000_keys_bytes", "doubt_1000_keys_ms"),
        (16_000, "heartbeat_16000_keys_us", "heartbeat_16000_keys_bytes", "doubt_16000_keys_ms"),
    ];
    let mut first = 0.0;
    for (count, us, bytes, doubt) in names {
        let (mut records, mut holder) = (store(), Context::new(1));
        for id in 0..count {
            holder.acquire(turn(id, &format!("key {id}")));
        }
        holder.run(&mut records);
        let (spent, written) = holder.calm_heartbeat(&mut records, &mut []);
        first = if count == 1 { spent } else { first };
        figures.add(us, spent, Target::AtMost(first * 1.2));
        figures.add(bytes, number(written), Target::AtMost(200.0));
        let start = ThreadTime::now();
        holder.handle(Input::Doubt);
        holder.run(&mut records);
        figures.add(doubt, micros(start.elapsed()) / 1e3, Target::AtMost(20.0));
    }
}

/// A heartbeat of the last of many contexts in one queue.
fn queued_contexts(figures: &mut Figures) {
    let names = [
        (10, "heartbeat_10_queued_us", "heartbeat_10_queued_bytes"),
        (100, "heartbeat_100_queued_us", "heartbeat_100_queued_bytes"),
        (1_000, "heartbeat_1000_queued_us", "heartbeat_1000_queued_bytes"),
    ];
    for (count, us, bytes) in names {
        let mut records = store();
        let mut queue = |number| {
            let mut context = Context::new(number);
            context.acquire(turn(1, "k"));
            context.run(&mut records);
            context
        };
        let mut others: Vec<_> = (1..=count).map(&mut queue).collect();
        let mut last = queue(count + 1);
        let (spent, written) = last.calm_heartbeat(&mut records, &mut others);
        assert_eq!(last.granted, 0, "the others live");
        figures.add(us, spent, Target::AtMost(50.0));
        figures.add(bytes, number(written), Target::AtMost(200.0));
    }
}

/// Requests of one context that have each a place of their own, as those of `leases.locks`.
fn alone(figures: &mut Figures) {
    let names = [
        (100, "lock_requests_100_of_one_name_heartbeat_us"),
        (800, "lock_requests_800_of_one_name_heartbeat_us"),
        (3_200, "lock_requests_3200_of_one_name_heartbeat_us"),
    ];
    for (count, us) in names {
        let (mut records, mut holder, mut waiter) = (store(), Context::new(1), Context::new(2));
        holder.acquire(turn(0, "k"));
        holder.run(&mut records);
        for id in 1..=count {
            waiter.acquire(Turn { alone: true, ..turn(id, "k") });
        }
        waiter.run(&mut records);
        let beat = waiter.calm_heartbeat(&mut records, slice::from_mut(&mut holder));
        let target = if count == 800 { Target::AtMost(1_000.0) } else { Target::None };
        figures.add(us, beat.0, target);
    }
}

/// How long it takes, for each waiter, to read and write the text of a record. Browsers and servers store records as texts.
fn texts(figures: &mut Figures) {
    let names =
        [(1, "text_of_1_waiter_us"), (100, "text_of_100_waiters_each_us"), (10_000, "text_of_10000_waiters_each_us")];
    let mut first = f64::INFINITY;
    for (count, name) in names {
        let (mut records, mut holder, mut waiter) = (store(), Context::new(1), Context::new(2));
        holder.acquire(turn(0, "k"));
        holder.run(&mut records);
        (1..=count).for_each(|id| waiter.acquire(Turn { alone: true, ..turn(id, "k") }));
        waiter.run(&mut records);
        let row = Row::Record(Key::new("k").expect("the name is short"));
        let text = records.text(&row).expect("it is held");
        let rounds = 20_000 / count;
        let start = ThreadTime::now();
        for _ in 0..rounds {
            let record = Record::decode(&text).expect("it was written just now");
            assert_eq!(record.encode().len(), text.len());
        }
        let each = micros(start.elapsed()) / (rounds * count) as f64;
        first = first.min(each);
        figures.add(name, each, Target::AtMost(first * 2.0));
    }
}

/// Requests for many keys that come while the store answers the first: each costs the same, however many wait.
fn requests_at_once(figures: &mut Figures) {
    let names = [
        (100, "requests_100_at_once_each_us"),
        (2_000, "requests_2000_at_once_each_us"),
        (16_000, "requests_16000_at_once_each_us"),
    ];
    let mut first = f64::INFINITY;
    for (count, name) in names {
        let turns: Vec<_> = (0..count).map(|id| turn(id, &format!("key {id}"))).collect();
        let mut context = Context::new(1);
        let start = ThreadTime::now();
        turns.into_iter().for_each(|turn| context.acquire(turn));
        let each = micros(start.elapsed()) / count as f64;
        first = first.min(each);
        figures.add(name, each, Target::AtMost(first * 2.0));
    }
}

/// Requests that are given up while the store answers the first: each costs the same, however many wait.
fn requests_given_up(figures: &mut Figures) {
    let names = [
        (100, "requests_100_given_up_each_us"),
        (2_000, "requests_2000_given_up_each_us"),
        (16_000, "requests_16000_given_up_each_us"),
    ];
    let mut first = f64::INFINITY;
    for (count, name) in names {
        let mut context = Context::new(1);
        let turns: Vec<_> = (0..count).map(|id| turn(id, &format!("key {id}"))).collect();
        turns.iter().for_each(|turn| context.acquire(turn.clone()));
        let start = ThreadTime::now();
        for turn in turns {
            context.handle(Input::Cancel { turn: turn.id, slot: turn.slot() });
        }
        let each = micros(start.elapsed()) / count as f64;
        first = first.min(each);
        figures.add(name, each, Target::AtMost(first * 2.0));
    }
}

/// A context waits for many keys of another one that falls silent. To end it, and to be granted the keys, costs the same for each key.
fn silent_holder(figures: &mut Figures) {
    let names = [
        (100, "silent_holder_of_100_keys_each_us"),
        (1_000, "silent_holder_of_1000_keys_each_us"),
        (10_000, "silent_holder_of_10000_keys_each_us"),
    ];
    let mut first = f64::INFINITY;
    for (count, name) in names {
        let (mut records, mut holder, mut waiter) = (store(), Context::new(1), Context::new(2));
        for context in [&mut holder, &mut waiter] {
            (0..count).for_each(|id| context.acquire(turn(id, &format!("key {id}"))));
            context.run(&mut records);
        }
        let each = loop {
            waiter.ms += 500;
            let start = ThreadTime::now();
            waiter.handle(Input::Tick);
            let is_end = |operation: &Operation| matches!(operation.action, Action::End { .. });
            let ends = waiter.sent.as_ref().is_some_and(|(_, batch)| batch.operations.iter().any(is_end));
            waiter.run(&mut records);
            if ends {
                break micros(start.elapsed()) / count as f64;
            }
        };
        assert_eq!(waiter.granted as u64, count, "all keys were those of the silent holder");
        first = first.min(each);
        figures.add(name, each, Target::AtMost(first * 2.0));
    }
}

/// A service that locks a fresh key for each job.
fn fresh_names(figures: &mut Figures) {
    let (mut records, mut context) = (store(), Context::new(1));
    let (mut first, mut last) = (0.0, 0.0);
    let (rounds, each) = (200, 1_000);
    for round in 0..rounds {
        let start = ThreadTime::now();
        for step in 0..each {
            let id: u64 = round * each + step;
            // No order in the names, as with UUIDs.
            let turn = turn(id, &format!("job {:016x}", id.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            let slot = turn.slot();
            context.acquire(turn);
            context.run(&mut records);
            context.handle(Input::Release { turn: TurnId(id), slot });
            context.run(&mut records);
        }
        let spent = micros(start.elapsed()) / each as f64;
        // Of each end the least of ten: what else the machine did is not ours.
        match round {
            0..10 => first = if round == 0 { spent } else { f64::min(first, spent) },
            190.. => last = if round == 190 { spent } else { f64::min(last, spent) },
            _ => {}
        }
    }
    figures.add("fresh_names_first_1000_turn_us", first, Target::None);
    figures.add("fresh_names_after_200000_turn_us", last, Target::AtMost(first * 1.3));
    figures.add("fresh_names_records_left", number(records.len()), Target::AtMost(300.0));
}

/// Tasks of one context that queue for one key and are served: each costs the same, however many there are.
async fn local_waiters(figures: &mut Figures) {
    let mut first = 0.0;
    for (count, rounds, name) in [
        (1, 20_000, "local_waiters_1_each_us"),
        (100, 200, "local_waiters_100_each_us"),
        (10_000, 2, "local_waiters_10000_each_us"),
        (40_000, 1, "local_waiters_40000_each_us"),
    ] {
        let leases = leases::context(MemoryStore::new());
        let mut spent = 0.0;
        for _ in 0..rounds {
            spent += served_us(&leases, count).await;
        }
        let each = spent / f64::from(count * rounds);
        first = if count == 1 { each } else { first };
        figures.add(name, each, Target::AtMost(first * 2.0));
    }
}

/// How long it takes until this many tasks have queued and were served.
async fn served_us(leases: &LeaseManager, count: u32) -> f64 {
    let guard = leases.lock("k").acquire().await.expect("it is free");
    let mut waiting: Vec<_> = (0..count).map(|_| Box::pin(leases.lock("k").acquire())).collect();
    let start = ThreadTime::now();
    for request in &mut waiting {
        assert!(futures::poll!(request.as_mut()).is_pending(), "the key is held");
    }
    drop(guard);
    for request in waiting {
        drop(request.await.expect("each gets its turn"));
    }
    micros(start.elapsed())
}

/// One context queues for many keys that another one holds: each key costs the same, however many there are.
async fn awaited_keys(figures: &mut Figures) {
    let mut first = 0.0;
    for (count, name) in [
        (100, "awaited_100_keys_each_us"),
        (1_000, "awaited_1000_keys_each_us"),
        (10_000, "awaited_10000_keys_each_us"),
    ] {
        let store = MemoryStore::new();
        let (holder, waiter) = (leases::context(store.clone()), leases::context(store));
        let names: Vec<_> = (0..count).map(|number| format!("key {number}")).collect();
        let guards = join_all(names.iter().map(|name| holder.lock(name).acquire())).await;
        let mut waiting: Vec<_> = names.iter().map(|name| Box::pin(waiter.lock(name).acquire())).collect();
        let start = ThreadTime::now();
        for request in &mut waiting {
            assert!(futures::poll!(request.as_mut()).is_pending(), "the key is held");
        }
        drop(guards);
        for request in waiting {
            drop(request.await.expect("each gets its turn"));
        }
        let each = micros(start.elapsed()) / f64::from(count);
        first = if count == 100 { each } else { first };
        figures.add(name, each, Target::AtMost(first * 2.0));
    }
}

/// Guards of one context that are dropped in the order in which they were granted: each costs the same, however many there are.
async fn dropped_guards(figures: &mut Figures) {
    let mut first = f64::INFINITY;
    for (count, name) in [
        (100, "dropped_100_guards_each_us"),
        (10_000, "dropped_10000_guards_each_us"),
        (100_000, "dropped_100000_guards_each_us"),
    ] {
        let leases = leases::eager(MemoryStore::new());
        let names: Vec<_> = (0..count).map(|number| format!("key {number}")).collect();
        let guards = join_all(names.iter().map(|name| leases.lock(name).acquire())).await;
        let start = ThreadTime::now();
        drop(guards);
        let each = micros(start.elapsed()) / f64::from(count);
        first = first.min(each);
        figures.add(name, each, Target::AtMost(first * 2.0));
    }
}

/// Two contexts hand a lease to and fro, while other contexts of the process hold other keys. The others must cost next to nothing.
async fn crowded_process(figures: &mut Figures) {
    const HAND_OFFS: u32 = 2_000;
    let mut first = 0.0;
    for (count, name) in [
        (1, "handoff_beside_1_context_us"),
        (100, "handoff_beside_100_contexts_us"),
        (10_000, "handoff_beside_10000_contexts_us"),
    ] {
        let store = MemoryStore::new();
        let others: Vec<_> = (0..count).map(|_| leases::eager(store.clone())).collect();
        let names: Vec<_> = (0..count).map(|number| format!("key {number}")).collect();
        let _guards = join_all(others.iter().zip(&names).map(|(leases, name)| leases.lock(name).acquire())).await;
        let pair = [leases::eager(store.clone()), leases::eager(store)];
        let mut guard = pair[0].lock("k").acquire().await.expect("it is free");
        let start = ThreadTime::now();
        for round in 0..HAND_OFFS {
            let mut waiting = Box::pin(pair[if round % 2 == 0 { 1 } else { 0 }].lock("k").acquire());
            assert!(futures::poll!(waiting.as_mut()).is_pending(), "the key is held");
            guard.release().await.expect("a memory store releases");
            guard = waiting.await.expect("it was released");
        }
        let each = micros(start.elapsed()) / f64::from(HAND_OFFS);
        first = if count == 1 { each } else { first };
        figures.add(name, each, Target::AtMost(first * 1.5));
    }
}

/// Contexts of one process that hold a key each, and close: each costs the same, however many there are.
async fn contexts_gone(figures: &mut Figures) {
    let mut first = f64::INFINITY;
    for (count, name) in [
        (100, "contexts_100_gone_each_us"),
        (1_000, "contexts_1000_gone_each_us"),
        (10_000, "contexts_10000_gone_each_us"),
    ] {
        let store = MemoryStore::new();
        let contexts: Vec<_> = (0..count).map(|_| leases::eager(store.clone())).collect();
        let names: Vec<_> = (0..count).map(|number| format!("key {number}")).collect();
        let guards = join_all(contexts.iter().zip(&names).map(|(leases, name)| leases.lock(name).acquire())).await;
        let start = ThreadTime::now();
        drop(guards);
        drop(contexts);
        let each = micros(start.elapsed()) / f64::from(count);
        first = first.min(each);
        figures.add(name, each, Target::AtMost(first * 2.0));
    }
}
