//! What a URL says of this store.

use super::{Address, EtcdStore, PREFIX, address};
use crate::{
    machine::StoreError,
    store::{
        tls::Certificates,
        url::{FromUrl, Parts},
    },
};

impl FromUrl for EtcdStore {
    fn check_url(url: &Parts<'_>) -> Result<(), StoreError> {
        address::check_prefix(url.prefix.unwrap_or(PREFIX))?;
        Address::parse(&url.for_client()).map(drop)
    }

    async fn open_url(url: &Parts<'_>) -> Result<Self, StoreError> {
        Certificates::check(["ca", "cert", "key"], &url.others)?;
        Self::connect_with_prefix(&url.for_client(), url.prefix.unwrap_or(PREFIX)).await
    }
}
