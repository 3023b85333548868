//! What a context does, rule by rule of the protocol. The letters are those of the rules.

use alloc::{string::String, vec::Vec};

use super::{
    Action, Answer, Batch, Beacon, Body, Config, Entry, Incarnation, Input, Key, LostReason, Machine, Message,
    Monotonic, Now, Options, Outcome, Output, Refusal, Reply, RequestId, Sighting, StoreError, StoreId, Token,
    TokenBlock, Turn, TurnId, Wall,
};

const ME: Incarnation = Incarnation(1);
const OTHER: Incarnation = Incarnation(2);
const STORE: StoreId = StoreId(9);
const LEASE_MS: u64 = 20_000;

/// A machine whose store answers what the test says.
struct Script {
    machine: Machine,
    now_ms: u64,
    key: Key,
    outputs: Vec<Output>,
}

impl Script {
    fn new() -> Self {
        let config = Config::parse(&Options { beacon: false, ..Options::default() }).unwrap();
        let machine = Machine::new(config, ME);
        Self { machine, now_ms: 1_000, key: Key::new("k").unwrap(), outputs: Vec::new() }
    }

    fn with_beacon() -> Self {
        let mut script = Self::new();
        script.machine = Machine::new(Config::parse(&Options::default()).unwrap(), ME);
        script
    }

    fn now(&self) -> Now {
        Now { monotonic: Monotonic::from_ms(self.now_ms), wall: Wall::from_ms(self.now_ms + 1_000_000) }
    }

    fn input(&mut self, input: Input) -> &[Output] {
        self.machine.handle(input, self.now());
        self.outputs.clear();
        loop {
            match self.machine.poll_output() {
                Output::Timeout(_) => return &self.outputs,
                output => self.outputs.push(output),
            }
        }
    }

    fn acquire(&mut self, turn: u64, wait: bool) {
        let key = self.key.clone();
        self.input(Input::Acquire(Turn { id: TurnId(turn), key, wait, deadline: None, info: String::new() }));
    }

    /// The transaction that was just sent.
    fn sent(&self) -> (u64, Batch) {
        let sent = self.outputs.iter().find_map(|output| match output {
            Output::Store { id, batch } => Some((*id, batch.clone())),
            _ => None,
        });
        sent.unwrap_or_else(|| panic!("nothing was sent: {:?}", self.outputs))
    }

    fn actions(&self) -> Vec<Action> {
        self.sent().1.0.into_iter().map(|operation| operation.action).collect()
    }

    fn reply(&mut self, id: u64, outcomes: impl IntoIterator<Item = Outcome>) -> &[Output] {
        let answers = outcomes.into_iter().map(Answer::from).collect();
        self.input(Input::Reply { id, result: Ok(Reply { store: STORE, answers }) })
    }

    /// Answers what was just sent.
    fn answer(&mut self, outcomes: impl IntoIterator<Item = Outcome>) -> &[Output] {
        self.reply(self.sent().0, outcomes)
    }

    fn signal(&mut self, body: Body) -> &[Output] {
        let key = self.key.clone();
        self.input(Input::Message(Message { store: STORE, key, body }))
    }

    fn tick(&mut self, after_ms: u64) -> &[Output] {
        self.now_ms += after_ms;
        self.input(Input::Tick)
    }

    fn remaining_ms(&self, turn: u64) -> u64 {
        self.machine.remaining_ms(TurnId(turn), &self.key, self.now())
    }

    /// Queues behind another holder; the request's number.
    fn queue(&mut self, turn: u64, last_token: u64) -> RequestId {
        self.acquire(turn, true);
        let Action::Acquire(acquire) = self.actions().remove(0) else { panic!("a request acquires") };
        self.answer([waiting(last_token, 1)]);
        acquire.request
    }
}

fn block(first: u64) -> TokenBlock {
    TokenBlock { first: Token(first), last: Token(first + 63) }
}

fn granted(first: u64) -> Outcome {
    Outcome::Granted { block: block(first), lease_ms: LEASE_MS, contended: false }
}

fn seen(beat: u64, beacon: u64) -> Sighting {
    Sighting { holder: OTHER, entry: Entry::Grant(Token(64)), beat, beacon, lease_ms: LEASE_MS }
}

fn waiting(last_token: u64, beat: u64) -> Outcome {
    Outcome::Waiting { last_token: Token(last_token), ahead: [seen(beat, 0)].into() }
}

fn heir(request: RequestId, first: u64) -> Body {
    Body::Granted { holder: ME, request, block: block(first), lease_ms: 10_000 }
}

fn is_granted(outputs: &[Output]) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Granted { .. }))
}

#[test]
fn a_every_enqueue_draws_a_fresh_request() {
    let mut script = Script::new();
    let first = script.queue(1, 100);
    script.input(Input::Cancel { turn: TurnId(1), key: script.key.clone() });
    assert_eq!(script.actions(), [Action::Withdraw { request: first }]);
    script.answer([Outcome::Withdrawn]);
    assert!(script.queue(2, 100) > first);
}

#[test]
fn b_a_signalled_grant_is_believed_only_with_a_larger_token() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    assert!(!is_granted(script.signal(heir(request, 100))), "it is older than the answer");
    assert!(!is_granted(script.signal(heir(RequestId(request.0 + 1), 200))), "another request");
    let stranger = Body::Granted { holder: OTHER, request, block: block(200), lease_ms: 10_000 };
    assert!(!is_granted(script.signal(stranger)), "another holder");
    assert!(is_granted(script.signal(heir(request, 101))));
    assert!(!is_granted(script.signal(heir(request, 101))), "a doubled signal grants nothing");
}

#[test]
fn b_a_request_without_an_answer_counts_from_its_first_attempt() {
    let mut script = Script::new();
    script.acquire(1, true);
    let (id, _) = script.sent();
    script.now_ms += 3_000;
    assert!(is_granted(script.signal(heir(RequestId(1), 101))));
    assert_eq!(script.remaining_ms(1), 9_000 - 3_000);
    assert!(!is_granted(script.reply(id, [waiting(64, 1)])), "an answer from before the grant changes nothing");
    assert_eq!(script.remaining_ms(1), 6_000);
}

#[test]
fn d_an_heir_counts_from_its_last_waiting_answer_and_renews_at_once() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    script.tick(5_000);
    script.now_ms += 1_000;
    script.answer([waiting(100, 2)]);
    script.now_ms += 2_000;
    assert!(is_granted(script.signal(heir(request, 101))));
    assert_eq!(script.remaining_ms(1), 9_000 - 3_000, "from the send of the last request that found it waiting");
    assert!(matches!(script.actions()[..], [Action::Renew { token: Token(101), .. }]));
}

#[test]
fn d_an_heir_that_learns_too_late_renews_before_the_first_guard() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    // The place beat is on its way and not answered.
    script.tick(5_000);
    let (beat, _) = script.sent();
    script.now_ms += 4_500;
    assert!(!is_granted(script.signal(heir(request, 101))), "its first lease is over already");
    script.reply(beat, [waiting(100, 1)]);
    assert!(matches!(script.actions()[..], [Action::Renew { token: Token(101), .. }]));
    let renewed = Outcome::Renewed { lease_ms: LEASE_MS, contended: false };
    assert!(is_granted(script.answer([renewed])));
}

#[test]
fn e_after_a_loss_the_request_is_withdrawn_too() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.tick(5_000);
    let not_current = Outcome::NotCurrent { last_token: Token(500) };
    let outputs = script.answer([not_current]).to_vec();
    assert!(outputs.contains(&Output::Lost { turn: TurnId(1), reason: LostReason::Evicted }));
    assert_eq!(script.actions(), [Action::Withdraw { request: RequestId(1) }]);
}

#[test]
fn h_an_own_grant_under_an_unknown_request_is_released_by_its_token() {
    let mut script = Script::new();
    script.acquire(1, true);
    let own = Sighting { holder: ME, ..seen(1, 0) };
    script.answer([Outcome::Waiting { last_token: Token(127), ahead: [own].into() }]);
    assert!(matches!(script.actions()[..], [Action::Release { token: Token(64), .. }]));
}

#[test]
fn i_silence_counts_from_after_the_read_and_any_change_starts_it_anew() {
    let mut script = Script::new();
    script.queue(1, 100);
    let mut evicted_at = None;
    for _ in 0..40 {
        script.tick(1_000);
        let Some(Output::Store { id, batch }) = script.outputs.first().cloned() else { continue };
        if batch.0.iter().any(|operation| matches!(operation.action, Action::Evict { .. })) {
            evicted_at = Some(script.now_ms);
            break;
        }
        // Once, after 6 s, the holder is seen to have renewed.
        let beat = if script.now_ms < 6_500 { 1 } else { 2 };
        script.reply(id, [waiting(100, beat)]);
    }
    let evicted_at = evicted_at.expect("a silent holder is evicted in the end");
    assert!(evicted_at >= 6_500 + 22_000, "a whole lease and a margin after the change, not {evicted_at}");
}

#[test]
fn k_what_ran_out_is_in_doubt_and_a_late_renewal_that_succeeds_dispels_it() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.tick(5_000);
    let (id, _) = script.sent();
    script.now_ms += 13_500;
    let outputs = script.tick(0).to_vec();
    assert!(outputs.contains(&Output::Suspect { turn: TurnId(1) }));
    assert!(!outputs.iter().any(|output| matches!(output, Output::Lost { .. })));
    assert_eq!(script.remaining_ms(1), 0);
    // The answer to what was sent long ago came after its time limit; the next one counts.
    script.reply(id, [Outcome::Renewed { lease_ms: LEASE_MS, contended: false }]);
    assert_eq!(script.remaining_ms(1), 0);
}

#[test]
fn k_after_lost_a_late_success_revives_nothing() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.tick(5_000);
    let (late, _) = script.sent();
    script.tick(5_000);
    script.tick(100);
    let (id, _) = script.sent();
    script.reply(id, [Outcome::NotCurrent { last_token: Token(500) }]);
    assert_eq!(script.remaining_ms(1), 0);
    script.reply(late, [Outcome::Renewed { lease_ms: LEASE_MS, contended: false }]);
    assert_eq!(script.remaining_ms(1), 0);
}

#[test]
fn m_a_beacons_absence_counts_only_when_seen_after_the_very_beat() {
    let mut script = Script::new();
    script.acquire(1, true);
    let ahead = |beat| Outcome::Waiting { last_token: Token(127), ahead: [seen(beat, 7)].into() };
    let beacon = Beacon { holder: OTHER, generation: 7 };
    let outputs = script.answer([ahead(1)]).to_vec();
    assert!(outputs.contains(&Output::Watch { watch: 1, beacon }));
    script.tick(5_000);
    let outputs = script.answer([ahead(2)]).to_vec();
    assert!(outputs.contains(&Output::Unwatch { watch: 1 }) && outputs.contains(&Output::Watch { watch: 2, beacon }));
    assert!(script.input(Input::BeaconGone { watch: 1 }).is_empty(), "the old watch proves nothing of the new beat");
    script.input(Input::BeaconGone { watch: 2 });
    let evict = Action::Evict { target: OTHER, entry: Entry::Grant(Token(64)), beat: 2 };
    assert_eq!(script.actions()[0], evict);
}

#[test]
fn n_operations_say_whether_the_beacon_stood_when_they_were_sent() {
    let mut script = Script::with_beacon();
    script.acquire(1, true);
    let Some(Output::Wake { beacon: Some(beacon) }) = script.outputs.first().cloned() else { panic!("it wakes") };
    assert_eq!(script.outputs.len(), 1, "the first grant waits a moment for the beacon");
    script.input(Input::BeaconStands(beacon));
    assert!(matches!(&script.actions()[0], Action::Acquire(acquire) if acquire.beacon == beacon.generation));

    let mut dark = Script::with_beacon();
    dark.acquire(1, true);
    dark.tick(300);
    assert!(matches!(&dark.actions()[0], Action::Acquire(acquire) if acquire.beacon == 0), "but not for long");
    dark.answer([granted(64)]);
    dark.input(Input::BeaconStands(beacon));
    dark.tick(5_000);
    assert!(matches!(dark.actions()[0], Action::Renew { beacon: 1, .. }), "a late beacon is told with the next beat");
}

#[test]
fn n_a_beacon_rests_only_when_nothing_is_held_awaited_or_unknown_and_never_rises_again() {
    let mut script = Script::with_beacon();
    let key = script.key.clone();
    script.acquire(1, true);
    script.input(Input::BeaconStands(Beacon { holder: ME, generation: 1 }));
    script.answer([granted(64)]);
    for _ in 0..10 {
        script.tick(5_000);
        assert!(!script.outputs.contains(&Output::Rest), "something is held");
        script.answer([Outcome::Renewed { lease_ms: LEASE_MS, contended: false }]);
    }
    script.input(Input::Release { turn: TurnId(1), key });
    script.answer([Outcome::Released]);
    assert_eq!(script.tick(10_000), [Output::Rest]);
    script.acquire(2, true);
    let beacon = Some(Beacon { holder: ME, generation: 2 });
    assert_eq!(script.outputs, [Output::Wake { beacon }]);
}

#[test]
fn q_guards_of_one_tenure_never_share_a_token_whatever_is_answered_twice() {
    let mut script = Script::new();
    let key = script.key.clone();
    script.acquire(1, true);
    let (id, _) = script.sent();
    script.reply(id, [granted(64)]);
    script.acquire(2, true);
    script.reply(id, [granted(64)]);
    let outputs = script.input(Input::Release { turn: TurnId(1), key }).to_vec();
    assert!(outputs.contains(&Output::Granted { turn: TurnId(2), token: Token(65) }), "{outputs:?}");
}

#[test]
fn an_answer_that_comes_after_its_time_limit_leaves_nothing_behind() {
    let mut script = Script::new();
    let key = script.key.clone();
    script.acquire(1, true);
    let (late, _) = script.sent();
    script.input(Input::Cancel { turn: TurnId(1), key });
    script.tick(5_000);
    assert_eq!(script.actions(), [Action::Withdraw { request: RequestId(1) }]);
    script.answer([Outcome::Withdrawn]);
    script.reply(late, [granted(64)]);
    assert_eq!(script.actions(), [Action::Release { token: Token(64), request: RequestId(1) }]);
}

#[test]
fn a_wiped_store_is_told_and_nothing_from_before_holds() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.tick(5_000);
    let (id, _) = script.sent();
    let answers = [Answer::from(Outcome::NotCurrent { last_token: Token(0) })].into();
    let wiped = Reply { store: StoreId(10), answers };
    let outputs = script.input(Input::Reply { id, result: Ok(wiped) });
    assert!(outputs.contains(&Output::Lost { turn: TurnId(1), reason: LostReason::StoreCleared }));
}

#[test]
fn who_asks_a_wiped_store_is_answered_by_it_and_who_waited_in_the_old_one_asks_again() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    let (other, key) = (Key::new("other").unwrap(), script.key.clone());
    let turn = Turn { id: TurnId(2), key: other, wait: false, deadline: None, info: String::new() };
    script.input(Input::Acquire(turn));
    let (id, _) = script.sent();
    let wiped = Reply { store: StoreId(10), answers: [Answer::from(granted(64))].into() };
    let outputs = script.input(Input::Reply { id, result: Ok(wiped) });
    assert!(outputs.contains(&Output::Granted { turn: TurnId(2), token: Token(64) }));
    let (_, Batch(operations)) = script.sent();
    assert_eq!((operations.len(), &operations[0].key), (1, &key));
    assert!(matches!(&operations[0].action, Action::Acquire(acquire) if acquire.request > request));
    script.answer([granted(128)]);
    // The reply of `answer` comes from the old store again: as after a second wipe, what was held is lost.
    assert!(script.outputs.contains(&Output::Lost { turn: TurnId(2), reason: LostReason::StoreCleared }));
    assert!(script.outputs.contains(&Output::Granted { turn: TurnId(1), token: Token(128) }));
}

#[test]
fn a_newer_format_is_told_to_who_holds_and_who_asks() {
    let newer = super::Unreadable::FormatTooNew { found: 2, known: 1 };
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.tick(5_000);
    let outputs = script.answer([Outcome::Unreadable(newer)]);
    assert!(outputs.contains(&Output::Lost { turn: TurnId(1), reason: LostReason::FormatTooNew }));
    let mut script = Script::new();
    script.acquire(1, true);
    let refusal = Refusal::Unreadable(newer);
    assert!(script.answer([Outcome::Unreadable(newer)]).contains(&Output::Failed { turn: TurnId(1), refusal }));
}

#[test]
fn a_context_that_slept_believes_nothing_until_the_store_has_answered() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    assert!(script.remaining_ms(1) > 0);
    // The wall clock went on while the monotonic one stood still.
    let asleep = Now { wall: script.now().wall.plus(60_000), ..script.now() };
    assert_eq!(script.machine.remaining_ms(TurnId(1), &script.key, asleep), 0);
    script.machine.handle(Input::Tick, asleep);
    assert_eq!(script.machine.poll_output(), Output::Suspect { turn: TurnId(1) });
    assert!(matches!(script.machine.poll_output(), Output::Store { .. }));
}

#[test]
fn a_permanent_failure_of_renewal_is_told() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.tick(5_000);
    let (id, _) = script.sent();
    let error = StoreError::permanent(super::StoreErrorKind::Unavailable, "gone");
    let outputs = script.input(Input::Reply { id, result: Err(error) });
    assert!(outputs.contains(&Output::Lost { turn: TurnId(1), reason: LostReason::StoreFailed }));
}

/// a jump of the clocks while a request is in flight: the grant is in doubt too.
#[test]
fn a_grant_in_flight_over_a_sleep_is_in_doubt() {
    let mut script = Script::new();
    script.acquire(1, true);
    let (id, _) = script.sent();
    // The monotonic clock stood still for 60 s, the wall clock went on.
    let asleep = Now { wall: script.now().wall.plus(60_000), ..script.now() };
    let answers = [Answer::from(granted(64))].into();
    script.machine.handle(Input::Reply { id, result: Ok(Reply { store: STORE, answers }) }, asleep);
    assert_eq!(script.machine.remaining_ms(TurnId(1), &script.key, asleep), 0, "counted from before the sleep");
}

#[test]
fn an_heir_that_slept_is_in_doubt() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    let asleep = Now { wall: script.now().wall.plus(60_000), ..script.now() };
    let key = script.key.clone();
    script.machine.handle(Input::Message(Message { store: STORE, key, body: heir(request, 101) }), asleep);
    assert_eq!(script.machine.remaining_ms(TurnId(1), &script.key, asleep), 0, "counted from before the sleep");
}

/// many short sleeps, each below the margin.
#[test]
fn short_sleeps_add_up() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    let mut wall_ms = script.now_ms + 1_000_000;
    let real_start = wall_ms;
    // 12 s by the monotonic clock, 32.4 s by the wall clock, and by everybody else's: no renewal is answered.
    for _ in 0..12 {
        script.now_ms += 1_000;
        wall_ms += 1_000 + 1_700;
        let now = Now { monotonic: Monotonic::from_ms(script.now_ms), wall: Wall::from_ms(wall_ms) };
        script.machine.handle(Input::Tick, now);
        while !matches!(script.machine.poll_output(), Output::Timeout(_)) {}
    }
    let now = Now { monotonic: Monotonic::from_ms(script.now_ms), wall: Wall::from_ms(wall_ms) };
    assert!(wall_ms - real_start > 22_000);
    assert_eq!(script.machine.remaining_ms(TurnId(1), &script.key, now), 0);
}

/// "waiting" that comes late for a request that was given up.
#[test]
fn a_late_waiting_answer_leaves_a_dead_place() {
    let mut script = Script::new();
    let key = script.key.clone();
    script.acquire(1, true);
    let (late, _) = script.sent();
    script.input(Input::Cancel { turn: TurnId(1), key });
    script.tick(5_000);
    assert_eq!(script.actions(), [Action::Withdraw { request: RequestId(1) }]);
    script.answer([Outcome::Withdrawn]);
    script.reply(late, [waiting(100, 1)]);
    let withdrawn = script.outputs.iter().any(|output| matches!(output, Output::Store { .. }));
    assert!(withdrawn, "the place is in the queue and nobody takes it out: {:?}", script.outputs);
}

/// a grant signalled for a request that is not known (rule h).
#[test]
fn a_signalled_grant_of_an_unknown_request_is_released() {
    let mut script = Script::new();
    script.queue(1, 100);
    script.signal(heir(RequestId(77), 200));
    assert!(script.outputs.iter().any(|output| matches!(output, Output::Store { .. })), "{:?}", script.outputs);
}

/// "wanted" between the sending of a renewal and its answer is forgotten.
#[test]
fn wanted_is_not_forgotten() {
    let mut script = Script::new();
    let key = script.key.clone();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.acquire(2, true);
    script.tick(5_000);
    let (id, _) = script.sent();
    script.signal(Body::Wanted { holder: OTHER });
    // Applied before the other one queued.
    script.reply(id, [Outcome::Renewed { lease_ms: LEASE_MS, contended: false }]);
    script.input(Input::Release { turn: TurnId(1), key });
    assert!(!is_granted(&script.outputs), "past its tenure it hands on locally though another context waits");
}

#[test]
fn wanted_before_the_answer_that_grants_is_not_forgotten() {
    let mut script = Script::new();
    let key = script.key.clone();
    script.acquire(1, true);
    script.acquire(2, true);
    let id = 1;
    script.signal(Body::Wanted { holder: OTHER });
    script.reply(id, [granted(64)]);
    script.now_ms += 100;
    script.input(Input::Release { turn: TurnId(1), key });
    assert!(!is_granted(&script.outputs), "past its tenure it hands on locally though another context waits");
}

/// doubts during an outage pile up renewals.
#[test]
fn doubts_during_an_outage_do_not_pile_up() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    let mut largest = 0;
    for _ in 0..2_000 {
        let token = Token(64);
        script.signal(Body::Evicted { holder: ME, token });
        for _ in 0..3 {
            let sent = script.outputs.iter().find_map(|output| match output {
                Output::Store { id, batch } => Some((*id, batch.0.len())),
                _ => None,
            });
            let Some((id, len)) = sent else { break };
            largest = largest.max(len);
            script.input(Input::Reply { id, result: Err(StoreError::transient("down")) });
        }
        script.tick(10);
        if let Some(Output::Store { id, batch }) =
            script.outputs.iter().find(|o| matches!(o, Output::Store { .. })).cloned()
        {
            largest = largest.max(batch.0.len());
            script.input(Input::Reply { id, result: Err(StoreError::transient("down")) });
        }
    }
    assert!(largest < 4, "{largest} renewals of one lease in one transaction");
}

/// a silent store, an heir in doubt: the request is never answered.
#[test]
fn an_heir_whose_store_is_dead_is_told() {
    let mut script = Script::new();
    let request = script.queue(1, 100);
    script.tick(5_000);
    script.now_ms += 4_500;
    assert!(!is_granted(script.signal(heir(request, 101))), "its first lease is over already");
    let mut told = false;
    for _ in 0..6_000 {
        script.tick(100);
        let sent: Vec<_> = script
            .outputs
            .iter()
            .filter_map(|output| match output {
                Output::Store { id, .. } => Some(*id),
                _ => None,
            })
            .collect();
        told |= script.outputs.iter().any(|output| matches!(output, Output::Failed { .. }));
        for id in sent {
            script.input(Input::Reply { id, result: Err(StoreError::transient("down")) });
            told |= script.outputs.iter().any(|output| matches!(output, Output::Failed { .. }));
        }
    }
    assert!(told, "ten minutes without a store, and the request still waits");
}

/// the renewal was sent in the very millisecond in which the monotonic clock stopped.
#[test]
fn what_was_sent_before_the_sleep_dispels_no_doubt() {
    let mut script = Script::new();
    script.acquire(1, true);
    script.answer([granted(64)]);
    script.tick(5_000);
    let (id, _) = script.sent();
    let asleep = Now { wall: script.now().wall.plus(60_000), ..script.now() };
    script.machine.handle(Input::Tick, asleep);
    let answers = [Answer::from(Outcome::Renewed { lease_ms: LEASE_MS, contended: false })].into();
    script.machine.handle(Input::Reply { id, result: Ok(Reply { store: STORE, answers }) }, asleep);
    assert_eq!(script.machine.remaining_ms(TurnId(1), &script.key, asleep), 0);
}
