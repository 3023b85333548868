//! What must hold in every state.

use std::fmt;

/// A rule, by the number that it has among the project's invariants and promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A session that has ended never comes back, and no id is inserted twice.
    AbsenceIsFinal,
    /// Tokens of later grants are larger, and a record's last token never goes back.
    TokensGrow,
    /// No two guards ever have the same token.
    GuardTokensDiffer,
    /// A fenced effect commits only if no conflicting grant was committed after its own, and no later guard of its context has held the
    /// grant, unless both share it.
    EffectsInOrder,
    /// A check, release, withdrawal or end of what is no longer there changes nothing of others.
    StaleIsHarmless,
    /// A session ends only by its own context, by evidence of death or silence that its ender gathered after it read the
    /// row, or by a trusted clock; and an entry goes only with its session, by its holder, or by theft.
    TakeoverNeedsEvidence,
    /// Who believes at the same time may hold together: several who share, or one alone.
    OneBeliever,
    /// Whoever believes stands in the record, as long as its session is there and nobody stole the lease.
    BeliefIsBacked,
    /// A lost guard is told once, and is never valid again.
    LossIsFinal,
    /// A release does not say that the guard was lost, unless it was.
    ReleaseIsNoLoss,
    /// Each request has at most one grant at a time, and is answered once.
    OneGrantPerRequest,
    /// Grants in the record fit each other, no request has two entries, and the queue is in order.
    RecordIsSound,
    /// At rest the head of the queue is never grantable.
    HeadIsNotGrantable,
    /// Whoever waits has a timer, a transaction under way, or a beacon to hear of.
    WaiterIsAwake,
    /// A batch does what its operations do one by one.
    BatchIsItsParts,
    /// A batch does the same where only the rows are read that it names.
    RowsSuffice,
    /// A batch that is sure of its session does the same where no session row is read.
    RecordSuffices,
    /// Who was robbed believes no longer than its lease, and not once it was told.
    RobbedAreTold,
    /// What was downgraded is shared in the record from then on.
    DowngradeLetsIn,
    /// Who keeps what nobody uses gives it back when it hears that somebody wants it.
    UnusedIsFreed,
    /// A request is sent as its users want it at that moment.
    AskedAsWanted,
    /// If a context has nothing to send, one of its users still wants each of its entries in a record, and each place with its priority.
    KeptIsWanted,
    /// Of several keys asked for at once, all are granted in one operation or none.
    AllOrNothing,
    /// An upgrade is refused because of a rival only if somebody alive upgraded meanwhile.
    ConflictNeedsRival,
    /// Run to rest, every live waiter is granted within bounds.
    WaitersAreGranted,
    /// Run to rest, nothing of a live context is left in the record.
    NothingIsLeft,
}

/// All rules that are noted while the world runs.
pub(crate) const NOTED: [Rule; 24] = [
    Rule::AbsenceIsFinal,
    Rule::TokensGrow,
    Rule::GuardTokensDiffer,
    Rule::EffectsInOrder,
    Rule::StaleIsHarmless,
    Rule::TakeoverNeedsEvidence,
    Rule::OneBeliever,
    Rule::BeliefIsBacked,
    Rule::LossIsFinal,
    Rule::ReleaseIsNoLoss,
    Rule::OneGrantPerRequest,
    Rule::RecordIsSound,
    Rule::HeadIsNotGrantable,
    Rule::WaiterIsAwake,
    Rule::BatchIsItsParts,
    Rule::RowsSuffice,
    Rule::RecordSuffices,
    Rule::RobbedAreTold,
    Rule::DowngradeLetsIn,
    Rule::UnusedIsFreed,
    Rule::AskedAsWanted,
    Rule::KeptIsWanted,
    Rule::AllOrNothing,
    Rule::ConflictNeedsRival,
];

impl Rule {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AbsenceIsFinal => "S1, S2: a session that has ended never comes back",
            Self::TokensGrow => "I1: tokens grow",
            Self::GuardTokensDiffer => "P2: no token is handed out twice",
            Self::EffectsInOrder => "I2, P1: effects commit only under the newest grant",
            Self::StaleIsHarmless => "I3, I9, P3: what is stale changes nothing",
            Self::TakeoverNeedsEvidence => "I4, S3, S4: a take-over needs evidence",
            Self::OneBeliever => "I5, I7, I13, P4: only those believe at once who may hold together",
            Self::BeliefIsBacked => "who believes stands in the record",
            Self::LossIsFinal => "I6: loss is told once and is final",
            Self::ReleaseIsNoLoss => "I6: a release reports no loss that did not happen",
            Self::OneGrantPerRequest => "I8: a request has one grant and one answer",
            Self::RecordIsSound => "I1, I5, I8, a: the record is sound",
            Self::HeadIsNotGrantable => "f: the head of the queue is never grantable at rest",
            Self::WaiterIsAwake => "the queue loses nobody alive",
            Self::BatchIsItsParts => "a batch does what its operations do",
            Self::RowsSuffice => "a batch names all rows that it needs",
            Self::RecordSuffices => "S17: who is sure of its session needs the record only",
            Self::RobbedAreTold => "the robbed are told, and believe no longer than their lease",
            Self::DowngradeLetsIn => "a downgrade lets others in",
            Self::UnusedIsFreed => "what nobody uses is given back when it is wanted",
            Self::AskedAsWanted => "a request is sent as its users want it at that moment",
            Self::KeptIsWanted => "each entry of a context is still wanted",
            Self::AllOrNothing => "I14: several keys are granted together or not at all",
            Self::ConflictNeedsRival => "an upgrade makes way for the upgrade of somebody alive only",
            Self::WaitersAreGranted => "I11, P6: a live waiter is granted in the end",
            Self::NothingIsLeft => "I8: nothing is left behind",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The rules that were broken on the way to a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Broken(u32);

impl Broken {
    /// Notes a rule unless it holds.
    pub fn unless(&mut self, holds: bool, rule: Rule) {
        if !holds {
            self.0 |= 1 << rule as u16;
        }
    }

    /// Whether a rule was broken.
    pub const fn has(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u16) != 0
    }

    /// Whether any was.
    pub const fn any(self) -> bool {
        self.0 != 0
    }

    /// Those that were broken.
    pub fn rules(self) -> impl Iterator<Item = Rule> {
        NOTED.into_iter().filter(move |rule| self.has(*rule))
    }
}
