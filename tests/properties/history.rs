//! What may happen: steps that mean something whatever happened before, so that any part of a history is one too.

use leasehold::machine::Mode;
use proptest::prelude::*;

pub(crate) const KEYS: u8 = 3;
pub(crate) const HOLDERS: u8 = 4;

/// One operation, and what happened before it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) who: u8,
    pub(crate) key: u8,
    pub(crate) pass: Passing,
    /// The records went through a store.
    pub(crate) stored: Option<Stored>,
    pub(crate) verb: Verb,
}

/// How time goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Passing {
    Both(u16),
    /// The wall clock jumps.
    Wall(i64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stored {
    Plainly,
    /// A newer version of the same format added fields.
    WithExtras,
}

#[derive(Clone, Debug)]
pub(crate) enum Verb {
    Ask(Wish),
    /// An earlier request comes again.
    AskAgain {
        pick: u8,
        change: Change,
    },
    AskAll(Vec<(u8, Wish)>),
    /// The earlier asking for several keys comes again.
    AskAllAgain {
        pick: u8,
    },
    Renew {
        pick: Pick,
        late: bool,
        lease_ms: u16,
        refill: bool,
    },
    Downgrade(Pick),
    Release {
        pick: Pick,
        foreign_request: bool,
    },
    Withdraw {
        pick: u8,
    },
    Evict {
        pick: Pick,
        stale: bool,
    },
    EvictWaiter {
        pick: u8,
        stale: bool,
    },
    Fence(Pick),
    Inspect,
}

#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) mode: Mode,
    pub(crate) way: WayWish,
    pub(crate) wait: bool,
    pub(crate) priority: i32,
    pub(crate) alone: bool,
    pub(crate) lease_ms: u16,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum WayWish {
    Plain,
    Steal,
    Upgrade(Pick),
    Resume(Pick),
}

/// How a request differs when it comes again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// A duplicate.
    None,
    /// A retry.
    Beat,
    Wait(bool),
    Priority(i32),
    Steals,
}

/// Which grant is meant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pick {
    /// One that stands, named by who holds it.
    Own(u8),
    /// One that stands, named by whoever acts.
    Standing(u8),
    /// Any that ever stood.
    Past(u8),
    /// None that ever stood.
    Forged(u64),
}

pub(crate) fn steps(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..longest)
}

fn step() -> impl Strategy<Value = Step> {
    let stored = prop_oneof![12 => Just(None), 1 => Just(Some(Stored::Plainly)), 1 => Just(Some(Stored::WithExtras))];
    (0..HOLDERS, 0..KEYS, passing(), stored, verb()).prop_map(|(who, key, pass, stored, verb)| Step {
        who,
        // Most of what is of interest happens at one key.
        key: key.saturating_sub(1),
        pass,
        stored,
        verb,
    })
}

fn passing() -> impl Strategy<Value = Passing> {
    let jump =
        prop_oneof![-40_000i64..40_000, Just(31_536_000_000), Just(-31_536_000_000), Just(i64::MAX), Just(i64::MIN)];
    prop_oneof![
        8 => (0..40u16).prop_map(Passing::Both),
        4 => (0..400u16).prop_map(Passing::Both),
        1 => (0..4_000u16).prop_map(Passing::Both),
        1 => jump.prop_map(Passing::Wall),
    ]
}

fn verb() -> impl Strategy<Value = Verb> {
    let again = (any::<u8>(), change()).prop_map(|(pick, change)| Verb::AskAgain { pick, change });
    let all = prop::collection::vec((0..KEYS, wish()), 1..4).prop_map(Verb::AskAll);
    let renew = (pick(), prop::bool::weighted(0.2), lease(), prop::bool::weighted(0.2))
        .prop_map(|(pick, late, lease_ms, refill)| Verb::Renew { pick, late, lease_ms, refill });
    let release =
        (pick(), prop::bool::weighted(0.1)).prop_map(|(pick, foreign_request)| Verb::Release { pick, foreign_request });
    let evict = (pick(), prop::bool::weighted(0.3)).prop_map(|(pick, stale)| Verb::Evict { pick, stale });
    let waiter = (any::<u8>(), prop::bool::weighted(0.3)).prop_map(|(pick, stale)| Verb::EvictWaiter { pick, stale });
    prop_oneof![
        12 => wish().prop_map(Verb::Ask),
        5 => again,
        2 => all,
        1 => any::<u8>().prop_map(|pick| Verb::AskAllAgain { pick }),
        4 => renew,
        2 => pick().prop_map(Verb::Downgrade),
        6 => release,
        2 => any::<u8>().prop_map(|pick| Verb::Withdraw { pick }),
        2 => evict,
        1 => waiter,
        1 => pick().prop_map(Verb::Fence),
        1 => Just(Verb::Inspect),
    ]
}

fn wish() -> impl Strategy<Value = Wish> {
    let way = prop_oneof![
        12 => Just(WayWish::Plain),
        2 => Just(WayWish::Steal),
        3 => pick().prop_map(WayWish::Upgrade),
        1 => pick().prop_map(WayWish::Resume),
    ];
    let priority = prop_oneof![3 => Just(0), 1 => -1..3i32, 1 => prop_oneof![Just(i32::MIN), Just(i32::MAX)]];
    (mode(), way, prop::bool::weighted(0.7), priority, prop::bool::weighted(0.2), lease()).prop_map(
        |(mode, way, wait, priority, alone, lease_ms)| {
            // As the door has it: only exclusive requests rob, and an upgrade is exclusive.
            let mode = if matches!(way, WayWish::Steal | WayWish::Upgrade(_)) { Mode::Exclusive } else { mode };
            Wish { mode, way, wait, priority, alone, lease_ms }
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        2 => Just(Change::None),
        4 => Just(Change::Beat),
        2 => any::<bool>().prop_map(Change::Wait),
        1 => (-1..3i32).prop_map(Change::Priority),
        1 => Just(Change::Steals),
    ]
}

fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        12 => any::<u8>().prop_map(Pick::Own),
        2 => any::<u8>().prop_map(Pick::Standing),
        2 => any::<u8>().prop_map(Pick::Past),
        1 => prop_oneof![Just(0), Just(1 << 53), Just(u64::MAX), any::<u64>()].prop_map(Pick::Forged),
    ]
}

fn lease() -> impl Strategy<Value = u16> {
    prop_oneof![1 => Just(0), 8 => 50..1_000u16, 1 => Just(u16::MAX)]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)]
}
