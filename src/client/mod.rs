//! What users call: the manager, its requests, the guards that they return, and the errors and states of all these.

mod builder;
pub(crate) mod error;
pub(crate) mod fate;
pub(crate) mod fence;
mod from_url;
pub(crate) mod guard;
mod look;
pub(crate) mod manager;
pub(crate) mod mapped;
pub(crate) mod multi;
mod multi_guard;
pub(crate) mod parts;
pub(crate) mod pending;
pub(crate) mod request;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod wish;

pub use builder::LeaseManagerBuilder;
pub use error::AcquireError;
pub use fate::{LeaseState, LeaseWatch};
pub use guard::LeaseGuard;
pub use manager::LeaseManager;
pub use mapped::MappedLeaseGuard;
pub use multi::MultiRequest;
pub use multi_guard::MultiGuard;
pub use parts::{InvalidParts, LeaseParts};
pub use request::{LeaseRequest, OnLoss};
pub use run::Ran;
pub use status::{HolderStatus, LeaseStatus, WaiterStatus};
