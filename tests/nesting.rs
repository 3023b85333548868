//! An application may open a store deep inside its own functions. The compiler refuses futures that nest too deeply ("queries overflow the
//! depth limit"), so the test is that this file compiles. The outer functions stand above the inner ones: in the opposite order the
//! compiler would know the inner futures already, and would nest less deeply.

#![cfg(not(target_family = "wasm"))]

use leasehold::{LeaseManager, executor::TokioExecutor};

/// Defines functions that await each other, the outermost first.
macro_rules! nested {
    ($outer:ident $inner:ident $($rest:ident)*) => {
        async fn $outer(url: &str) -> bool {
            $inner(url).await
        }
        nested!($inner $($rest)*);
    };
    ($innermost:ident) => {
        async fn $innermost(url: &str) -> bool {
            LeaseManager::from_url(url, TokioExecutor::new()).await.is_ok()
        }
    };
}

#[tokio::test]
async fn a_store_can_be_opened_sixteen_functions_deep() {
    assert!(a("memory:").await);
}

nested!(a b c d e f g h i j k l m n o p);
