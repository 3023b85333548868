//! How the store's SQL reaches the server: one module for each driver.

#[cfg(feature = "store-postgres")]
mod client;
#[cfg(feature = "store-postgres-deadpool")]
mod deadpool;
#[cfg(feature = "store-postgres-sqlx")]
mod sqlx;
