//! The wasm of the npm package: all that leasehold's feature `js` exports, and nothing besides.

use leasehold as _;

/// As quick as the standard library's, and 4 kB smaller.
#[global_allocator]
static ALLOCATOR: rlsf::SmallGlobalTlsf = rlsf::SmallGlobalTlsf::new();
