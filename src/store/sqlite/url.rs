//! What a URL says of this store.

use std::{borrow::ToOwned, format, path::Path};

use super::{PREFIX, SqliteStore, file};
use crate::{
    machine::StoreError,
    oneshot,
    store::url::{FromUrl, Parts, refused},
};

impl FromUrl for SqliteStore {
    fn check_url(url: &Parts<'_>) -> Result<(), StoreError> {
        url.check_parameters(&["prefix"])?;
        let path = path_in(url);
        if path.split('/').next().is_some_and(|host| host.contains('@')) {
            return Err(refused(
                "a URL of sqlite: names a file, and neither a user nor a host; for a file whose name has an @, write \
                 ./ before it"
                    .into(),
            ));
        }
        if path.is_empty() {
            return Err(refused(
                "the URL names no file after `sqlite:`; write sqlite:leases.db or sqlite:/var/lib/app/leases.db".into(),
            ));
        }
        file::check_names(Path::new(path), url.prefix.unwrap_or(PREFIX))
    }

    async fn open_url(url: &Parts<'_>) -> Result<Self, StoreError> {
        let (path, prefix) = (path_in(url).to_owned(), url.prefix.unwrap_or(PREFIX).to_owned());
        let (sender, opened) = oneshot::channel();
        // Opening waits for other writers, and must not block the runtime meanwhile.
        let opener = move || sender.send(Self::open_with_prefix(path, &prefix));
        let opening = std::thread::Builder::new().name("leasehold opens".into()).spawn(opener);
        opening.map_err(|error| StoreError::transient(format!("no thread could be started: {error}")))?;
        let ended = || Err(StoreError::transient("the thread that opened the file ended early"));
        opened.await.unwrap_or_else(ended)
    }
}

/// The path of a file, as written.
fn path_in<'a>(url: &Parts<'a>) -> &'a str {
    url.place.strip_prefix("//").unwrap_or(url.place)
}
