//! What may happen: steps that mean something whatever happened before, so that any part of a history is one too.

use leasehold::machine::Mode;
use proptest::prelude::*;

/// The names of all keys. What begins with `\0lock:` is a lock: its record goes as soon as it is idle.
pub(crate) const KEYS: [&str; 4] = ["key 0", "\0lock:a", "key 1", "\0lock:b"];

/// One batch, and what happened before it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Which context acts.
    pub(crate) who: u8,
    pub(crate) key: u8,
    pub(crate) pass: Passing,
    /// A newer version of the same format added fields to all that the store has.
    pub(crate) newer: bool,
    /// A context without a session opens one along with what it asks for.
    pub(crate) opens: bool,
    pub(crate) verb: Verb,
}

/// How time goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Passing {
    Both(u16),
    /// The wall clock jumps.
    Wall(i64),
}

#[derive(Clone, Debug)]
pub(crate) enum Verb {
    /// A session opens. The context's earlier one, whose opening or end nobody confirmed, ends by it.
    Open(Life),
    Beat {
        late: bool,
        life: Life,
        /// Attempts so far come late from now on.
        raises: bool,
    },
    Close,
    /// The row is deleted blindly, and nobody reads the keys.
    Abandon,
    /// A session that stood still is ended, with nothing done to any key.
    EndRow {
        pick: u8,
        stale: bool,
    },
    Ask(Wish),
    /// An earlier request comes again.
    AskAgain {
        pick: u8,
        change: Change,
    },
    AskAll(Vec<(u8, Wish)>),
    /// Any earlier operation comes once more, as it was: a duplicate that was on its way for long.
    Late {
        pick: u8,
    },
    Verify {
        pick: Pick,
        refill: bool,
    },
    Downgrade(Pick),
    Detach {
        pick: Pick,
        lease_ms: u16,
    },
    Release {
        pick: Pick,
        foreign_request: bool,
    },
    Withdraw {
        pick: u8,
    },
    /// The session of a grant, or of a waiter, is ended.
    End {
        pick: u8,
        waiter: bool,
        stale: bool,
    },
    Look,
    Fence {
        pick: Pick,
        shared: bool,
    },
    Inspect,
    Forget,
}

/// What a heartbeat says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) beacon: bool,
    pub(crate) lease_ms: u16,
}

#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) mode: Mode,
    pub(crate) way: WayWish,
    pub(crate) wait: bool,
    pub(crate) priority: i32,
    pub(crate) alone: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum WayWish {
    Plain,
    Steal,
    Upgrade(Pick),
    /// Take over one of the detached leases.
    Resume(u8),
}

/// How a request differs when it comes again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// A duplicate, with the number of its first attempt.
    None,
    /// A retry.
    Attempt,
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

/// A history of this many contexts.
pub(crate) fn steps(contexts: u8, longest: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(contexts), 1..longest)
}

fn step(contexts: u8) -> impl Strategy<Value = Step> {
    let newer = prop::bool::weighted(0.08);
    (0..contexts, key(), passing(), newer, prop::bool::weighted(0.9), verb())
        .prop_map(|(who, key, pass, newer, opens, verb)| Step { who, key, pass, newer, opens, verb })
}

/// Most of what is of interest happens at one key.
fn key() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(0u8), 4 => Just(1u8), 1 => Just(2u8), 1 => Just(3u8)]
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
    prop_oneof![20 => of_sessions(), 60 => of_keys()]
}

fn of_sessions() -> impl Strategy<Value = Verb> {
    let beat = (prop::bool::weighted(0.2), life(), prop::bool::weighted(0.3));
    let end = (any::<u8>(), prop::bool::weighted(0.3));
    prop_oneof![
        2 => life().prop_map(Verb::Open),
        8 => beat.prop_map(|(late, life, raises)| Verb::Beat { late, life, raises }),
        2 => Just(Verb::Close),
        2 => Just(Verb::Abandon),
        2 => end.prop_map(|(pick, stale)| Verb::EndRow { pick, stale }),
        2 => Just(Verb::Forget),
    ]
}

fn of_keys() -> impl Strategy<Value = Verb> {
    let again = (any::<u8>(), change()).prop_map(|(pick, change)| Verb::AskAgain { pick, change });
    let all = prop::collection::vec((0..KEYS.len() as u8, wish()), 1..4).prop_map(Verb::AskAll);
    let verify = (pick(), prop::bool::weighted(0.3)).prop_map(|(pick, refill)| Verb::Verify { pick, refill });
    let release =
        (pick(), prop::bool::weighted(0.1)).prop_map(|(pick, foreign_request)| Verb::Release { pick, foreign_request });
    let end = (any::<u8>(), any::<bool>(), prop::bool::weighted(0.3)).prop_map(|(pick, waiter, stale)| Verb::End {
        pick,
        waiter,
        stale,
    });
    let detach = (pick(), lease()).prop_map(|(pick, lease_ms)| Verb::Detach { pick, lease_ms });
    prop_oneof![
        20 => wish().prop_map(Verb::Ask),
        6 => again,
        3 => all,
        3 => any::<u8>().prop_map(|pick| Verb::Late { pick }),
        3 => verify,
        2 => pick().prop_map(Verb::Downgrade),
        3 => detach,
        8 => release,
        3 => any::<u8>().prop_map(|pick| Verb::Withdraw { pick }),
        4 => end,
        3 => Just(Verb::Look),
        3 => (pick(), prop::bool::ANY).prop_map(|(pick, shared)| Verb::Fence { pick, shared }),
        1 => Just(Verb::Inspect),
    ]
}

fn wish() -> impl Strategy<Value = Wish> {
    let way = prop_oneof![
        12 => Just(WayWish::Plain),
        2 => Just(WayWish::Steal),
        3 => pick().prop_map(WayWish::Upgrade),
        3 => any::<u8>().prop_map(WayWish::Resume),
    ];
    let priority = prop_oneof![3 => Just(0), 1 => -1..3i32, 1 => prop_oneof![Just(i32::MIN), Just(i32::MAX)]];
    (mode(), way, prop::bool::weighted(0.7), priority, prop::bool::weighted(0.2)).prop_map(
        |(mode, way, wait, priority, alone)| {
            // As the door has it: only exclusive requests rob, and an upgrade is exclusive.
            let mode = if matches!(way, WayWish::Steal | WayWish::Upgrade(_)) { Mode::Exclusive } else { mode };
            Wish { mode, way, wait, priority, alone }
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        2 => Just(Change::None),
        4 => Just(Change::Attempt),
        2 => any::<bool>().prop_map(Change::Wait),
        1 => (-1..3i32).prop_map(Change::Priority),
        1 => Just(Change::Steals),
    ]
}

fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        12 => any::<u8>().prop_map(Pick::Own),
        2 => any::<u8>().prop_map(Pick::Standing),
        3 => any::<u8>().prop_map(Pick::Past),
        1 => prop_oneof![Just(0), Just(1 << 52), Just((1 << 53) - 65), 0..1u64 << 53].prop_map(Pick::Forged),
    ]
}

fn life() -> impl Strategy<Value = Life> {
    (any::<bool>(), lease()).prop_map(|(beacon, lease_ms)| Life { beacon, lease_ms })
}

fn lease() -> impl Strategy<Value = u16> {
    prop_oneof![1 => Just(0), 8 => 50..1_000u16, 2 => Just(u16::MAX)]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)]
}
