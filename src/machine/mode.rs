//! Modes: who may hold a key together.

/// How a lease excludes others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// One context holds the key: for writing.
    #[default]
    Exclusive,
    /// Many may hold the key at once, while nobody holds it exclusively: for reading.
    Shared,
}

impl Mode {
    /// The mode's name, as records and JavaScript show it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        }
    }

    /// The mode of this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Exclusive, Self::Shared].into_iter().find(|mode| mode.name() == name)
    }

    /// Whether two leases of one key may be held at the same time.
    pub(super) const fn fits(self, other: Self) -> bool {
        matches!((self, other), (Self::Shared, Self::Shared))
    }
}
