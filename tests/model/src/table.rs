//! The table: which worlds are searched, and how far.

pub mod given_up;
mod sessions;

use crate::{
    budget::Budget,
    configuration::{Configuration, Flaw},
    port::Want::{Both, Read, Second, Steal, Try, TryRead, Wait},
};

/// How far to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// As a test: in a minute.
    Test,
    /// In full.
    Full,
}

/// Three contexts that want one turn each.
const THREE: &[(u8, u8)] = &[(1, 0), (1, 0), (1, 0)];
/// One context with two users, and one with one.
const PAIR_AND_ONE: &[(u8, u8)] = &[(2, 0), (1, 0)];

/// All configurations. Steps of time are the measure of size; each has those of a test and those in full.
pub fn configurations(size: Size) -> Vec<Configuration> {
    let mut all = patient(size);
    all.extend(given_up::all(size));
    all
}

/// All but those in which a user gives up a request while the store refuses a transaction.
pub fn patient(size: Size) -> Vec<Configuration> {
    let mut all = faults(size);
    all.extend(beacons(size));
    all.extend(clocks(size));
    all.extend(crowds(size));
    all.extend(readers(size));
    all.extend(thieves(size));
    all.extend(lingerers(size));
    all.extend(pairs(size));
    all.extend(crossings(size));
    all.extend(sessions::configurations(size));
    all
}

/// What goes wrong on the way to the store and back.
fn faults(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let named = Configuration::new;
    vec![
        named("turns").budget(pick(4, 9), |_| {}),
        named("pauses").budget(pick(3, 5), |left| left.delays = pick(1, 2)),
        named("pauses, queued").queued().budget(pick(4, 6), |left| left.delays = pick(2, 3)),
        named("lost answers").budget(pick(2, 4), |left| (left.losses, left.delays) = (1, 1)),
        named("lost answers, queued").queued().budget(pick(4, 5), |left| (left.losses, left.delays) = (1, 1)),
        named("doubtful answers").budget(pick(3, 5), |left| left.doubts = 1),
        named("doubtful answers, queued").queued().budget(pick(4, 6), |left| left.doubts = pick(1, 2)),
        named("refusals").budget(pick(3, 5), |left| left.refusals = pick(1, 2)),
        named("overtaking").overtaking().budget(pick(2, 3), |left| left.delays = 2),
        named("overtaking, doubtful")
            .overtaking()
            .queued()
            .budget(pick(3, 4), |left| (left.doubts, left.delays) = (1, 1)),
        named("crash").budget(pick(5, 8), |left| left.crashes = 1),
        named("crash and pauses, queued")
            .queued()
            .budget(pick(4, 6), |left| (left.crashes, left.delays) = (1, pick(1, 2))),
        named("doubled signals").queued().budget(pick(3, 5), |left| (left.doubles, left.delays) = (pick(1, 2), 1)),
    ]
}

/// Proof of death.
fn beacons(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let named = |name| Configuration::new(name).beacons();
    vec![
        named("beacons and a crash").budget(pick(1, 3), |left| (left.crashes, left.delays) = (1, pick(0, 1))),
        named("beacons and a crash, queued").queued().budget(pick(3, 5), |left| (left.crashes, left.delays) = (1, 2)),
        named("beacons and pauses, queued").queued().budget(pick(3, 5), |left| left.delays = pick(1, 2)),
        named("beacons and a long pause, queued").queued().budget(pick(2, 3), |left| left.leaps = 1),
        named("three beacons and a crash").users(THREE).queued().budget(pick(1, 2), |left| left.crashes = pick(1, 2)),
    ]
}

/// Clocks that stand still, jump, or are trusted.
fn clocks(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let named = Configuration::new;
    let write = |left: &mut Budget| (left.writes, left.leaps) = (1, 1);
    vec![
        named("sleep").budget(pick(3, 5), |left| left.sleeps = 1),
        named("sleep, queued").queued().budget(pick(4, 6), |left| left.sleeps = pick(1, 2)),
        named("wall clocks jump").budget(pick(2, 5), |left| left.jumps = 1),
        named("wall clocks jump, queued").queued().budget(pick(3, 4), |left| left.jumps = 2),
        named("wall clocks jump, queued, and a slow store")
            .queued()
            .budget(pick(2, 4), |left| (left.jumps, left.delays) = (1, 1)),
        named("long pauses").budget(pick(2, 4), |left| left.leaps = 1),
        named("long pauses, queued").queued().budget(pick(3, 5), |left| left.leaps = pick(1, 2)),
        named("pauses unnoticed").unnoticed().budget(pick(1, 4), |left| left.leaps = 1),
        named("pauses unnoticed, queued").unnoticed().queued().budget(pick(2, 5), |left| left.leaps = pick(1, 2)),
        named("fenced writes").budget(pick(1, 2), |left| left.writes = pick(1, 2)),
        named("fenced writes, queued").queued().budget(pick(2, 4), write),
        named("fenced writes, two users").users(PAIR_AND_ONE).queued_up_to(1).budget(pick(1, 2), |left| {
            left.writes = pick(1, 2);
        }),
        named("fenced writes, two users, doubtful").users(PAIR_AND_ONE).queued_up_to(1).budget(pick(1, 2), |left| {
            (left.writes, left.doubts) = (1, 1);
        }),
        named("fenced writes, lingering").lingering().users(PAIR_AND_ONE).queued_up_to(1).budget(pick(1, 2), |left| {
            left.writes = pick(1, 2);
        }),
        named("trusted clock").trusted().budget(pick(3, 5), |left| left.delays = pick(1, 2)),
        named("trusted clock, crash and pauses").trusted().queued().budget(pick(4, 6), |left| {
            (left.crashes, left.delays) = (1, pick(1, 2));
        }),
        named("trusted clock, fenced writes").trusted().queued().budget(pick(2, 4), write),
    ]
}

/// More users than one, and more contexts than two.
fn crowds(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let named = Configuration::new;
    vec![
        named("two users of one context").users(PAIR_AND_ONE).hints().budget(pick(1, 3), |_| {}),
        named("two users, cancelled").users(PAIR_AND_ONE).budget(pick(1, 3), |left| left.cancels = pick(1, 2)),
        named("two users and pauses, queued").users(PAIR_AND_ONE).queued().budget(pick(2, 4), |left| left.delays = 1),
        named("an heir that pauses").unnoticed().users(PAIR_AND_ONE).queued().budget(pick(0, 2), |left| left.leaps = 1),
        named("a turn each, twice").users(&[(2, 0), (2, 0)]).queued().budget(pick(1, 3), |_| {}),
        named("who only tries").users(&[(1, 1), (0, 1)]).budget(pick(1, 3), |left| left.delays = 1),
        Configuration::new("a try that is joined for a moment")
            .wants(&[&[Second, Try, Wait], &[Wait, Wait]])
            .queued()
            .budget(0, |left| left.cancels = 1),
        named("who doubts").queued().budget(pick(3, 4), |left| (left.verifies, left.delays) = (1, 1)),
        named("cancelled, queued").queued().budget(pick(3, 5), |left| (left.cancels, left.delays) = (1, 1)),
        named("three").users(THREE).budget(pick(1, 3), |_| {}),
        named("three, queued, and a crash").users(THREE).queued().budget(pick(3, 5), |left| left.crashes = 1),
        named("three, queued, and a pause").users(THREE).queued().budget(pick(2, 4), |left| left.delays = 1),
    ]
}

/// Leases that are shared, and change their mode.
fn readers(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let two_and_one = |name| Configuration::new(name).wants(&[&[Read], &[Read], &[Wait]]);
    let two = |name| Configuration::new(name).wants(&[&[Read], &[Read]]);
    vec![
        two_and_one("two readers and a writer").budget(pick(0, 2), |_| {}),
        two_and_one("two readers and a writer, queued").queued().budget(pick(2, 4), |left| left.delays = 1),
        two_and_one("two readers and a writer, and a crash").queued().budget(pick(2, 5), |left| left.crashes = 1),
        Configuration::new("a reader and a writer").wants(&[&[Read], &[Wait, TryRead]]).budget(pick(1, 3), |left| {
            left.delays = 1;
        }),
        Configuration::new("a writer, a reader, and a pause unnoticed")
            .wants(&[&[Wait], &[Read]])
            .unnoticed()
            .queued()
            .budget(pick(2, 5), |left| left.leaps = pick(1, 2)),
        Configuration::new("fenced writes of a reader and a writer")
            .wants(&[&[Read], &[Wait]])
            .queued()
            .budget(pick(2, 4), |left| (left.writes, left.leaps) = (pick(1, 2), 1)),
        two("two upgrades").queued().budget(pick(2, 5), |left| (left.upgrades, left.delays) = (2, pick(0, 1))),
        two("two upgrades, given up").queued().budget(pick(2, 4), |left| (left.upgrades, left.cancels) = (2, 1)),
        two("two upgrades and beacons").beacons().queued().budget(pick(1, 3), |left| left.upgrades = 2),
        two("two upgrades and beacons, given up").beacons().queued().budget(pick(1, 3), |left| {
            (left.upgrades, left.cancels) = (2, 1);
        }),
        two("two upgrades and beacons, and a crash").beacons().queued().budget(pick(1, 3), |left| {
            (left.upgrades, left.crashes) = (2, 1);
        }),
        two("an upgrade, doubtful").queued().budget(pick(2, 5), |left| (left.upgrades, left.doubts) = (1, 1)),
        two("an upgrade, unnoticed pauses").unnoticed().queued().budget(pick(1, 4), |left| {
            (left.upgrades, left.leaps) = (1, 1);
        }),
        two_and_one("an upgrade before a writer").queued().budget(pick(1, 3), |left| left.upgrades = 1),
        Configuration::new("a downgrade lets a reader in")
            .wants(&[&[Wait], &[Read]])
            .queued()
            .budget(pick(3, 6), |left| (left.downgrades, left.delays) = (1, 1)),
        Configuration::new("a downgrade and an upgrade")
            .wants(&[&[Wait], &[Read]])
            .queued()
            .budget(pick(2, 4), |left| (left.downgrades, left.upgrades) = (1, 2)),
        Configuration::new("a downgrade, doubtful, and fenced writes")
            .wants(&[&[Wait], &[Read]])
            .queued()
            .budget(pick(2, 4), |left| (left.downgrades, left.doubts, left.writes) = (1, 1, pick(1, 2))),
        Configuration::new("a downgrade between two users of one context, and fenced writes")
            .wants(&[&[Wait, Read], &[]])
            .budget(pick(2, 4), |left| (left.downgrades, left.writes) = (1, 2)),
        Configuration::new("an upgrade and a downgrade between two users, and fenced writes")
            .wants(&[&[Read, Read], &[]])
            .budget(pick(1, 2), |left| (left.upgrades, left.downgrades, left.writes) = (1, 1, pick(1, 2))),
    ]
}

/// Leases that are stolen.
fn thieves(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let robbed = |name| Configuration::new(name).wants(&[&[Wait], &[Steal]]).queued();
    vec![
        Configuration::new("a theft").wants(&[&[Wait], &[Steal]]).budget(pick(3, 5), |left| left.delays = pick(1, 2)),
        robbed("a theft, and fenced writes").budget(pick(2, 5), |left| (left.writes, left.delays) = (2, 1)),
        robbed("a theft, and a long pause").unnoticed().budget(pick(2, 5), |left| (left.leaps, left.writes) = (1, 1)),
        robbed("a thief that vanishes").budget(pick(3, 6), |left| (left.crashes, left.delays) = (1, 1)),
        robbed("a theft, doubtful").budget(pick(3, 5), |left| (left.doubts, left.delays) = (1, 1)),
        Configuration::new("two thieves").wants(&[&[Wait], &[Steal], &[Steal]]).queued().budget(pick(1, 3), |_| {}),
        Configuration::new("a thief among readers")
            .wants(&[&[Read], &[Read], &[Steal]])
            .queued()
            .budget(pick(1, 3), |left| left.writes = 1),
        Configuration::new("an upgrade that is robbed")
            .wants(&[&[Read], &[Steal]])
            .budget(pick(2, 4), |left| left.upgrades = 1),
    ]
}

/// Leases that are kept without being used, and contexts that are suspended.
fn lingerers(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let named = |name| Configuration::new(name).lingering();
    vec![
        named("linger").budget(pick(2, 5), |_| {}),
        named("linger, queued").queued().budget(pick(3, 6), |left| left.delays = 1),
        named("linger, and who only tries").wants(&[&[Wait], &[Try]]).budget(pick(3, 8), |left| left.delays = 1),
        named("linger, and who only tries to read").wants(&[&[Wait, Read], &[TryRead]]).budget(pick(1, 4), |_| {}),
        named("linger, and a crash").wants(&[&[Wait], &[Try]]).budget(pick(4, 8), |left| left.crashes = 1),
        named("linger, and a turn each, twice").wants(&[&[Wait, Wait], &[Wait]]).budget(pick(1, 3), |_| {}),
        named("linger, and pauses unnoticed").unnoticed().queued().budget(pick(3, 5), |left| left.leaps = 1),
        Configuration::new("suspended").queued().budget(pick(3, 5), |left| left.suspends = pick(1, 2)),
        Configuration::new("suspended, and a slow store").budget(pick(0, 3), |left| {
            (left.suspends, left.delays) = (1, 1);
        }),
        Configuration::new("suspended with beacons").beacons().queued().budget(pick(1, 4), |left| {
            (left.suspends, left.delays) = (1, 1);
        }),
        Configuration::new("ended with beacons").beacons().queued().budget(pick(1, 3), |left| {
            (left.endings, left.delays) = (1, 1);
        }),
        Configuration::new("ended with beacons, and a crash").beacons().queued().budget(pick(1, 3), |left| {
            (left.endings, left.crashes) = (1, 1);
        }),
        Configuration::new("ended with beacons that fall").beacons().queued().budget(pick(1, 2), |left| {
            (left.endings, left.falls) = (1, 1);
        }),
        Configuration::new("suspended readers")
            .wants(&[&[Read], &[Read], &[Wait]])
            .queued()
            .budget(pick(1, 3), |left| left.suspends = 1),
        named("suspended while it lingers").budget(pick(1, 3), |left| left.suspends = 1),
    ]
}

/// Two keys.
fn pairs(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let named = Configuration::new;
    vec![
        named("both keys, twice").wants(&[&[Both], &[Both]]).budget(pick(1, 3), |left| left.delays = 1),
        named("both keys, one is taken").wants(&[&[Both], &[Second]]).budget(pick(2, 4), |left| left.delays = 1),
        named("both keys, and a crash").wants(&[&[Both], &[Second]]).budget(pick(2, 4), |left| left.crashes = 1),
        named("both keys, doubtful").wants(&[&[Both], &[Second]]).budget(pick(2, 3), |left| left.doubts = 1),
        named("both keys, one lingers").wants(&[&[Both], &[Second]]).lingering().budget(pick(2, 4), |_| {}),
        named("both keys, one is stolen").wants(&[&[Both], &[Steal]]).budget(pick(2, 4), |_| {}),
    ]
}

/// Those who read, rob, linger or are suspended, with stores and clocks of other kinds.
fn crossings(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let two = |name| Configuration::new(name).wants(&[&[Read], &[Read]]).queued();
    let robbed = |name| Configuration::new(name).wants(&[&[Wait], &[Steal]]).queued();
    vec![
        two("an upgrade, overtaking")
            .overtaking()
            .budget(pick(1, 3), |left| (left.upgrades, left.delays) = (1, pick(1, 2))),
        two("an upgrade, lost answers")
            .budget(pick(2, 4), |left| (left.upgrades, left.losses, left.delays) = (1, 1, 1)),
        two("an upgrade, trusted clock")
            .trusted()
            .budget(pick(2, 4), |left| (left.upgrades, left.leaps) = (1, pick(0, 1))),
        two("an upgrade, and a sleep").budget(pick(1, 3), |left| (left.upgrades, left.sleeps) = (1, 1)),
        Configuration::new("an upgrade among two users of one context")
            .wants(&[&[Read, Read], &[Wait]])
            .budget(pick(0, 1), |left| left.upgrades = 1),
        Configuration::new("a downgrade, overtaking")
            .wants(&[&[Wait], &[Read]])
            .overtaking()
            .queued()
            .budget(pick(2, 4), |left| (left.downgrades, left.delays) = (1, pick(1, 2))),
        robbed("a theft, overtaking").overtaking().budget(pick(2, 4), |left| left.delays = 2),
        robbed("a theft, trusted clock").trusted().budget(pick(2, 5), |left| (left.leaps, left.writes) = (1, 1)),
        Configuration::new("suspended, overtaking").overtaking().queued().budget(pick(1, 4), |left| {
            (left.suspends, left.delays) = (1, 1);
        }),
        Configuration::new("linger, overtaking").lingering().overtaking().budget(pick(2, 4), |left| left.delays = 1),
        Configuration::new("linger, doubtful").lingering().queued().budget(pick(3, 5), |left| left.doubts = 1),
        two("linger, and an upgrade").lingering().budget(pick(1, 3), |left| left.upgrades = 1),
        Configuration::new("both keys, overtaking").wants(&[&[Both], &[Second]]).overtaking().budget(
            pick(2, 3),
            |left| {
                left.delays = pick(1, 2);
            },
        ),
        Configuration::new("both keys, lost answers")
            .wants(&[&[Both], &[Second]])
            .budget(pick(2, 4), |left| (left.losses, left.delays) = (1, 1)),
    ]
}

/// Worlds that do not keep what the core builds on, and are to be caught: else the search sees nothing.
pub fn beyond_assumptions() -> Vec<Configuration> {
    let named = |name| Configuration::new(name).queued();
    vec![
        named("a fence in a transaction of its own").flaw(Flaw::FenceApart).budget(1, |left| left.writes = 1),
        Configuration::new("a fence that its context does not know of")
            .users(PAIR_AND_ONE)
            .flaw(Flaw::FenceUntold)
            .budget(1, |left| left.writes = 1),
        named("beacons that are seen gone while they stand").beacons().flaw(Flaw::FalseBeacons),
        named("sleep, hidden by a wall clock that is set back").budget(6, |left| (left.sleeps, left.jumps) = (1, 1)),
        named("a beat that inserts").unnoticed().flaw(Flaw::BeatInserts).budget(2, |left| left.leaps = 1),
        named("an end that compares nothing").unnoticed().flaw(Flaw::EndComparesNothing).budget(2, |left| {
            (left.leaps, left.delays) = (1, 1);
        }),
        Configuration::new("rows that are read before the record is locked")
            .by_statements()
            .flaw(Flaw::ReadsBeforeLock)
            .budget(1, |_| {}),
        named("rows that are overwritten unread").by_statements().unnoticed().flaw(Flaw::OverwritesUnread).budget(
            2,
            |left| {
                (left.leaps, left.delays) = (1, 1);
            },
        ),
    ]
}
