//! S17: which transactions are sure of their session, and for how long.

use super::*;
use crate::machine::Peer;

impl Script {
    fn sure_ms(&self) -> u64 {
        self.sent().1.sure_ms
    }

    fn release(&mut self, turn: u64) {
        let slot = self.slot();
        self.input(Input::Release { turn: TurnId(turn), slot });
    }

    /// Held the key, and gave it back.
    fn idle() -> Self {
        let mut script = Self::holding();
        script.release(1);
        script.answer([Outcome::Released]);
        script
    }
}

#[test]
fn whoever_has_a_session_is_sure_of_it_for_as_long_as_it_believes() {
    let mut script = Script::new();
    script.acquire(1, true);
    assert!(script.opens());
    assert_eq!(script.sure_ms(), 0, "nobody said yet that it is open");
    script.answer([granted(64)]);
    script.now_ms += 10;
    let left_ms = script.remaining_ms(1);
    assert!(left_ms > 0);
    script.release(1);
    assert_eq!(script.sure_ms(), left_ms);
    script.answer([Outcome::Released]);
    script.acquire(2, true);
    assert_eq!(script.sure_ms(), left_ms);
}

#[test]
fn in_doubt_it_is_sure_of_nothing() {
    let mut script = Script::holding();
    script.input(Input::Doubt);
    assert!(script.beat().beat > 0);
    assert_eq!(script.sure_ms(), 0);
}

#[test]
fn what_beats_reads_the_row_anyway() {
    let mut script = Script::idle();
    script.now_ms += LEASE_MS / 2;
    script.acquire(2, true);
    assert!(script.beat().beat > 0, "what is granted must be believed for a while");
    assert_eq!(script.sure_ms(), 0);
}

#[test]
fn a_request_is_sure_of_its_session_only_once() {
    let mut script = Script::idle();
    script.acquire(2, false);
    assert!(script.sure_ms() > 0);
    script.answer([Outcome::Busy { ahead: [seen(1, false)].into() }]);
    let again = script.until_sent();
    assert!(matches!(&again[..], [Action::Acquire(ask)] if ask.request == RequestId(2)), "{again:?}");
    assert_eq!(script.sure_ms(), 0, "it may have been granted and robbed meanwhile, which only the session's row says");
}

#[test]
fn a_thief_and_who_asks_for_the_truth_read_all_rows() {
    let mut script = Script::idle();
    let thief = Turn { steal: true, ..Turn::new(TurnId(2), script.key.clone()) };
    script.ask_for(thief);
    assert_eq!((script.actions().len(), script.sure_ms()), (1, 0));
    script.answer([granted(128)]);
    let slot = script.slot();
    script.input(Input::Verify { query: TurnId(3), turn: TurnId(2), slot, span_ms: 0 });
    assert_eq!((script.actions().len(), script.sure_ms()), (1, 0));
}

#[test]
fn whoever_ends_another_session_along_with_it_reads_all_rows() {
    let mut script = Script::new();
    script.acquire(1, true);
    let peers = [Peer { session: OTHER, beat: 1, lease_ms: 10 }].into();
    let id = script.sent().0;
    script.input(Input::Reply { id, result: Ok(Reply { peers, ..said([granted(64)]) }) });
    script.now_ms += 200;
    script.release(1);
    let (_, batch) = script.sent();
    assert_eq!((batch.ends.len(), batch.sure_ms), (1, 0));
}

/// What it holds may have been stolen unheard: the row says so, and it must not hold the key twice.
#[test]
fn whoever_holds_the_key_already_reads_all_rows() {
    let mut script = Script::new();
    script.shares();
    script.acquire(2, true);
    assert!(matches!(&script.actions()[..], [Action::Acquire(ask)] if ask.mode == Mode::Exclusive));
    assert_eq!(script.sure_ms(), 0);
}

/// The store has to look at the waiter's session, so the release should ask it to read all rows at once.
#[test]
fn whoever_gives_the_key_back_to_a_waiter_it_has_heard_of_reads_all_rows() {
    let mut script = Script::idle();
    script.acquire(2, true);
    script.answer([granted(128)]);
    script.signal(Body::Wanted { holder: ME, by: OTHER, tries: false });
    script.release(2);
    assert!(matches!(&script.actions()[..], [Action::Release { .. }]));
    assert_eq!(script.sure_ms(), 0);
}
