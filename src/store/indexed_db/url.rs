//! What a URL says of this store.

use super::IndexedDbStore;
use crate::{
    machine::StoreError,
    store::url::{FromUrl, Parts, refused},
};

impl FromUrl for IndexedDbStore {
    fn check_url(url: &Parts<'_>) -> Result<(), StoreError> {
        if url.place.is_empty() {
            return Err(refused(
                "the URL names no store after `indexeddb:`; add a name, as in indexeddb:my-app".into(),
            ));
        }
        url.check_parameters(&[])
    }

    async fn open_url(url: &Parts<'_>) -> Result<Self, StoreError> {
        Ok(Self::new(url.place))
    }
}
