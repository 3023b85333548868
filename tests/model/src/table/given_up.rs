//! The part of the table about requests that are given up while the store refuses transactions, or leaves them in doubt: a failed operation
//! is sent again, but only as it is still wanted.

use super::{PAIR_AND_ONE, Size};
use crate::{
    configuration::Configuration,
    port::Want::{Both, Read, Second, Steal, Try, TryUrgent, Urgent, Wait},
};

/// All of them.
pub(super) fn all(size: Size) -> Vec<Configuration> {
    [places, upgrades, thefts, ranks, several_keys].into_iter().flat_map(|some| some(size)).collect()
}

/// Requests that wait, and requests that only try.
pub fn places(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let named = Configuration::new;
    let joined = |name| named(name).wants(&[&[Second, Try, Wait], &[Wait]]).queued();
    vec![
        named("given up and refused").budget(pick(2, 4), |left| (left.cancels, left.refusals) = (1, pick(1, 2))),
        named("given up and refused, queued").queued().budget(pick(3, 5), |left| {
            (left.cancels, left.refusals) = (1, pick(2, 3));
        }),
        named("given up, refused and doubtful").queued().budget(pick(2, 4), |left| {
            (left.cancels, left.refusals, left.doubts) = (1, 1, 1);
        }),
        named("given up and refused, overtaking").overtaking().queued().budget(pick(2, 4), |left| {
            (left.cancels, left.refusals, left.delays) = (1, pick(1, 2), 1);
        }),
        named("given up and refused, with beacons").beacons().queued().budget(pick(2, 3), |left| {
            (left.cancels, left.refusals) = (1, pick(1, 2));
        }),
        named("given up and refused, two users").users(PAIR_AND_ONE).queued().budget(pick(1, 2), |left| {
            (left.cancels, left.refusals) = (1, 1);
        }),
        named("given up and refused, lingering").lingering().users(PAIR_AND_ONE).queued_up_to(1).budget(
            pick(1, 2),
            |left| {
                (left.cancels, left.refusals) = (1, 1);
            },
        ),
        joined("a try that is joined and refused").budget(pick(0, 1), |left| {
            (left.cancels, left.refusals) = (1, 1);
        }),
        joined("a try that is joined, doubtful").budget(pick(0, 1), |left| {
            (left.cancels, left.doubts) = (1, 1);
        }),
    ]
}

/// Guards that share a key and want to hold it exclusively.
pub fn upgrades(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let two = |name| Configuration::new(name).wants(&[&[Read], &[Read]]).queued();
    vec![
        two("an upgrade, given up and refused").budget(pick(2, 3), |left| {
            (left.upgrades, left.cancels, left.refusals) = (1, 1, pick(2, 3));
        }),
        two("an upgrade, given up and doubtful").budget(pick(1, 2), |left| {
            (left.upgrades, left.cancels, left.doubts) = (1, 1, pick(1, 2));
        }),
        two("an upgrade, given up, refused and doubtful").budget(pick(1, 2), |left| {
            (left.upgrades, left.cancels, left.refusals, left.doubts) = (1, 1, pick(1, 2), 1);
        }),
        two("an upgrade, given up and wanted again, refused").budget(pick(0, 2), |left| {
            (left.upgrades, left.cancels, left.refusals) = (2, 1, pick(1, 2));
        }),
        two("an upgrade with beacons, given up and refused").beacons().budget(pick(1, 3), |left| {
            (left.upgrades, left.cancels, left.refusals) = (1, 1, pick(1, 2));
        }),
        Configuration::new("an upgrade before a writer, given up and refused")
            .wants(&[&[Read], &[Read, Wait]])
            .queued()
            .budget(pick(0, 1), |left| (left.upgrades, left.cancels, left.refusals) = (1, 1, 1)),
    ]
}

/// Thieves who give up.
pub fn thefts(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let joined = |name| Configuration::new(name).wants(&[&[Wait], &[Wait, Steal]]).queued();
    vec![
        Configuration::new("a theft, given up and refused")
            .wants(&[&[Wait], &[Second, Steal]])
            .queued()
            .budget(pick(1, 3), |left| (left.cancels, left.refusals) = (1, pick(1, 2))),
        joined("a theft beside a waiter, given up and refused").budget(pick(1, 3), |left| {
            (left.cancels, left.refusals) = (1, pick(1, 2));
        }),
        joined("a theft beside a waiter, given up and doubtful").budget(pick(1, 3), |left| {
            (left.cancels, left.doubts) = (1, pick(1, 2));
        }),
    ]
}

/// Requests that go before others.
pub fn ranks(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let beside = |name| Configuration::new(name).wants(&[&[Wait], &[Wait, Urgent]]).queued();
    let tries = |name| Configuration::new(name).wants(&[&[Wait], &[Wait, TryUrgent]]).queued();
    vec![
        beside("an urgent request").budget(pick(1, 3), |left| left.cancels = 1),
        beside("an urgent request, given up and refused").budget(pick(1, 3), |left| {
            (left.cancels, left.refusals) = (1, pick(1, 2));
        }),
        beside("an urgent request, given up and doubtful").budget(pick(1, 3), |left| {
            (left.cancels, left.doubts) = (1, pick(1, 2));
        }),
        tries("an urgent try beside a waiter").budget(pick(1, 4), |left| left.delays = 1),
        tries("an urgent try beside a waiter, given up and refused").budget(pick(1, 3), |left| {
            (left.cancels, left.refusals) = (1, pick(1, 2));
        }),
        Configuration::new("an urgent request among three, refused")
            .wants(&[&[Wait], &[Wait], &[Wait, Urgent]])
            .queued()
            .budget(pick(0, 1), |left| (left.cancels, left.refusals) = (1, 1)),
    ]
}

/// Several keys.
pub fn several_keys(size: Size) -> Vec<Configuration> {
    let pick = |test, full| if size == Size::Test { test } else { full };
    let named = Configuration::new;
    let one_and_one = |name| named(name).wants(&[&[Wait, Second], &[Wait]]).queued();
    vec![
        named("both keys, given up and refused").wants(&[&[Both], &[Second]]).budget(pick(2, 3), |left| {
            (left.cancels, left.refusals) = (1, 1);
        }),
        named("both keys, given up and doubtful").wants(&[&[Both], &[Second]]).budget(pick(1, 3), |left| {
            (left.cancels, left.doubts) = (1, pick(1, 2));
        }),
        one_and_one("two keys and one session, given up and refused").budget(pick(1, 3), |left| {
            (left.cancels, left.refusals) = (1, pick(1, 2));
        }),
        one_and_one("two keys and one session, given up, refused and doubtful").budget(pick(1, 2), |left| {
            (left.cancels, left.refusals, left.doubts) = (1, 1, 1);
        }),
    ]
}
