//! What a URL says of this store.

use super::{Link, PREFIX, RedisServers, RedisStore, check_prefix};
use crate::{
    machine::StoreError,
    store::{
        tls::Certificates,
        url::{FromUrl, Parts},
    },
};

impl FromUrl for RedisStore {
    fn check_url(url: &Parts<'_>) -> Result<(), StoreError> {
        let prefix = url.prefix.unwrap_or(PREFIX);
        check_prefix(prefix)?;
        match url.for_client().parse::<RedisServers>() {
            Ok(servers) => Link::new(&servers, prefix).map(drop),
            // The error is about a file that is missing or useless, which may change. The URL is valid.
            Err(error) if error.retry => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn open_url(url: &Parts<'_>) -> Result<Self, StoreError> {
        Certificates::check(["ca", "cert", "key"], &url.others)?;
        Self::connect_with_prefix(&url.for_client(), url.prefix.unwrap_or(PREFIX)).await
    }
}
