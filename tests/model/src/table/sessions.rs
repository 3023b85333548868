//! The part of the table that is about sessions: how they open, live, end, and are left.

use super::{Size, THREE};
use crate::{
    configuration::Configuration,
    port::Want::{Both, Lock, Read, Second, Steal, Try, Wait},
};

/// The sessions' own worlds.
pub(super) fn configurations(size: Size) -> Vec<Configuration> {
    [abandoned, several_keys, endings, openings, locks, movers, rows, statements, spans]
        .into_iter()
        .flat_map(|some| some(size))
        .collect()
}

/// Contexts that are suspended and delete their sessions blindly.
fn abandoned(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let named = |name| Configuration::new(name).abandoning();
    vec![
        named("gone").hints().queued().budget(pick(2, 3), |left| left.suspends = pick(1, 2)),
        named("gone, and a slow store").budget(pick(0, 3), |left| (left.suspends, left.delays) = (1, 1)),
        named("gone, overtaking").overtaking().queued().budget(pick(1, 4), |left| {
            (left.suspends, left.delays) = (1, 1);
        }),
        named("gone, and a crash").queued().budget(pick(2, 5), |left| (left.suspends, left.crashes) = (1, 1)),
        named("gone, with beacons").beacons().queued().budget(pick(1, 4), |left| {
            (left.suspends, left.delays) = (1, 1);
        }),
        named("gone, an upgrade").wants(&[&[Read], &[Read]]).queued().budget(pick(1, 4), |left| {
            (left.suspends, left.upgrades) = (1, 1);
        }),
        named("gone, both keys").wants(&[&[Both], &[Second]]).budget(pick(1, 3), |left| left.suspends = 1),
        named("gone, and fenced writes").queued().budget(pick(1, 4), |left| (left.suspends, left.writes) = (1, 1)),
        named("gone, one of three").users(THREE).queued().budget(pick(1, 3), |left| left.suspends = 1),
    ]
}

/// Several keys under one session: it lives or dies as one.
fn several_keys(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let one_and_one = |name| Configuration::new(name).wants(&[&[Wait, Second], &[Wait]]);
    let two_and_two = |name| Configuration::new(name).wants(&[&[Wait, Second], &[Second, Wait]]);
    vec![
        one_and_one("two keys and one session").queued().budget(pick(2, 4), |left| left.delays = pick(0, 1)),
        one_and_one("two keys and one session, and a crash").budget(pick(1, 3), |left| left.crashes = 1),
        one_and_one("two keys and one session, and a pause unnoticed")
            .unnoticed()
            .queued()
            .budget(pick(1, 3), |left| left.leaps = 1),
        one_and_one("two keys and one session, and fenced writes")
            .unnoticed()
            .queued()
            .budget(pick(0, 1), |left| (left.leaps, left.writes) = (1, 1)),
        one_and_one("two keys and one session, doubtful").queued().budget(pick(1, 3), |left| left.doubts = 1),
        one_and_one("two keys and one session that is abandoned")
            .abandoning()
            .queued()
            .budget(pick(0, 2), |left| left.suspends = 1),
        one_and_one("an orphan under a living session").budget(pick(0, 1), |left| {
            (left.cancels, left.doubts) = (1, 1);
        }),
        one_and_one("an orphan under a living session, lost").queued().budget(pick(1, 2), |left| {
            (left.cancels, left.losses) = (1, 1);
        }),
        one_and_one("an orphan under a living session, overtaking").overtaking().budget(pick(0, 1), |left| {
            (left.cancels, left.delays) = (1, 1);
        }),
        one_and_one("an orphan under a living session, doubtful and overtaking")
            .overtaking()
            .queued()
            .budget(pick(1, 2), |left| (left.cancels, left.doubts) = (1, 1)),
        one_and_one("an orphan of a request that fails").overtaking().queued().budget(pick(1, 2), |left| {
            (left.losses, left.delays) = (2, 1);
        }),
        Configuration::new("an orphan of an upgrade")
            .wants(&[&[Read, Second], &[Wait]])
            .queued_up_to(1)
            .budget(pick(0, 1), |left| (left.upgrades, left.cancels, left.doubts) = (1, 1, 1)),
        Configuration::new("an orphan of a theft").wants(&[&[Steal, Second], &[Wait]]).budget(pick(0, 1), |left| {
            (left.cancels, left.doubts) = (1, 1);
        }),
        one_and_one("an orphan that was left")
            .queued_up_to(1)
            .budget(pick(0, 1), |left| (left.detaches, left.doubts) = (1, 1)),
        one_and_one("an orphan that lingers").lingering().budget(pick(0, 1), |left| {
            (left.cancels, left.delays) = (1, 1);
        }),
        two_and_two("two keys and two sessions").budget(pick(0, 1), |_| {}),
        Configuration::new("two keys and one session, one is stolen")
            .wants(&[&[Wait, Second], &[Steal]])
            .queued()
            .budget(pick(1, 3), |_| {}),
    ]
}

/// Sessions that end, and what comes late.
fn endings(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let named = Configuration::new;
    let again = |name| Configuration::new(name).users(&[(2, 0), (2, 0)]).idle();
    vec![
        named("a late beat after an end").unnoticed().queued().budget(pick(1, 3), |left| {
            (left.leaps, left.delays) = (1, pick(1, 2));
        }),
        named("a late beat after an end, overtaking").unnoticed().overtaking().queued().budget(pick(1, 3), |left| {
            (left.leaps, left.delays) = (1, pick(1, 2));
        }),
        named("a late beat after an end, doubtful").unnoticed().queued().budget(pick(1, 3), |left| {
            (left.leaps, left.doubts) = (1, 1);
        }),
        named("a late beat after an end, lost answers").unnoticed().queued().budget(pick(1, 3), |left| {
            (left.leaps, left.losses) = (1, 1);
        }),
        named("a theft from the silent")
            .wants(&[&[Wait], &[Wait], &[Steal]])
            .unnoticed()
            .queued_up_to(2)
            .budget(pick(0, 1), |left| left.leaps = 1),
        named("a theft from the dead").wants(&[&[Wait], &[Steal, Wait]]).budget(pick(2, 4), |left| left.crashes = 1),
        named("readers that vanish")
            .wants(&[&[Read], &[Read], &[Wait]])
            .queued()
            .budget(pick(2, 4), |left| left.crashes = 2),
        named("readers that pause unnoticed")
            .wants(&[&[Read], &[Read], &[Wait]])
            .unnoticed()
            .queued()
            .budget(pick(0, 2), |left| left.leaps = 1),
        named("three readers").wants(&[&[Read], &[Read], &[Read]]).budget(pick(0, 1), |_| {}),
        again("idle").budget(pick(1, 4), |left| left.delays = pick(0, 1)),
        again("idle, doubtful").budget(pick(1, 2), |left| left.doubts = 1),
        again("idle, lost answers").budget(pick(1, 2), |left| left.losses = 1),
        again("idle, overtaking").overtaking().budget(pick(1, 2), |left| left.delays = pick(0, 1)),
        again("idle, with beacons").beacons().budget(pick(1, 2), |left| left.delays = pick(0, 1)),
        named("a beacon falls").beacons().queued().budget(pick(2, 4), |left| (left.falls, left.delays) = (1, 1)),
        named("a beacon falls, two keys")
            .wants(&[&[Wait, Second], &[Wait]])
            .beacons()
            .queued()
            .budget(pick(1, 4), |left| left.falls = 1),
        named("a beacon falls, two keys, and a slow store")
            .wants(&[&[Wait, Second], &[Wait]])
            .beacons()
            .queued()
            .budget(pick(1, 2), |left| (left.falls, left.delays) = (1, 1)),
        named("a beacon falls, doubtful").beacons().queued().budget(pick(1, 4), |left| {
            (left.falls, left.doubts) = (1, 1);
        }),
        named("wiped").unbelieving().queued().budget(pick(2, 4), |left| left.wipes = pick(1, 2)),
        named("wiped, and a slow store").unbelieving().budget(pick(1, 3), |left| (left.wipes, left.delays) = (1, 1)),
        named("wiped, and fenced writes").unbelieving().queued().budget(pick(1, 3), |left| {
            (left.wipes, left.writes) = (1, pick(1, 2));
        }),
    ]
}

/// Openings whose outcome nobody knows.
fn openings(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let named = Configuration::new;
    vec![
        named("an unknown opening").budget(pick(1, 3), |left| left.doubts = 2),
        named("an unknown opening, lost").budget(pick(1, 3), |left| left.losses = pick(1, 2)),
        named("an unknown opening, overtaking").overtaking().budget(pick(1, 3), |left| left.doubts = pick(1, 2)),
        named("an unknown opening, slow and overtaking").overtaking().budget(pick(1, 3), |left| {
            (left.losses, left.delays) = (1, 1);
        }),
        named("an unknown opening, with beacons").beacons().budget(pick(1, 3), |left| left.doubts = 1),
        named("an unknown opening, and a crash").budget(pick(1, 4), |left| (left.doubts, left.crashes) = (1, 1)),
        named("an unknown opening, cancelled").budget(pick(1, 3), |left| (left.doubts, left.cancels) = (1, 1)),
        named("an unknown opening, abandoned").abandoning().budget(pick(0, 2), |left| {
            (left.doubts, left.suspends) = (1, 1);
        }),
        named("an unknown opening, of a thief").wants(&[&[Wait], &[Steal]]).budget(pick(1, 3), |left| left.doubts = 1),
        named("an unknown opening, tried").wants(&[&[Wait], &[Try, Wait]]).budget(pick(1, 3), |left| left.doubts = 1),
    ]
}

/// Locks: their records go when nobody uses them, and a lock in doubt is lost.
fn locks(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let two = |name| Configuration::new(name).wants(&[&[Lock], &[Lock]]);
    vec![
        two("two locks").budget(pick(3, 6), |left| left.delays = pick(0, 1)),
        two("two locks, and a crash").budget(pick(2, 5), |left| left.crashes = 1),
        two("two locks, doubtful").budget(pick(2, 4), |left| left.doubts = 1),
        two("two locks, and a pause unnoticed").unnoticed().queued().budget(pick(1, 4), |left| left.leaps = 1),
        two("two locks, overtaking").overtaking().budget(pick(1, 3), |left| left.delays = pick(1, 2)),
        Configuration::new("a lock and a key")
            .wants(&[&[Lock, Wait], &[Lock]])
            .queued()
            .budget(pick(1, 3), |left| left.writes = 1),
    ]
}

/// Leases that go from one guard to another.
fn movers(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let named = |name| Configuration::new(name).queued();
    vec![
        named("left").budget(pick(1, 3), |left| (left.detaches, left.delays) = (1, pick(0, 1))),
        named("left, and a pause unnoticed")
            .unnoticed()
            .budget(pick(1, 3), |left| (left.detaches, left.leaps) = (1, 1)),
        named("left, doubtful").budget(pick(1, 2), |left| (left.detaches, left.doubts) = (1, 1)),
        named("left, overtaking").overtaking().budget(pick(1, 3), |left| (left.detaches, left.delays) = (1, 1)),
        named("left, and a crash").budget(pick(1, 3), |left| (left.detaches, left.crashes) = (1, 1)),
        named("left, and fenced writes").budget(pick(1, 3), |left| (left.detaches, left.writes) = (1, pick(1, 2))),
        named("left, and abandoned").abandoning().budget(pick(1, 3), |left| (left.detaches, left.suspends) = (1, 1)),
        named("left, twice").budget(pick(1, 2), |left| left.detaches = 2),
        named("left, and a thief")
            .wants(&[&[Wait], &[Steal]])
            .queued_up_to(1)
            .budget(pick(1, 2), |left| left.detaches = 1),
    ]
}

/// Stores that read rows one by one.
fn rows(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let named = |name| Configuration::new(name).by_rows();
    vec![
        named("rows").budget(pick(2, 4), |left| left.delays = pick(0, 1)),
        named("rows, and a crash").queued().budget(pick(2, 5), |left| left.crashes = 1),
        named("rows, three and a crash").users(THREE).queued().budget(pick(2, 4), |left| left.crashes = 1),
        named("rows, and a thief").wants(&[&[Wait], &[Steal]]).budget(pick(1, 3), |_| {}),
        named("rows, readers and a crash")
            .wants(&[&[Read], &[Read], &[Wait]])
            .queued()
            .budget(pick(1, 3), |left| left.crashes = 1),
        named("rows, both keys").wants(&[&[Both], &[Second]]).budget(pick(1, 3), |left| left.crashes = 1),
        named("rows, two keys and one session").wants(&[&[Wait, Second], &[Wait]]).queued().budget(pick(1, 3), |_| {}),
        named("rows, locks").wants(&[&[Lock], &[Lock]]).budget(pick(2, 4), |_| {}),
        named("rows, abandoned").abandoning().queued().budget(pick(1, 3), |left| left.suspends = 1),
        named("rows, an upgrade").wants(&[&[Read], &[Read]]).queued().budget(pick(1, 3), |left| left.upgrades = 1),
        named("rows, left").queued().budget(pick(0, 2), |left| left.detaches = 1),
        named("rows, doubtful").overtaking().budget(pick(1, 3), |left| left.doubts = 1),
        named("rows, wiped").unbelieving().queued().budget(pick(1, 3), |left| left.wipes = 1),
    ]
}

/// Stores whose transactions are several statements, as in SQL.
fn statements(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let named = |name| Configuration::new(name).by_statements();
    vec![
        named("statements").budget(pick(3, 5), |left| left.delays = pick(0, 2)),
        named("statements, and a crash")
            .queued()
            .budget(pick(3, 5), |left| (left.crashes, left.delays) = (1, pick(0, 2))),
        named("statements, and a pause unnoticed")
            .unnoticed()
            .queued()
            .budget(pick(2, 4), |left| left.leaps = pick(1, 2)),
        named("statements, and beacons").beacons().queued().budget(pick(2, 5), |left| {
            (left.crashes, left.delays) = (1, pick(0, 1));
        }),
        named("statements, overtaking").overtaking().budget(pick(2, 4), |left| left.delays = pick(1, 2)),
        named("statements, doubtful").overtaking().queued().budget(pick(2, 5), |left| {
            (left.doubts, left.delays) = (1, pick(0, 1));
        }),
        named("statements, three and a crash").users(THREE).queued().budget(pick(2, 4), |left| {
            (left.crashes, left.delays) = (1, pick(0, 1));
        }),
        named("statements, and a thief")
            .wants(&[&[Wait], &[Steal]])
            .budget(pick(2, 4), |left| left.delays = pick(0, 1)),
        named("statements, two thieves")
            .wants(&[&[Steal], &[Steal]])
            .budget(pick(2, 4), |left| left.delays = pick(0, 1)),
        named("statements, readers and a crash")
            .wants(&[&[Read], &[Read], &[Wait]])
            .queued()
            .budget(pick(1, 3), |left| (left.crashes, left.delays) = (1, pick(0, 1))),
        named("statements, an upgrade")
            .wants(&[&[Read], &[Read]])
            .queued()
            .budget(pick(2, 4), |left| (left.upgrades, left.delays) = (1, pick(0, 1))),
        named("statements, both keys").wants(&[&[Both], &[Second]]).budget(pick(1, 3), |left| left.crashes = 1),
        named("statements, two keys and one session")
            .wants(&[&[Wait, Second], &[Wait]])
            .queued()
            .budget(pick(1, 4), |_| {}),
        named("statements, locks").wants(&[&[Lock], &[Lock]]).budget(pick(2, 5), |left| left.delays = pick(0, 1)),
        named("statements, abandoned").abandoning().queued().budget(pick(2, 4), |left| {
            (left.suspends, left.delays) = (1, pick(0, 1));
        }),
        named("statements, idle").idle().budget(pick(2, 4), |left| left.delays = 1),
        named("statements, left").queued().budget(pick(1, 3), |left| (left.detaches, left.delays) = (1, pick(0, 1))),
        named("statements, and fenced writes").queued().budget(pick(2, 4), |left| (left.writes, left.crashes) = (1, 1)),
    ]
}

/// Sessions that are longer for a while, and contexts that are closed.
fn spans(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let named = |name| Configuration::new(name).queued();
    vec![
        named("longer").budget(pick(2, 5), |left| (left.extends, left.delays) = (1, pick(0, 1))),
        named("longer, and a crash").budget(pick(1, 4), |left| (left.extends, left.crashes) = (1, 1)),
        named("longer, and a pause unnoticed")
            .unnoticed()
            .budget(pick(1, 3), |left| (left.extends, left.leaps) = (1, 1)),
        named("longer, overtaking").overtaking().budget(pick(1, 4), |left| {
            (left.extends, left.delays) = (1, pick(1, 2));
        }),
        named("longer, doubtful").budget(pick(1, 4), |left| (left.extends, left.doubts) = (1, 1)),
        named("longer, two keys and one session")
            .wants(&[&[Wait, Second], &[Wait]])
            .budget(pick(0, 2), |left| left.extends = 1),
        named("closed").budget(pick(2, 5), |left| (left.closes, left.delays) = (1, pick(0, 1))),
        named("closed, doubtful").budget(pick(1, 3), |left| (left.closes, left.doubts) = (1, 1)),
        named("closed, lost answers").budget(pick(1, 3), |left| (left.closes, left.losses) = (1, 1)),
        named("closed, overtaking").overtaking().budget(pick(1, 3), |left| (left.closes, left.delays) = (1, 1)),
        named("closed, with beacons").beacons().budget(pick(1, 4), |left| left.closes = pick(1, 2)),
        Configuration::new("closed, readers").wants(&[&[Read], &[Read], &[Wait]]).queued().budget(pick(1, 3), |left| {
            left.closes = 1;
        }),
    ]
}
