//! Leases for the web and beyond.
//!
//! Browser tabs, workers and native tasks take turns on a named resource through leases in a shared store.
#![cfg_attr(docsrs, feature(doc_cfg))]

extern crate alloc;

mod driver;
mod error;
pub mod executor;
mod guard;
#[cfg(all(feature = "js", target_family = "wasm", target_os = "unknown"))]
#[doc(hidden)]
pub mod js;
pub mod machine;
mod manager;
mod request;
pub mod signal;
mod status;
pub mod store;

pub use error::AcquireError;
pub use guard::LeaseGuard;
pub use machine::{InvalidKey, InvalidOptions, LostReason, ReleaseOutcome, StoreError, Token};
pub use manager::{LeaseManager, LeaseManagerBuilder};
pub use request::LeaseRequest;
pub use status::{HolderStatus, LeaseStatus, WaiterStatus};
