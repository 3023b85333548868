//! What users call: the manager, its requests, the guards that they return, and the errors and states of all these.

pub(crate) mod error;
pub(crate) mod fate;
pub(crate) mod fence;
mod from_url;
pub(crate) mod guard;
mod look;
pub(crate) mod manager;
pub(crate) mod mapped;
pub(crate) mod multi;
pub(crate) mod parts;
pub(crate) mod request;
pub(crate) mod run;
pub(crate) mod status;

pub use error::AcquireError;
pub use fate::{LeaseState, LeaseWatch};
pub use guard::LeaseGuard;
pub use manager::{LeaseManager, LeaseManagerBuilder};
pub use mapped::MappedLeaseGuard;
pub use multi::{MultiGuard, MultiRequest};
pub use parts::{InvalidParts, LeaseParts};
pub use request::{LeaseRequest, OnLoss};
pub use run::Ran;
pub use status::{HolderStatus, LeaseStatus, WaiterStatus};
