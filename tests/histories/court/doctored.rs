//! Histories that each break one promise. The judge must refuse them; otherwise it would prove nothing.

use super::{Note, What, judge};
use crate::histories::judge::Tally;
use leasehold::LostReason;

/// Two contexts hold the key one after the other, with these tokens.
fn sound() -> Vec<Note> {
    let note = |at: u64, context, what| Note { at: at * 1_000, context, guard: 1, what };
    vec![
        note(10, 1, What::Asks { key: 0, steals: false }),
        note(20, 1, What::Granted { token: 100, shared: false }),
        note(30, 1, What::Valid { since: 25_000 }),
        note(40, 1, What::Valid { since: 35_000 }),
        note(50, 1, What::Leaves),
        note(55, 1, What::Released),
        note(60, 2, What::Asks { key: 0, steals: false }),
        note(70, 2, What::Granted { token: 200, shared: false }),
        note(80, 2, What::Valid { since: 75_000 }),
        note(90, 2, What::Valid { since: 85_000 }),
        note(99, 2, What::Leaves),
    ]
}

fn verdict(change: impl FnOnce(&mut Vec<Note>)) -> Result<usize, String> {
    judged(change, &[(0, 100), (0, 200)])
}

fn judged(change: impl FnOnce(&mut Vec<Note>), writes: &[(usize, u64)]) -> Result<usize, String> {
    let mut notes = sound();
    change(&mut notes);
    notes.sort_by_key(|note| note.at);
    judge(&notes, writes, &Tally::default())
}

fn is_refused(word: &str, verdict: Result<usize, String>) {
    let wrong = verdict.expect_err(word);
    assert!(wrong.contains(word), "{wrong}");
}

#[test]
fn a_sound_history_is_accepted() {
    assert_eq!(verdict(|_| ()), Ok(2));
}

/// The store obeys a thief at once; the holder that it robbed does so later.
#[test]
fn two_holders_at_once_are_accepted_after_a_theft_only() {
    let late = |notes: &mut Vec<Note>| {
        notes[3] = Note { at: 86_000, what: What::Valid { since: 82_000 }, ..notes[3] };
        notes[4].at = 96_000;
        notes.remove(5);
    };
    is_refused("valid after 200", verdict(late));
    is_refused("valid at once", verdict(late));
    let stolen = verdict(|notes| {
        late(notes);
        notes[5].what = What::Asks { key: 0, steals: true };
    });
    assert_eq!(stolen, Ok(2));
}

#[test]
fn a_token_that_does_not_grow_is_refused() {
    let smaller = |notes: &mut Vec<Note>| notes[7].what = What::Granted { token: 99, shared: false };
    is_refused("asked after 100 was held", judged(smaller, &[]));
    let same = |notes: &mut Vec<Note>| notes[7].what = What::Granted { token: 100, shared: false };
    is_refused("handed out twice", judged(same, &[]));
}

#[test]
fn a_loss_that_is_not_reported_is_refused() {
    is_refused("never told", verdict(|notes| notes[4].what = What::Untold));
}

#[test]
fn a_guard_that_is_valid_after_its_reported_loss_is_refused() {
    for reason in [LostReason::Expired, LostReason::Evicted] {
        let told = Note { at: 32_000, what: What::Lost(reason), ..sound()[0] };
        is_refused("its loss was told", verdict(|notes| notes.push(told)));
    }
}

#[test]
fn a_loss_for_a_reason_that_never_was_is_refused() {
    is_refused("StoreCleared", verdict(|notes| notes[4].what = What::Lost(LostReason::StoreCleared)));
}

#[test]
fn writes_against_the_order_of_tokens_are_refused() {
    is_refused("committed after one by 200", judged(|_| (), &[(0, 100), (0, 200), (0, 100)]));
    is_refused("which nobody was granted", judged(|_| (), &[(0, 150)]));
}

#[test]
fn a_release_that_the_store_took_for_its_own_after_the_next_grant_is_refused() {
    is_refused("was accepted", verdict(|notes| (notes[4].at, notes[5].at) = (82_000, 83_000)));
}
