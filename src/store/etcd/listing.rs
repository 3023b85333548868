//! Records, page by page.

use std::vec::Vec;

use etcd_client::{GetOptions, SortOrder, SortTarget};
use tokio::time::Instant;

use super::{
    failure::Load,
    servers::{LONGEST_ANSWER, Servers},
};
use crate::machine::StoreError;

/// A name, and the text under it.
pub(super) type NamedText = (Vec<u8>, Vec<u8>);

/// The next rows whose names begin with the prefix, in order, at most `most`; and the name at which the next page begins, if there is one.
pub(super) async fn page(
    servers: &Servers,
    prefix: &str,
    from: Vec<u8>,
    most: usize,
    deadline: Instant,
) -> Result<(Vec<NamedText>, Option<Vec<u8>>), StoreError> {
    let options =
        GetOptions::new().with_range(after_all(prefix.as_bytes())).with_limit(i64::try_from(most).unwrap_or(i64::MAX));
    let options = options.with_sort(SortTarget::Key, SortOrder::Ascend);
    let asked = servers.ask(Load::default(), deadline, |client| async move {
        client.kv_client().max_decoding_message_size(LONGEST_ANSWER).get(from, Some(options)).await
    });
    let found = asked.await.map_err(|failure| failure.error)?;
    let rows: Vec<_> = found.kvs().iter().map(|found| (found.key().to_vec(), found.value().to_vec())).collect();
    let next = rows.last().filter(|_| found.more()).map(|(last, _)| [last.as_slice(), &[0]].concat());
    Ok((rows, next))
}

/// The first name that is after all that begin like this. A prefix has a byte that is not the last one.
fn after_all(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}
