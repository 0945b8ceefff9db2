//! Asking the policy: when a holding was used, when its sessions changed, when it is next to leave.
//!
//! Plain recency is not asked: nothing but the last tick is kept for it.

use crate::node::NodeId;
use crate::policy::{Passage, Usage};
use crate::sessions::Frontier;
use crate::tree::Tree;

/// Of the candidates of a component, so many are asked a call of evict, on the mean, by policies that age.
const REFRESHES: usize = 16;

/// What is kept of a holding for a policy that asks for more than recency.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) usage: Usage,
    /// A hint changed, the policy is to be asked again (rule P-3).
    pub(crate) stale: bool,
    /// `rerank` was asked since the last rank (rule P-4).
    asked: bool,
}

impl Known {
    fn nothing(component: usize) -> Self {
        let usage = Usage { component: component as u32, scale_s: 1.0, ..Usage::default() };
        Self { usage, stale: false, asked: false }
    }
}

impl Tree {
    /// Makes room for what is known of a new node.
    pub(crate) fn know_node(&mut self, node: NodeId) {
        let count = self.components.len();
        while !self.policy_is_recency && self.known.len() < (node.index() + 1) * count {
            self.known.push(Known::nothing(self.known.len() % count));
        }
    }

    /// Forgets what was known of a node that is removed.
    pub(crate) fn forget_usage(&mut self, node: NodeId) {
        if !self.policy_is_recency {
            for component in 0..self.components.len() {
                *self.known_mut(node, component) = Known::nothing(component);
            }
        }
    }

    /// Tells the upper half of a split node what is known of the lower one.
    pub(crate) fn copy_usage(&mut self, lower: NodeId, upper: NodeId) {
        if !self.policy_is_recency {
            for component in 0..self.components.len() {
                *self.known_mut(upper, component) = *self.known_mut(lower, component);
            }
        }
    }

    #[inline]
    pub(crate) fn known_mut(&mut self, node: NodeId, component: usize) -> &mut Known {
        &mut self.known[node.index() * self.components.len() + component]
    }

    #[inline]
    pub(crate) fn known_of(&self, node: NodeId, component: usize) -> &Known {
        &self.known[node.index() * self.components.len() + component]
    }

    /// Level and rank of a holding.
    #[inline]
    pub(crate) fn standing(&self, node: NodeId, component: usize) -> (u64, f64) {
        if self.policy_is_recency {
            return (0, self.holding(node, component).last_tick as f64);
        }
        let usage = &self.known_of(node, component).usage;
        (usage.level, usage.rank)
    }

    /// Counts a use at the present tick.
    #[inline]
    pub(crate) fn count_use(&mut self, node: NodeId, component: usize) {
        let (clock, now_s) = (self.clock, self.sessions.now_s);
        self.holding_mut(node, component).last_tick = clock;
        if self.policy_is_recency {
            return;
        }
        let here = &self.nodes[node];
        let (start_page, end_page, children) = (here.start, here.end(), here.children);
        let usage = &mut self.known[node.index() * self.components.len() + component].usage;
        let (gap_ticks, gap_s) = (clock - usage.last_tick, now_s - usage.last_s);
        (usage.last_tick, usage.last_s) = (clock, now_s);
        usage.uses = usage.uses.saturating_add(1);
        (usage.start_page, usage.end_page, usage.children) = (start_page, end_page, children);
        self.policy.touch(usage, gap_ticks, gap_s);
        self.ask(node, component);
    }

    /// Asks for the level and the rank (rules P-2, P-3).
    fn ask(&mut self, node: NodeId, component: usize) {
        let sessions = self.sessions_of(node, component);
        let known = &mut self.known[node.index() * self.components.len() + component];
        let before = std::mem::replace(&mut known.usage.sessions, sessions);
        if self.policy_ages && before > 0 && sessions == 0 {
            let here = &self.nodes[node];
            (known.usage.start_page, known.usage.end_page) = (here.start, here.end());
            self.policy.left(&mut known.usage);
        }
        known.usage.level = self.policy.level(&known.usage);
        known.usage.rank = self.policy.rank(&known.usage);
        (known.stale, known.asked) = (false, false);
    }

    /// Asks when the number of sessions or a hint changed since the policy was asked (rule P-3).
    #[inline]
    pub(crate) fn ask_again(&mut self, node: NodeId, component: usize) {
        if !self.policy_is_recency && self.is_to_be_asked(node, component) {
            self.ask(node, component);
        }
    }

    /// Whether something changed for a holding since the policy was asked; never for one of nothing.
    pub(crate) fn is_to_be_asked(&self, node: NodeId, component: usize) -> bool {
        let known = self.known_of(node, component);
        !self.holding(node, component).is_empty()
            && (known.stale || self.sessions_of(node, component) != known.usage.sessions)
    }

    /// Asks once whether live values that are next to leave are worth more by now (rule P-4).
    ///
    /// The caller puts a holding that is spared back into the order.
    pub(crate) fn is_spared(&mut self, node: NodeId, component: usize) -> bool {
        if self.policy_is_recency {
            return false;
        }
        let known = &mut self.known[node.index() * self.components.len() + component];
        if std::mem::replace(&mut known.asked, true) {
            return false;
        }
        let rank = self.policy.rerank(&known.usage, self.sessions.now_s, self.clock);
        let is_more = rank > known.usage.rank;
        if is_more {
            known.usage.rank = rank;
        }
        is_more
    }

    /// Counts a call of evict, for a policy that ages, and asks about all candidates when it is time (rule P-7).
    pub(crate) fn refresh(&mut self, component: usize) {
        if !self.policy_ages {
            return;
        }
        let pool = &mut self.pools[component];
        pool.evictions += 1;
        if pool.evictions * REFRESHES < pool.candidates.len() {
            return;
        }
        pool.evictions = 0;
        let nodes: Vec<NodeId> = pool.candidates.entries().map(|entry| entry.node()).collect();
        for node in nodes {
            self.ask(node, component);
            self.move_candidate(node, component);
        }
    }

    /// Asks a policy that ages anew about a node that has no nodes below it any more (rule P-7).
    pub(crate) fn ask_exposed(&mut self, node: NodeId) {
        if self.policy_ages && self.nodes[node].children == 0 {
            for component in 0..self.components.len() {
                if !self.holding(node, component).is_empty() {
                    self.ask(node, component);
                }
            }
        }
    }

    /// Tells a policy that ages of a holding that a lease needs (rule P-8).
    pub(crate) fn tell_found(&mut self, node: NodeId, component: usize) {
        let known = &mut self.known[node.index() * self.components.len() + component];
        let here = &self.nodes[node];
        (known.usage.start_page, known.usage.end_page) = (here.start, here.end());
        self.policy.found(&mut known.usage);
    }

    /// Tells a policy that ages that a session came back, and of all that lies on its path (rule P-8).
    pub(crate) fn tell_passage(
        &mut self,
        session: u64,
        from: Option<Frontier>,
        to: Frontier,
        answer_tokens: Option<u32>,
    ) {
        let meeting = from.map(|from| (from.node, self.meeting(from.node, to.node)));
        let parted = meeting.filter(|&(node, meeting)| meeting != Some(node));
        let kept_pages = parted.map(|(_, meeting)| meeting.map_or(0, |node| self.nodes[node].end()));
        let answer_pages = match answer_tokens {
            Some(tokens) => f64::from(tokens) / f64::from(self.page_tokens),
            None => f64::from(self.new_pages(to.node)),
        };
        self.policy.registered(&Passage { session, pages: to.boundary, kept_pages, answer_pages });
        for component in 0..self.components.len() {
            for (step, _) in self.referenced(to, component, None) {
                if !self.holding(step, component).is_empty() {
                    let known = &mut self.known[step.index() * self.components.len() + component];
                    let here = &self.nodes[step];
                    (known.usage.start_page, known.usage.end_page) = (here.start, here.end());
                    self.policy.passed(&mut known.usage);
                    known.stale = true;
                }
            }
        }
        self.policy.settled();
    }

    /// Pages of a node that was made by the last insertion; 0 for an older one.
    fn new_pages(&self, node: NodeId) -> u32 {
        let is_new =
            (0..self.components.len()).all(|component| self.known_of(node, component).usage.uses < 2);
        if is_new { self.nodes[node].pages } else { 0 }
    }

    /// Deepest node above or at both of two nodes; none in different namespaces.
    fn meeting(&self, one: NodeId, other: NodeId) -> Option<NodeId> {
        let (mut one, mut other) = (one, other);
        while one != other {
            let deeper = if self.nodes[one].end() >= self.nodes[other].end() { &mut one } else { &mut other };
            *deeper = self.nodes[*deeper].parent?;
        }
        Some(one)
    }
}
