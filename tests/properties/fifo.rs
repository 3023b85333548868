//! One key, exclusive requests of one priority, nobody dies: as simple as a queue in front of a door.

use std::collections::VecDeque;

use leasehold::machine::{Acquire, Action, Batch, Beat, Operation, Outcome, RequestId, SessionId, SessionStep};
use proptest::prelude::*;

use crate::shop::Kind;
use crate::world::World;

type Who = (u8, u64);

/// What the same steps do to a queue that anybody understands.
#[derive(Debug, Default)]
struct Door {
    inside: Option<Who>,
    queue: VecDeque<Who>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Wait,
    Try,
    /// The latest request comes again.
    Again,
    Leave,
}

impl Door {
    /// Whether the request is inside now, in the queue, or neither.
    fn ask(&mut self, who: Who, waits: bool) -> &'static str {
        if self.inside == Some(who) {
            return "inside";
        }
        let has_place = self.queue.contains(&who);
        // A fresh request replaces the older one of the same holder.
        self.queue.retain(|queued| queued.0 != who.0 || *queued == who);
        let first = self.inside.is_none() && self.queue.front().is_none_or(|first| *first == who);
        if !waits && !first {
            self.queue.retain(|queued| *queued != who);
            return "refused";
        }
        if !has_place {
            self.queue.push_back(who);
        }
        self.admit();
        if self.inside == Some(who) { "inside" } else { "queued" }
    }

    fn leave(&mut self, who: Who) {
        self.queue.retain(|queued| *queued != who);
        self.inside.take_if(|inside| *inside == who);
        self.admit();
    }

    fn admit(&mut self) {
        if self.inside.is_none() {
            self.inside = self.queue.pop_front();
        }
    }
}

fn step() -> impl Strategy<Value = (u8, Step)> {
    let verb = prop_oneof![3 => Just(Step::Wait), 1 => Just(Step::Try), 2 => Just(Step::Again), 3 => Just(Step::Leave)];
    (0..4u8, verb)
}

fn play(steps: &[(u8, Step)]) {
    let (mut world, mut door) = (World::new(Kind::NamedSessions, false), Door::default());
    for session in 0..4 {
        let beat = Beat { beat: 1, lease_ms: 500, ..Beat::default() };
        let step = SessionStep::Open { beat, instance: String::new() };
        world.run(&Batch { step, ..Batch::new(SessionId(session), Vec::new()) });
    }
    let key = world.keys[0].clone();
    let mut latest = [(0u64, false); 4];
    for (attempt, (holder, step)) in (1u64..).zip(steps) {
        let (request, waits) = &mut latest[usize::from(*holder)];
        match step {
            Step::Wait => (*request, *waits) = (attempt, true),
            Step::Try => (*request, *waits) = (attempt, false),
            Step::Again | Step::Leave => {}
        }
        let (who, waits) = ((*holder, *request), *waits);
        let request = RequestId(*request);
        let action = match step {
            Step::Leave => Action::Withdraw { request },
            _ => Action::Acquire(Acquire { wait: waits, ..Acquire::new(request, attempt) }),
        };
        let operation = Operation { key: key.clone(), action };
        let reply = world.run(&Batch::new(SessionId((*holder).into()), vec![operation]));
        match (step, reply.answers[0].outcome.clone()) {
            (Step::Leave, outcome) => {
                assert_eq!(outcome, Outcome::Withdrawn);
                door.leave(who);
            }
            (_, Outcome::Granted(_)) => assert_eq!(door.ask(who, waits), "inside"),
            (_, Outcome::Waiting { .. }) => assert_eq!(door.ask(who, waits), "queued"),
            (_, Outcome::Busy { .. }) => assert_eq!(door.ask(who, waits), "refused"),
            (_, other) => panic!("{other:?}"),
        }
        let record = world.view.records.get(&key).and_then(Option::clone).unwrap_or_default();
        let named = |holder: SessionId, request: RequestId| (u8::try_from(holder.0).unwrap(), request.0);
        let inside: Vec<_> = record.grants.iter().map(|grant| named(grant.holder, grant.request)).collect();
        let queue: Vec<_> = record.queue.iter().map(|waiter| named(waiter.holder, waiter.request)).collect();
        assert_eq!((inside, queue), (door.inside.into_iter().collect(), door.queue.iter().copied().collect()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_exclusive_key_is_a_queue_in_front_of_a_door(steps in prop::collection::vec(step(), 1..80)) {
        play(&steps);
    }
}
