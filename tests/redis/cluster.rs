//! A store in one slot of a cluster.

use std::sync::{Arc, OnceLock};

use leasehold::{
    LeaseManager,
    executor::TokioExecutor,
    machine::{Applied, StoreErrorKind},
    signal::contract as signal_contract,
    store::{RedisServers, RedisStore, Store, contract},
};
use redis::Client;
use tokio::time::timeout;

use crate::{
    BUSY, LONG_LEASE, context,
    groups::{self, Pair},
    inputs::{ask, look, now},
    open,
    server::Server,
    signals::{settle, signals},
};

/// The nodes of a cluster, three of which share the slots.
pub(crate) struct Cluster {
    nodes: Vec<Server>,
}

/// How many ms a node must be silent to be taken for dead. On a busy machine, even a living node may be silent for long.
const PATIENT: &str = "60000";
/// The same, for nodes that are to die.
pub(crate) const SOON: &str = "4000";

const NODE: [&str; 6] =
    ["--cluster-enabled", "yes", "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"];

fn start_node(silence: &str) -> Option<Server> {
    Server::start(&[&NODE[..], &["--cluster-node-timeout", silence]].concat())
}

impl Cluster {
    pub(crate) fn start(silence: &str) -> Option<Self> {
        let nodes = (0..3).map(|_| start_node(silence)).collect::<Option<Vec<_>>>()?;
        for (number, node) in nodes.iter().enumerate() {
            let ends = [number * 16_384 / 3, (number + 1) * 16_384 / 3 - 1].map(|slot| slot.to_string());
            let _: String = node.ask(&["CLUSTER", "ADDSLOTSRANGE", &ends[0], &ends[1]]);
            let _: String = node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
        let cluster = Self { nodes };
        for node in &cluster.nodes[1..] {
            cluster.meet(node);
        }
        cluster.settle();
        Some(cluster)
    }

    /// Introduces a node to the first one. A handshake that takes longer than nodes may be silent is given up, so it is asked for until
    /// both know each other.
    fn meet(&self, node: &Server) {
        let first = &self.nodes[0];
        for (one, other) in [(first, node), (node, first)] {
            let id = id_of(other);
            one.wait_for::<String>(&["CLUSTER", "NODES"], |table| {
                let is_known = table.lines().any(|line| line.starts_with(&id));
                if !is_known {
                    let _: String = first.ask(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string()]);
                }
                is_known
            });
        }
    }

    fn settle(&self) {
        let known = format!("cluster_known_nodes:{}\r", self.nodes.len());
        for node in &self.nodes {
            let is_settled = |info: &String| info.contains("cluster_state:ok") && info.contains(&known);
            node.wait_for::<String>(&["CLUSTER", "INFO"], is_settled);
        }
    }

    /// Adds a replica to the node that has the slot of this prefix, and takes both out of the list.
    pub(crate) fn pair<'a>(&'a mut self, prefix: &'a str) -> Pair<'a> {
        let owner = self.owner(prefix);
        // The client gets only the node that is to die, and learns of the others from it.
        let servers = RedisServers::cluster([self.nodes[owner].remote_client()]);
        let replica = start_node(SOON).unwrap();
        self.meet(&replica);
        self.nodes.push(replica);
        self.settle();
        let id = id_of(&self.nodes[owner]);
        let (replica, nodes) = self.nodes.split_last_mut().expect("it was pushed");
        let _: String = replica.ask(&["CLUSTER", "REPLICATE", &id]);
        replica.wait_for::<String>(&["INFO", "replication"], |info| info.contains("master_link_status:up"));
        for node in nodes.iter() {
            // Only a replica that all masters know is elected.
            let is_known = |table: &String| table.lines().any(|line| line.contains("slave") && line.contains(&id));
            node.wait_for::<String>(&["CLUSTER", "NODES"], is_known);
        }
        Pair { servers, master: &mut nodes[owner], replica, prefix }
    }

    pub(crate) fn servers(&self) -> RedisServers {
        RedisServers::cluster(self.nodes.iter().map(Server::remote_client))
    }

    /// A client of the node that has the slot of this prefix.
    pub(crate) fn client(&self, prefix: &str) -> Client {
        self.nodes[self.owner(prefix)].client()
    }

    fn slot(&self, prefix: &str) -> String {
        self.nodes[0].ask::<u16>(&["CLUSTER", "KEYSLOT", &format!("{{{prefix}}}:rows")]).to_string()
    }

    /// The node that has the slot of this prefix.
    fn owner(&self, prefix: &str) -> usize {
        let slot = self.slot(prefix).parse::<usize>().unwrap();
        (0..3).find(|number| slot < (number + 1) * 16_384 / 3).expect("all slots are shared")
    }
}

fn id_of(node: &Server) -> String {
    node.ask(&["CLUSTER", "MYID"])
}

/// The cluster that most tests share, each with a prefix of its own.
pub(crate) fn shared() -> Option<&'static Cluster> {
    static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
    SHARED.get_or_init(|| Cluster::start(PATIENT)).as_ref()
}

#[tokio::test]
async fn the_store_keeps_the_contract_over_a_cluster() {
    let Some(cluster) = shared() else { return };
    // They are most likely on different nodes.
    for prefix in ["all", "all of them", "each"] {
        contract::all(async || open(&cluster.servers(), prefix).await).await;
    }
    signal_contract::all(async || signals(&cluster.servers(), "signals").await, settle).await;
}

#[tokio::test]
async fn any_node_leads_to_the_one_that_has_the_slot() {
    let Some(cluster) = shared() else { return };
    let owner = cluster.owner("any");
    for (number, node) in cluster.nodes.iter().enumerate() {
        let url = format!("redis-cluster://127.0.0.1:1,{}?prefix=any", node.address());
        let leases = LeaseManager::from_url(&url, TokioExecutor::new()).await.unwrap();
        let _guard = leases.lock(&number.to_string()).acquire().await.unwrap();
        let rows: Vec<String> = cluster.nodes[owner].ask(&["HKEYS", "{any}:rows"]);
        assert!(rows.contains(&format!("lease:{number}")), "{rows:?}");
    }
}

#[tokio::test]
async fn holder_and_waiter_outlive_the_node_of_their_slot() {
    let Some(mut cluster) = Cluster::start(SOON) else { return };
    groups::holder_and_waiter_are_kept(cluster.pair("cluster")).await;
}

#[tokio::test]
async fn a_grant_that_a_failover_in_a_cluster_loses_makes_two_holders_of_which_one_writes() {
    let Some(mut cluster) = Cluster::start(SOON) else { return };
    groups::a_grant_that_is_lost_makes_two_holders_of_which_one_writes(cluster.pair("cluster")).await;
}

/// The keys of the slot move one by one.
#[tokio::test]
async fn a_slot_is_moved_while_one_holds_and_another_waits() {
    let Some(cluster) = shared() else { return };
    let (slot, owner) = (cluster.slot("moved"), cluster.owner("moved"));
    let (from, to) = (&cluster.nodes[owner], &cluster.nodes[(owner + 1) % 3]);
    let (store, leases) = context(&cluster.servers(), "moved").await;
    let (_, others) = context(&cluster.servers(), "moved").await;
    let leases = leases.lease(LONG_LEASE).build().unwrap();
    let others = others.lease(LONG_LEASE).build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let count = || store.script("return redis.call('INCR', KEYS[1])").key("{moved}:n");
    guard.fence(count()).await.unwrap().unwrap();
    let set = |node: &Server, words: &[&str]| {
        let _: String = node.ask(&[&["CLUSTER", "SETSLOT", slot.as_str()], words].concat());
    };
    let migrate = |key: &str| {
        let _: String = from.ask(&["MIGRATE", "127.0.0.1", &to.port().to_string(), key, "0", "30000"]);
    };
    set(to, &["IMPORTING", &id_of(from)]);
    set(from, &["MIGRATING", &id_of(to)]);
    assert!(guard.verify().await.unwrap(), "all keys are where they were");

    migrate("{moved}:rows");
    let error = store.transact(ask(2), now(), BUSY).await.expect_err("one key is here and one there");
    assert!(error.message.contains("TRYAGAIN"), "{error}");
    assert_eq!((error.applied, error.retry), (Applied::No, true), "{error}");
    assert_eq!(store.keys("").await.unwrap()[0].as_str(), "k", "a single key is found wherever it is");

    migrate("{moved}:sessions");
    migrate("{moved}:n");
    // The new node does not know the scripts, and serves only clients that send ASKING.
    let waiting = tokio::spawn(others.lock("k").acquire());
    while leases.status("k").await.unwrap().queue.is_empty() {
        tokio::task::yield_now().await;
    }
    guard.fence(count()).await.unwrap().unwrap();
    assert!(guard.verify().await.unwrap());

    for node in [to, from] {
        set(node, &["NODE", &id_of(to)]);
    }
    guard.fence(count()).await.unwrap().unwrap();
    // Contexts that hear nothing for 15 s look up where the slot is.
    groups::are_heard_by(to, "moved", 2).await;
    guard.release().await.unwrap();
    let next = timeout(BUSY, waiting).await.expect("it is told").unwrap().unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(to.ask::<i64>(&["GET", "{moved}:n"]), 3, "each script ran once");
    let fresh = open(&RedisServers::cluster([from.remote_client()]), "moved").await;
    fresh.transact(look(3), now(), BUSY).await.unwrap();
}

/// The cursors of the node that had the slot mean nothing to the node that has the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_listed_whole_while_their_slot_is_moved() {
    const KEYS: usize = 50_000;
    let Some(cluster) = shared() else { return };
    let (slot, owner) = (cluster.slot("listed"), cluster.owner("listed"));
    let (from, to) = (&cluster.nodes[owner], &cluster.nodes[(owner + 1) % 3]);
    let store = Arc::new(open(&cluster.servers(), "listed").await);
    let fill = "for key = 1, ARGV[1] do redis.call('HSET', KEYS[1], 'lease:' .. key, '') end";
    let _: () = from.ask(&["EVAL", fill, "1", "{listed}:rows", &KEYS.to_string()]);
    let _: String = to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id_of(from)]);
    let _: String = from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id_of(to)]);
    let began = from.calls("hscan");
    let listing = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.keys("").await }
    });
    while from.calls("hscan") < began + 3 {
        tokio::task::yield_now().await;
    }
    let port = to.port().to_string();
    let _: String = from.ask(&["MIGRATE", "127.0.0.1", &port, "{listed}:rows", "0", "30000"]);
    assert_eq!(listing.await.unwrap().unwrap().len(), KEYS);
    for node in [to, from] {
        let _: String = node.ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &id_of(to)]);
    }
}

/// Checks that a connection is refused with all these words, and returns whether trying again may help.
async fn refused(servers: impl Into<RedisServers>, prefix: &str, words: &[&str]) -> bool {
    let error = RedisStore::with_prefix(servers, prefix).await.expect_err("it is refused");
    for word in words {
        assert!(error.message.contains(word), "{word:?} is not in: {error}");
    }
    assert_eq!(error.applied, Applied::No, "{error}");
    assert_eq!(error.kind, if error.retry { StoreErrorKind::Unavailable } else { StoreErrorKind::Unsupported });
    error.retry
}

#[tokio::test]
async fn nodes_that_lead_to_no_slot_are_reported() {
    let Some(single) = crate::shared() else { return };
    let cluster = |url: String| url.parse::<RedisServers>().unwrap();
    let (words, address) = (["in no cluster", "leave out -cluster", "cluster-enabled yes"], single.address());
    assert!(!refused(cluster(format!("redis-cluster://{address}")), "p", &words).await);
    let nowhere = cluster("redis-cluster://127.0.0.1:1,127.0.0.1:2".into());
    assert!(refused(nowhere, "p", &["127.0.0.1:1", "check the host"]).await);
    let database = Client::open(format!("redis://{address}/1")).unwrap();
    assert!(!refused(RedisServers::cluster([database]), "p", &["no database 1", "prefix"]).await);
    assert!(!refused(RedisServers::cluster([]), "p", &["name at least one"]).await);
    let alone = start_node(PATIENT).unwrap();
    let alone = RedisServers::cluster([alone.remote_client()]);
    assert!(refused(alone, "foo", &["slot 12182", "CLUSTER ADDSLOTS"]).await, "somebody may assign it");
}

/// A URL for a single server leads to a node that does not have the slot.
#[tokio::test]
async fn a_node_that_is_taken_for_a_single_server_sends_to_the_cluster() {
    let Some(cluster) = shared() else { return };
    let wrong = &cluster.nodes[(cluster.owner("wrong") + 1) % 3];
    assert!(!refused(wrong.remote_client(), "wrong", &["MOVED", "redis-cluster://"]).await);
}

#[tokio::test]
async fn a_script_with_keys_of_another_slot_is_refused_and_told_the_hash_tag() {
    let Some(cluster) = shared() else { return };
    let (store, leases) = context(&cluster.servers(), "tagged").await;
    let leases = leases.lease(LONG_LEASE).build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let error = guard.fence(store.script("return redis.call('INCR', KEYS[1])").key("n")).await.unwrap_err();
    let told = error.to_string();
    assert!(told.contains("CROSSSLOT") && told.contains("prefix of the store in braces"), "{told}");
    guard.fence(store.script("return redis.call('INCR', KEYS[1])").key("{tagged}:n")).await.unwrap().unwrap();
}

/// The other masters are gone, so that this one cannot know whether it was replaced.
#[tokio::test]
async fn a_node_that_has_lost_its_cluster_writes_nothing_and_says_so() {
    let Some(mut cluster) = Cluster::start(SOON) else { return };
    let owner = cluster.owner("lost");
    let store = open(&cluster.servers(), "lost").await;
    store.transact(ask(1), now(), BUSY).await.unwrap();
    for other in [(owner + 1) % 3, (owner + 2) % 3] {
        cluster.nodes[other].kill();
    }
    let node = &cluster.nodes[owner];
    node.wait_for::<String>(&["CLUSTER", "INFO"], |info| info.contains("cluster_state:fail"));
    let error = store.transact(ask(2), now(), BUSY).await.expect_err("the cluster is down");
    assert!(error.message.contains("CLUSTERDOWN"), "{error}");
    assert_eq!((error.applied, error.retry), (Applied::No, true), "{error}");
    for other in [(owner + 1) % 3, (owner + 2) % 3] {
        cluster.nodes[other].run();
    }
    cluster.settle();
    store.transact(ask(2), now(), BUSY).await.unwrap();
}

/// The guide names these rights, and no others for a store in a cluster.
#[tokio::test]
async fn the_rights_that_the_guide_names_are_enough_in_a_cluster() {
    let guide = include_str!("../../docs/beyond-one-process.md");
    let rights =
        guide.lines().find_map(|line| line.strip_prefix("ACL SETUSER app on >secret ")).expect("it names them");
    let Some(cluster) = Cluster::start(PATIENT) else { return };
    let rights = rights.replace("{leasehold}", "{rights}");
    for node in &cluster.nodes {
        let mut words = vec!["ACL", "SETUSER", "app", "on", ">secret"];
        words.extend(rights.split(' ').chain(["+cluster|slots", "+asking"]));
        let _: String = node.ask(&words);
    }
    let hosts: Vec<_> = cluster.nodes.iter().map(Server::address).collect();
    let url = format!("redis-cluster://app:secret@{}", hosts.join(","));
    let (slot, owner) = (cluster.slot("rights"), cluster.owner("rights"));
    let (from, to) = (&cluster.nodes[owner], &cluster.nodes[(owner + 1) % 3]);
    let context = async || {
        let store = RedisStore::connect_with_prefix(&url, "rights").await.unwrap();
        LeaseManager::builder(store, TokioExecutor::new()).lease(LONG_LEASE).build().unwrap()
    };
    let (leases, others) = (context().await, context().await);
    let guard = leases.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(others.lock("k").acquire());
    let _: String = to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id_of(from)]);
    let _: String = from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id_of(to)]);
    for key in ["{rights}:rows", "{rights}:sessions"] {
        let _: String = from.ask(&["MIGRATE", "127.0.0.1", &to.port().to_string(), key, "0", "30000"]);
    }
    assert!(guard.verify().await.unwrap());
    for node in [to, from] {
        let _: String = node.ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &id_of(to)]);
    }
    groups::are_heard_by(to, "rights", 2).await;
    guard.release().await.unwrap();
    drop(timeout(BUSY, waiting).await.expect("it is told").unwrap().unwrap());
}
