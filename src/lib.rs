//! Named locks with a time limit for tabs, workers, tasks and processes. A holder that loses its lock is notified.
//!
//! * A [`LeaseManager`] connects one context to a store. [`LeaseManager::lock`] makes a request for a lease, and a
//!   [`LeaseGuard`] is a lease that is held.
//! * [`store`], [`signal`] and [`executor`] have the traits for what all contexts share, for how they notify each other, and
//!   for the runtime they live in, with adapters for browsers and for native programs.
//!   Those for browsers are `IndexedDbStore` and `WebExecutor`, of the feature `web`: see the
//!   [pages for wasm32-unknown-unknown](https://docs.rs/leasehold/latest/wasm32-unknown-unknown/leasehold/), and
//!   [Rust in the browser](https://github.com/leasehold/leasehold/blob/HEAD/docs/rust-in-the-browser.md).
//! * [`machine`] has the rules that all this obeys, as pure code. Authors of stores and signals need it, and so do model checkers.
//!
//! The [README](https://github.com/leasehold/leasehold#what-it-promises-and-what-it-does-not) says what a lease promises and what it
//! does not.
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

mod client;
mod driver;
pub mod executor;
#[cfg(all(feature = "js", target_family = "wasm", target_os = "unknown"))]
#[doc(hidden)]
pub mod js;
pub mod machine;
mod oneshot;
pub mod signal;
pub mod store;

pub use client::{
    AcquireError, HolderStatus, InvalidParts, LeaseGuard, LeaseManager, LeaseManagerBuilder, LeaseParts, LeaseRequest,
    LeaseState, LeaseStatus, LeaseWatch, MappedLeaseGuard, MultiGuard, MultiRequest, OnLoss, Ran, WaiterStatus,
};
pub use driver::{LeaseEvent, LeaseEventKind, LeaseEvents, LeaseStats};
pub use machine::{InvalidKey, InvalidOptions, LostReason, Mode, ReleaseOutcome, StoreError, Token};
pub use store::FenceError;

/// The Rust examples of the README and of the guides are doctests, and the program of the native worker runs as
/// `examples/report_worker.rs`; tests/documents.rs checks that none is left out.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[cfg(feature = "store-sqlite")]
    #[doc = include_str!("../docs/a-native-worker.md")]
    struct ANativeWorker;
    #[doc = include_str!("../docs/beyond-one-process.md")]
    struct BeyondOneProcess;
    #[doc = include_str!("../docs/command-line.md")]
    struct CommandLine;
    #[doc = include_str!("../docs/choose-times.md")]
    struct ChooseTimes;
    #[doc = include_str!("../docs/elect-a-leader.md")]
    struct ElectALeader;
    #[doc = include_str!("../docs/guard-a-store.md")]
    struct GuardAStore;
    #[doc = include_str!("../docs/test-your-code.md")]
    struct TestYourCode;
    #[doc = include_str!("../docs/write-a-store.md")]
    struct WriteAStore;
}
