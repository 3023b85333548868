//! The wasm of the npm package: all that leasehold's feature `js` exports, and nothing besides.

use leasehold as _;
