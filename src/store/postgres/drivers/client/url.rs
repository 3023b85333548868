//! What a URL says of this store.

use super::{Address, PostgresStore, address::FILES, check_prefix};
use crate::{
    machine::StoreError,
    store::{
        tls::Certificates,
        url::{FromUrl, Parts, refused},
    },
};

impl FromUrl for PostgresStore {
    fn check_url(url: &Parts<'_>) -> Result<(), StoreError> {
        check_signals(url)?;
        url.prefix.map_or(Ok(()), check_prefix)?;
        Address::read(&url.for_client(), false).map(drop)
    }

    async fn open_url(url: &Parts<'_>) -> Result<Self, StoreError> {
        let is_file = |parameter: &&str| *parameter != "sslrootcert=system";
        let files: Vec<_> = url.others.iter().copied().filter(is_file).collect();
        Certificates::check(FILES, &files)?;
        let builder = Self::builder(&url.for_client());
        let builder = if let Some(prefix) = url.prefix { builder.prefix(prefix) } else { builder };
        let builder = match url.signals.as_slice() {
            ["signals=off"] => builder.without_signals(),
            ["signals=beacons"] => builder.with_beacons(),
            _ => builder,
        };
        let store = builder.connect().await?;
        store.migrate().await?;
        Ok(store)
    }
}

fn check_signals(url: &Parts<'_>) -> Result<(), StoreError> {
    let why = match url.signals.as_slice() {
        [] | ["signals=off" | "signals=beacons"] => return Ok(()),
        [_] => "can only be off or beacons; leave it out for signals without beacons",
        _ => "is given twice; leave one out",
    };
    Err(refused(format!("the parameter signals in a URL of {}: {why}", url.scheme)))
}
