//! Turns are fair between contexts: X13, and what a context may do among its own.

use std::cell::{Cell, RefCell};

use futures::future::{FutureExt, join_all};

use crate::support::world::{Dice, LEASE, World, everywhere, ms};

/// X13: k holders × n turns, hand-offs ≥ (kn − 1) · 0.9.
#[test]
fn x13_contexts_take_turns() {
    everywhere(async |world| {
        let tabs: Vec<_> = (0..10).map(|_| world.tab()).collect();
        let order = RefCell::new(Vec::new());
        let turns = tabs.iter().enumerate().map(|(number, tab)| {
            let order = &order;
            async move {
                for _ in 0..10 {
                    let guard = tab.leases.lock("k").acquire().await.unwrap();
                    order.borrow_mut().push((number, guard.token()));
                    world.sim.pass(ms(5)).await;
                    guard.release().await.unwrap();
                }
            }
        });
        join_all(turns).await;
        let order = order.into_inner();
        assert!(order.windows(2).all(|pair| pair[0].1 < pair[1].1), "tokens grow from turn to turn");
        let handoffs = order.windows(2).filter(|pair| pair[0].0 != pair[1].0).count();
        assert!(handoffs >= 90, "{handoffs} of 99");
    });
}

/// Without the queue's signals turns still change, at the latest at the next heartbeat.
#[test]
fn hand_over_takes_no_longer_than_a_transaction() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let started = Cell::new(false);
        let held = one.leases.lock("k").acquire().await.unwrap();
        let wait = async {
            let _guard = two.leases.lock("k").acquire().await.unwrap();
            assert!(started.get());
        };
        let release = async {
            world.sim.pass(ms(40)).await;
            started.set(true);
            held.release().await.unwrap();
        };
        let handed_over = async { futures::join!(wait, release) };
        assert!(world.within(ms(41), handed_over).await.is_some(), "no poll, no timer: a signal");
    });
}

/// Many local turns share one place; they do not starve another context for longer than one tenure.
#[test]
fn local_turns_cost_no_transaction_and_end_with_the_tenure() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let warm = one.leases.lock("k").acquire().await.unwrap();
        let local_turns = Cell::new(0);
        let locals = (0..40).map(|_| {
            let (leases, turns) = (&one.leases, &local_turns);
            async move {
                let guard = leases.lock("k").acquire().await.unwrap();
                turns.set(turns.get() + 1);
                world.sim.pass(ms(1)).await;
                guard.release().await.unwrap();
            }
        });
        let rival = async {
            world.sim.pass(ms(2)).await;
            one.store.take_seen();
            let wait = two.leases.lock("k").acquire();
            let release = async {
                world.sim.pass(ms(1)).await;
                warm.release().await.unwrap();
            };
            let (guard, ()) = futures::join!(wait, release);
            guard.unwrap().release().await.unwrap();
            assert!(local_turns.get() <= 33, "the rival waited for {} local turns", local_turns.get());
            let seen = one.store.take_seen().len();
            assert!(seen <= 3, "{seen} transactions for {} local turns", local_turns.get());
        };
        futures::join!(join_all(locals), rival);
        assert_eq!(local_turns.get(), 40);
    });
}

/// X14: a key that is held but idle costs one transaction a heartbeat, a key that is not held costs nothing.
#[test]
fn x14_an_idle_context_has_no_task_and_no_timer() {
    let world = World::new(3);
    world.run(async {
        let tab = world.tab();
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        guard.release().await.unwrap();
        world.sim.pass(LEASE).await;
        assert_eq!((world.sim.timers(), world.sim.tasks()), (0, 0));
        tab.store.take_seen();
        world.sim.pass(LEASE * 100).await;
        assert!(tab.store.take_seen().is_empty());
    });
}

/// A question that ends before older ones leaves its place empty. The driver closes the gaps once most places are empty.
#[test]
fn requests_that_are_given_up_in_no_order_leave_the_others_in_theirs() {
    everywhere(async |world| {
        let (tab, dice) = (world.tab(), Dice(&world.sim));
        let held = tab.leases.lock("k").acquire().await.unwrap();
        let mut waiting: Vec<_> = (0..300).map(|number| (number, Box::pin(tab.leases.lock("k").acquire()))).collect();
        waiting.iter_mut().for_each(|(_, request)| assert!(request.now_or_never().is_none()));
        while waiting.len() > 20 {
            drop(waiting.remove(dice.index(waiting.len())));
        }
        drop(held);
        let served = waiting.into_iter().rev().map(async |(number, request)| (request.await.unwrap().token(), number));
        let mut order = join_all(served).await;
        order.sort_unstable();
        assert!(order.is_sorted_by_key(|(_, number)| *number), "{order:?}");
        assert_eq!(order.len(), 20);
    });
}
