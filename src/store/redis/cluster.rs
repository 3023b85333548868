//! The node of a cluster that has the slot of a store.

use std::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use redis::{Client, ConnectionInfo, RedisError, Value, cmd};

use super::{
    failure::{self, Stage},
    node::{Node, address_of, client_at, first_of, one_of, prepared},
};
use crate::executor::Mutex;
use crate::{machine::StoreError, store::tls::Certificates};

/// The number of slots in every cluster.
const SLOTS: u16 = 16_384;

/// The nodes of a cluster, and the slot that all rows of the store are in.
pub(super) struct Cluster {
    slot: u16,
    /// The nodes that the user named. Their names may outlive the addresses that the cluster reports.
    seeds: Vec<Client>,
    /// The nodes to ask for the slot: the one that answered last, then those that it reported.
    nodes: Mutex<Vec<Client>>,
    /// How to connect to a node that the user did not name. The address in it is that of the first seed.
    like: ConnectionInfo,
}

/// Where a node redirects a command that it does not serve, and so has not run.
pub(super) enum Redirect {
    /// The slot belongs to the node at this address.
    Moved(String),
    /// The slot is being migrated to the node at this address, which already has this key.
    Ask(String),
}

impl Cluster {
    /// # Errors
    /// [`StoreError`] if there is no node, or if a node is given with another database than 0.
    pub(super) fn new(prefix: &str, nodes: &[Client]) -> Result<Self, StoreError> {
        let seeds =
            nodes.iter().map(|one| prepared(one.get_connection_info().clone())).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = seeds.first() else {
            return Err(failure::unsupported("no node of the cluster is named; name at least one"));
        };
        let like = first.get_connection_info().clone();
        if let Some(database) =
            seeds.iter().map(|one| one.get_connection_info().redis_settings().db()).find(|db| *db != 0)
        {
            return Err(failure::unsupported(format!(
                "a cluster has no database {database}; leave its number out, and choose a prefix instead"
            )));
        }
        Ok(Self { slot: slot_of(prefix), nodes: Mutex::new(seeds.clone()), seeds, like })
    }

    /// The name of the cluster in errors.
    pub(super) fn address(&self) -> String {
        let nodes: Vec<_> = self.seeds.iter().map(address_of).collect();
        format!("the cluster of {}", nodes.join(", "))
    }

    /// Asks the nodes who has the slot, and connects to that node.
    ///
    /// # Errors
    /// [`StoreError`] if no node leads to it. Trying again does not help if the nodes are in no cluster.
    pub(super) async fn open(&self, files: &Certificates) -> Result<Node, StoreError> {
        let known = self.nodes.lock().clone();
        let attempts = known.iter().map(|node| self.owner_by(node, files)).collect();
        let (owner, others) = first_of(attempts).await.map_err(one_of)?;
        let mut nodes = Vec::new();
        for node in others.into_iter().chain(self.seeds.iter().cloned()) {
            if nodes.iter().all(|known| address_of(known) != address_of(&node)) {
                nodes.push(node);
            }
        }
        *self.nodes.lock() = nodes;
        Ok(owner)
    }

    /// # Errors
    /// [`StoreError`] if the node cannot be reached.
    pub(super) async fn open_at(&self, address: &str, files: &Certificates) -> Result<Node, StoreError> {
        Node::open_soon(client_at(address, &self.like)?, files).await
    }

    /// Asks another node next time: the one that was asked last may have lost the rest of the cluster.
    pub(super) fn ask_another(&self) {
        let mut nodes = self.nodes.lock();
        if !nodes.is_empty() {
            nodes.rotate_left(1);
        }
    }

    /// The node that has the slot according to this one, and all nodes that it reports, itself first.
    async fn owner_by(&self, node: &Client, files: &Certificates) -> Result<(Node, Vec<Client>), StoreError> {
        let mut asked = Node::open_soon(node.clone(), files).await?;
        let answer = asked.ask(cmd("CLUSTER").arg("SLOTS")).await?;
        let answer = answer.map_err(|refusal| of_node(&asked.address, &refusal))?;
        let told = ranges_in(answer, &asked.address).ok_or_else(|| failure::of_answer(Stage::Reading))?;
        let Some(owner) = told.iter().find(|range| range.has(self.slot)).and_then(|range| range.nodes.first()) else {
            return Err(StoreError::transient(format!(
                "Redis at {1} reports that no node of the cluster has slot {0}; assign it by CLUSTER ADDSLOTS, or wait until the cluster \
                 is repaired",
                self.slot, asked.address
            )));
        };
        let others = told.iter().flat_map(|range| &range.nodes).filter_map(|one| client_at(one, &self.like).ok());
        let nodes = core::iter::once(node.clone()).chain(others).collect();
        let owner = if **owner == *asked.address { asked } else { self.open_at(owner, files).await? };
        Ok((owner, nodes))
    }
}

/// Slots, and the addresses of the nodes that have them: the master first.
struct Range {
    first: u16,
    last: u16,
    nodes: Vec<String>,
}

impl Range {
    fn has(&self, slot: u16) -> bool {
        (self.first..=self.last).contains(&slot)
    }
}

fn ranges_in(answer: Value, asked: &str) -> Option<Vec<Range>> {
    let Value::Array(ranges) = answer else { return None };
    ranges.into_iter().map(|range| range_in(range, asked)).collect()
}

fn range_in(range: Value, asked: &str) -> Option<Range> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), nodes @ ..] = parts.as_slice() else { return None };
    let nodes = nodes.iter().filter_map(|node| {
        let Value::Array(node) = node else { return None };
        match node.as_slice() {
            [Value::BulkString(host), Value::Int(port), ..] => {
                Some(address_told(&format!("{}:{port}", String::from_utf8_lossy(host)), asked))
            }
            // A node that does not name itself has the address where it was asked.
            [Value::Nil, Value::Int(port), ..] => Some(address_told(&format!(":{port}"), asked)),
            _ => None,
        }
    });
    Some(Range { first: u16::try_from(*first).ok()?, last: u16::try_from(*last).ok()?, nodes: nodes.collect() })
}

/// A node may leave out its host, or call it unknown. Then it is the host by which the node was reached.
fn address_told(address: &str, asked: &str) -> String {
    match (address.rsplit_once(':'), asked.rsplit_once(':')) {
        (Some(("" | "?", port)), Some((host, _))) => format!("{host}:{port}"),
        _ => address.to_string(),
    }
}

/// Where this refusal by the node at `asked` redirects the command, if anywhere. An error that a script raised names the script, and is not
/// followed: the script may have written.
pub(super) fn redirect_in(refusal: &RedisError, asked: &str) -> Option<Redirect> {
    let mut words = refusal.detail()?.split(' ');
    let _: u16 = words.next()?.parse().ok()?;
    let address = address_told(words.next()?, asked);
    match (refusal.code()?, words.next()) {
        ("MOVED", None) => Some(Redirect::Moved(address)),
        ("ASK", None) => Some(Redirect::Ask(address)),
        _ => None,
    }
}

/// The error of a node that refused to report the slots.
fn of_node(address: &str, refusal: &RedisError) -> StoreError {
    if refusal.detail().is_some_and(|detail| detail.contains("cluster support disabled")) {
        return failure::unsupported(format!(
            "Redis at {address} is in no cluster; leave out -cluster in the URL to connect to a single server, or set cluster-enabled yes"
        ));
    }
    failure::of_refusal(address, refusal, Stage::Reading)
}

/// The slot of all names that have `tag` in braces: CRC-16/XMODEM modulo the number of slots.
fn slot_of(tag: &str) -> u16 {
    let crc = tag.bytes().fold(0u16, |crc, byte| {
        (0..8)
            .fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_the_one_of_the_clusters_specification() {
        assert_eq!(slot_of("123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
    }

    #[test]
    fn a_node_that_leaves_out_its_host_is_where_it_was_asked() {
        let node = |host| Value::Array(Vec::from([host, Value::Int(7_001)]));
        let hosts = [Value::Nil, Value::BulkString(Vec::new()), Value::BulkString(b"?".to_vec())];
        let other = Value::BulkString(b"10.0.0.2".to_vec());
        let slots = [Value::Int(0), Value::Int(5)].into_iter().chain(hosts.map(node)).chain([node(other)]).collect();
        let ranges = ranges_in(Value::Array(Vec::from([Value::Array(slots)])), "10.0.0.1:7000").expect("it is read");
        assert_eq!(ranges[0].nodes, ["10.0.0.1:7001", "10.0.0.1:7001", "10.0.0.1:7001", "10.0.0.2:7001"]);
        assert!(ranges[0].has(5) && !ranges[0].has(6));
    }
}
