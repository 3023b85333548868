//! Leases for the web and beyond: tabs, workers and tasks take turns on a named resource, and a lost turn is told.
//!
//! * [`LeaseManager`] is one context's door to a store; [`LeaseManager::lock`] asks for a lease, and a [`LeaseGuard`]
//!   is one that is held.
//! * [`store`] is where contexts meet, [`signal`] how they tell each other, [`executor`] the world they run in: traits,
//!   and adapters for browsers and for native programs.
//! * [`machine`] decides everything: pure, for model checkers, simulators and authors of stores.
//!
//! What a lease promises and what not is said in the
//! [README](https://github.com/leasehold/leasehold#what-it-promises-and-what-not).
//!
//! ```
//! use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
//! let guard = leases.lock("notes").acquire().await?;
//! // … write, with guard.token() …
//! guard.release().await?;
//! # Ok(()) }
//! ```

extern crate alloc;

mod answer;
mod driver;
mod error;
mod event;
mod events;
pub mod executor;
mod fate;
mod fence;
mod guard;
#[cfg(all(feature = "js", target_family = "wasm", target_os = "unknown"))]
#[doc(hidden)]
pub mod js;
mod ledger;
pub mod machine;
mod manager;
mod mapped;
mod multi;
mod parts;
mod request;
mod run;
pub mod signal;
mod status;
pub mod store;

pub use error::AcquireError;
pub use event::{LeaseEvent, LeaseEventKind, LeaseStats};
pub use events::LeaseEvents;
pub use fate::{LeaseState, LeaseWatch};
pub use guard::LeaseGuard;
pub use machine::{InvalidKey, InvalidOptions, LostReason, Mode, ReleaseOutcome, StoreError, Token};
pub use manager::{LeaseManager, LeaseManagerBuilder};
pub use mapped::MappedLeaseGuard;
pub use multi::{MultiGuard, MultiRequest};
pub use parts::LeaseParts;
pub use request::{LeaseRequest, OnLoss};
pub use run::Ran;
pub use status::{HolderStatus, LeaseStatus, WaiterStatus};
pub use store::FenceError;

/// The Rust examples of the README and of the guides run as tests; tests/documents.rs sees that none is left out.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/choose-times.md")]
    struct ChooseTimes;
    #[doc = include_str!("../docs/write-a-store.md")]
    struct WriteAStore;
}
