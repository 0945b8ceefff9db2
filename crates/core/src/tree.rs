//! The tree's state and the small steps that every operation is made of.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

use crate::arena::{Arena, Handle, Id};
use crate::below::BoundaryCounts;
use crate::candidates::Candidates;
use crate::children::ChildIndex;
use crate::error::{Error, Result};
use crate::key::{Namespace, PageKey};
use crate::namespaces::Space;
use crate::node::{Holding, Node, NodeId};
use crate::places::Places;
use crate::plan::{Event, PoolStats, Tier, TreeStats};
use crate::policy::{Lru, Policy};
use crate::ranks::Known;
use crate::rule::Rule;
use crate::run::Run;
use crate::sessions::Sessions;

/// One component of a model: a name and where its values may be reused.
#[derive(Clone, Debug)]
pub struct Component {
    /// Unique in its tree.
    pub name: String,
    /// Where its values may be reused.
    pub rule: Rule,
}

/// A lease that is out: the node at whose end its boundary lies, and the components it still protects.
#[derive(Debug)]
pub(crate) struct LeaseRecord {
    pub(crate) node: NodeId,
    pub(crate) boundary: u32,
    pub(crate) protects: SmallVec<[bool; 8]>,
}

/// Pages of one component: kept up to date, never found by walking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) held: u64,
    pub(crate) leased: u64,
    pub(crate) dead: u64,
}

/// What one component has.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub(crate) candidates: Candidates,
    pub(crate) counters: Counters,
    /// Calls of evict since all candidates were asked (rule P-7).
    pub(crate) evictions: usize,
}

/// How a tree is set up.
#[derive(Debug)]
pub struct Settings {
    /// Tokens a page.
    pub page_tokens: u32,
    /// Order of eviction.
    pub policy: Box<dyn Policy>,
    /// Whether `take_events` has something to give.
    pub record_events: bool,
    /// Where the values lie; only what events and sizes say depends on it.
    pub tier: Tier,
    /// A session idle for longer is closed (rule S-2).
    pub session_ttl_s: f64,
    /// When one more is opened, the one idle longest is closed.
    pub max_sessions: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            page_tokens: 1,
            policy: Box::new(Lru),
            record_events: false,
            tier: Tier::Device,
            session_ttl_s: 3600.0,
            max_sessions: 100_000,
        }
    }
}

/// A radix tree of prefixes with a vote of components on what may be reused.
#[derive(Debug)]
pub struct Tree {
    pub(crate) components: Vec<Component>,
    pub(crate) page_tokens: u32,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) policy_is_recency: bool,
    pub(crate) policy_ages: bool,
    pub(crate) record_events: bool,
    pub(crate) tier: Tier,
    pub(crate) nodes: Arena<Node>,
    pub(crate) leases: Arena<LeaseRecord>,
    pub(crate) children: ChildIndex,
    pub(crate) below_counts: BoundaryCounts,
    pub(crate) roots: HashMap<Arc<Namespace>, NodeId>,
    pub(crate) namespaces: HashMap<NodeId, Space>,
    /// Whether some namespace may have candidates in a queue of its own.
    pub(crate) has_queues: bool,
    pub(crate) page_keys: HashMap<NodeId, Vec<PageKey>>,
    /// What is held, by node and component.
    pub(crate) holdings: Vec<Holding>,
    /// What is kept for policies that ask for more than recency, beside the holdings.
    pub(crate) known: Vec<Known>,
    pub(crate) sessions: Sessions,
    /// What sessions refer to, beside the holdings as far as there are any.
    pub(crate) references: Vec<Places>,
    /// One a component.
    pub(crate) pools: Vec<Pool>,
    pub(crate) events: Vec<Event>,
    pub(crate) path_pages: u64,
    /// Memory of `take_path`.
    pub(crate) path_buffer: Vec<NodeId>,
    /// Counts uses (rule P-1).
    pub(crate) clock: u64,
    /// Nodes ever made.
    pub(crate) born: u64,
}

impl Tree {
    /// An empty tree.
    ///
    /// # Errors
    /// No component, two of one name, a page of less than one token, or a limit that leaves no session.
    pub fn new(components: Vec<Component>, settings: Settings) -> Result<Self> {
        let Settings { page_tokens, mut policy, record_events, tier, session_ttl_s, max_sessions } = settings;
        if page_tokens < 1 {
            return Err(Error::config(format!("page_tokens is {page_tokens}, it must be at least 1")));
        }
        let names: Vec<&str> = components.iter().map(|component| component.name.as_str()).collect();
        if names.is_empty() || names.iter().collect::<HashSet<_>>().len() != names.len() {
            let message =
                format!("components {names:?}: at least one is needed, each with a name of its own");
            return Err(Error::config(message));
        }
        let sessions = Sessions::new(session_ttl_s, max_sessions)?;
        let pools = components.iter().map(|_| Pool::default()).collect();
        policy.bind(&components);
        Ok(Self {
            components,
            page_tokens,
            policy_is_recency: policy.is_recency(),
            policy_ages: policy.ages(),
            policy,
            record_events,
            tier,
            nodes: Arena::new(),
            leases: Arena::new(),
            children: ChildIndex::default(),
            below_counts: BoundaryCounts::default(),
            roots: HashMap::default(),
            namespaces: HashMap::default(),
            has_queues: false,
            page_keys: HashMap::default(),
            holdings: Vec::new(),
            known: Vec::new(),
            sessions,
            references: Vec::new(),
            pools,
            events: Vec::new(),
            path_pages: 0,
            path_buffer: Vec::new(),
            clock: 0,
            born: 0,
        })
    }

    /// The components, in the order in which they are reported.
    #[must_use]
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// Tokens a page.
    #[must_use]
    pub fn page_tokens(&self) -> u32 {
        self.page_tokens
    }

    /// Index of a component.
    ///
    /// # Errors
    /// No component has that name.
    pub fn component(&self, name: &str) -> Result<usize> {
        self.components.iter().position(|component| component.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.components.iter().map(|component| component.name.as_str()).collect();
            Error::Config {
                message: format!("no component is named '{name}'"),
                hint: format!("the components are {}", known.join(", ")),
            }
        })
    }

    /// Sizes, kept by counters (rule L-5).
    #[must_use]
    pub fn stats(&self) -> TreeStats {
        let pool = |pool: &Pool| PoolStats {
            tier: self.tier,
            held_pages: pool.counters.held,
            leased_pages: pool.counters.leased,
            dead_pages: pool.counters.dead,
        };
        TreeStats {
            nodes: self.nodes.len(),
            leases: self.leases.len(),
            path_pages: self.path_pages,
            pools: self.pools.iter().map(pool).collect(),
            sessions: self.sessions.table.len(),
        }
    }

    /// Events since the last call, oldest first (rule V-1).
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    // -- small questions ---------------------------------------------------------------------------

    #[inline]
    pub(crate) fn rule(&self, component: usize) -> Rule {
        self.components[component].rule
    }

    /// First page that `boundary` (in pages) needs of a component.
    #[inline]
    pub(crate) fn first_page(&self, component: usize, boundary: u32) -> u32 {
        self.rule(component).first_page(boundary, self.page_tokens)
    }

    /// Whether the component's values leave from the tail of a path only (rule E-3).
    #[inline]
    pub(crate) fn closed(&self, component: usize) -> bool {
        self.rule(component).prefix_closed()
    }

    /// What a component holds of a node.
    #[inline]
    pub(crate) fn holding(&self, node: NodeId, component: usize) -> &Holding {
        &self.holdings[node.index() * self.components.len() + component]
    }

    #[inline]
    pub(crate) fn holding_mut(&mut self, node: NodeId, component: usize) -> &mut Holding {
        &mut self.holdings[node.index() * self.components.len() + component]
    }

    /// Node of a handle.
    pub(crate) fn node(&self, handle: Handle) -> Result<NodeId> {
        self.nodes.find(handle).ok_or_else(|| {
            let bits = handle.to_bits();
            Error::stale(format!("node {bits} is not in the tree any more"), "match again")
        })
    }

    /// Record of a lease.
    pub(crate) fn lease_record(&self, handle: Handle) -> Result<Id> {
        self.leases.find(handle).ok_or_else(|| {
            let bits = handle.to_bits();
            Error::stale(format!("lease {bits} was released before"), "release a lease once")
        })
    }

    /// The node and its ancestors, the root left out.
    pub(crate) fn path_up(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        let mut next = Some(node);
        std::iter::from_fn(move || {
            let here = next?;
            next = self.nodes[here].parent;
            next.is_some().then_some(here)
        })
    }

    /// `path_up`, in a buffer that is used again when the caller puts it back.
    pub(crate) fn take_path(&mut self, node: NodeId) -> Vec<NodeId> {
        let mut path = std::mem::take(&mut self.path_buffer);
        path.clear();
        path.extend(self.path_up(node));
        path
    }

    // -- topology ----------------------------------------------------------------------------------

    /// Root of a namespace, made when it is first leased.
    pub(crate) fn root(&mut self, namespace: &Namespace) -> NodeId {
        if let Some(&root) = self.roots.get(namespace) {
            return root;
        }
        let root = self.add_node(None, None, 0);
        self.nodes[root].root = Some(root);
        let namespace = Arc::new(namespace.clone());
        self.namespaces.insert(root, Space::new(Arc::clone(&namespace), self.components.len()));
        self.roots.insert(namespace, root);
        root
    }

    /// A node that holds nothing yet; the caller gives it its place among the others.
    pub(crate) fn add_node(&mut self, root: Option<NodeId>, parent: Option<NodeId>, start: u32) -> NodeId {
        self.born += 1;
        let node = self.nodes.insert(Node::new(self.born, root, parent, start));
        let holdings = (node.index() + 1) * self.components.len();
        if self.holdings.len() < holdings {
            self.holdings.resize_with(holdings, Holding::new);
        }
        self.know_node(node);
        node
    }

    /// A new node below `parent` that holds nothing yet; the tokens are copied.
    pub(crate) fn add_leaf(&mut self, parent: NodeId, tokens: &[u32]) -> NodeId {
        let above = &self.nodes[parent];
        let leaf = self.add_node(above.root, Some(parent), above.end());
        let pages = (tokens.len() / self.page_tokens as usize) as u32;
        self.nodes[leaf].tokens = Run::from(tokens);
        self.nodes[leaf].pages = pages;
        self.path_pages += u64::from(pages);
        self.link_child(parent, leaf);
        leaf
    }

    /// How many whole pages of the node begin `tokens`, which are whole pages.
    #[inline(always)]
    pub(crate) fn common_pages(&self, here: &Node, tokens: &[u32]) -> u32 {
        let mine = &*here.tokens;
        if mine.first() != tokens.first() {
            return 0; // a sibling of the node on the path
        }
        let count = mine.len().min(tokens.len());
        let common = common_tokens(&mine[..count], &tokens[..count]);
        if common == mine.len() { here.pages } else { common as u32 / self.page_tokens }
    }
}

/// Tokens compared at once: many while they are equal, at the speed of memory, then fewer to find the place.
const STRIDES: [usize; 3] = [8192, 128, 1];

/// How many leading tokens of two equally long slices are equal.
fn common_tokens(mine: &[u32], theirs: &[u32]) -> usize {
    let mut strides = STRIDES.as_slice();
    if mine.len() <= STRIDES[0] {
        if mine == theirs {
            return mine.len(); // most nodes of a path
        }
        strides = &STRIDES[1..];
    }
    let mut equal = 0;
    for &stride in strides {
        let pairs = mine[equal..].chunks(stride).zip(theirs[equal..].chunks(stride));
        equal += pairs.take_while(|(a, b)| a == b).map(|(a, _)| a.len()).sum::<usize>();
    }
    equal
}

#[cfg(test)]
mod tests {
    use super::common_tokens;

    #[test]
    fn a_difference_is_found_anywhere() {
        let mine: Vec<u32> = (0..20_000).collect();
        for place in [0, 1, 127, 128, 129, 8191, 8192, 19_999] {
            let mut theirs = mine.clone();
            theirs[place] += 1;
            assert_eq!(common_tokens(&mine, &theirs), place);
        }
        assert_eq!(common_tokens(&mine, &mine), 20_000);
        assert_eq!(common_tokens(&[], &[]), 0);
    }
}
