//! What the scenarios are made of: worlds, stores that misbehave, and what looks on.

pub(crate) mod chaos;
pub(crate) mod doubles;
pub(crate) mod ghost;
#[path = "../../histories/judge.rs"]
pub(crate) mod judge;
pub(crate) mod judged;
pub(crate) mod line;
pub(crate) mod oracle;
pub(crate) mod shelf;
pub(crate) mod vault;
pub(crate) mod worker;
pub(crate) mod world;
pub(crate) mod yard;
