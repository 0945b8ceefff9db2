//! The tree and the model side by side.

use std::collections::HashSet;

use graftline_core::policy::make_policy;
use graftline_core::{
    Component, Error, EventKind, Handle, HeldParts, KnownPath, Lease, Match, Namespace, Reason, Rule,
    Settings, Tier, Tree,
};

use crate::bytes::Bytes;
use crate::model::{Leased, Model, Path, pages};
use crate::talk::{SESSIONS_MAX, TTL_S, Talk};

const PATH_PAGES_MAX: usize = 9;
const KEPT_MAX: usize = 8;
const POLICIES: [&str; 9] =
    ["lru", "lfu", "lfu(3)", "slru", "slru(2)", "priority", "cost", "session", "gittins"];
const BASES: [&str; 5] =
    ["session(lfu(3))", "session(slru)", "session(priority)", "session(cost)", "session(gittins)"];

pub(crate) struct Player {
    pub(crate) tree: Tree,
    pub(crate) model: Model,
    pub(crate) talk: Talk,
    pub(crate) next_slot: i32,
    /// Handles of leases that were released, and matches of any age.
    pub(crate) released: Vec<Handle>,
    pub(crate) matches: Vec<(Path, Match)>,
    /// What the events say is held: component and key of the page.
    stored: HashSet<(usize, [u8; 32])>,
}

impl Player {
    pub(crate) fn new(bytes: &mut Bytes) -> Self {
        let rules = composition(bytes);
        let page_tokens = [1, 2, 3, 5][bytes.below(4)];
        let component = |(index, &rule): (usize, &Rule)| Component { name: format!("c{index}"), rule };
        let components = rules.iter().enumerate().map(component).collect();
        let names: Vec<&str> = POLICIES.into_iter().chain(BASES).collect();
        let settings = Settings {
            page_tokens,
            policy: make_policy(names[bytes.below(names.len())]).expect("a known policy"),
            record_events: true,
            tier: Tier::Device,
            session_ttl_s: TTL_S,
            max_sessions: SESSIONS_MAX,
        };
        Self {
            tree: Tree::new(components, settings).expect("good settings"),
            model: Model::new(rules, page_tokens),
            talk: Talk::default(),
            next_slot: 0,
            released: Vec::new(),
            matches: Vec::new(),
            stored: HashSet::new(),
        }
    }

    pub(crate) fn step(&mut self, bytes: &mut Bytes) {
        match bytes.below(21) {
            0..=2 => self.lease(bytes),
            3..=6 => self.insert(bytes),
            7 | 8 => self.release(bytes),
            9 => self.release_components(bytes),
            10..=12 => self.evict(bytes),
            13 => self.claim(bytes),
            14 => self.misuse(bytes),
            15..=18 => self.talk(bytes),
            19 => self.drop_state(bytes),
            _ => self.seldom(bytes),
        }
    }

    fn seldom(&mut self, bytes: &mut Bytes) {
        match bytes.below(4) {
            0 => self.clear(),
            1 => self.events(),
            2 => self.use_old_match(bytes),
            _ => assert_eq!(self.tree.dump(), self.tree.dump()),
        }
    }

    /// A new path, or more of one that is leased.
    pub(crate) fn path(&self, bytes: &mut Bytes) -> Path {
        let shape = bytes.byte();
        let start = bytes.pick(&self.model.leases).filter(|_| shape & 1 == 1);
        let mut path =
            start.map_or_else(|| vec![shape >> 1 & 1], |lease| self.model.leases[lease].path.clone());
        let kinds = [2, 3, 24][usize::from(shape >> 2) % 3];
        for _ in 0..bytes.below(PATH_PAGES_MAX) {
            path.push(bytes.below(kinds) as u8);
        }
        path
    }

    /// Pages differ in their first token or in their last.
    pub(crate) fn tokens(&self, path: &[u8]) -> Vec<u32> {
        let page = self.model.page_tokens as usize;
        path[1..]
            .iter()
            .flat_map(|&kind| {
                let mut tokens = vec![7; page];
                tokens[0] = u32::from(kind / 2);
                tokens[page - 1] += u32::from(kind % 2) * 1000 + u32::from(kind);
                tokens
            })
            .collect()
    }

    fn find(&mut self, path: &[u8], bytes: &mut Bytes) -> (Match, usize) {
        let mut tokens = self.tokens(path);
        let limit = bytes.flag().then(|| bytes.below(PATH_PAGES_MAX * 5));
        let offered =
            limit.map_or(pages(path), |limit| pages(path).min(limit / self.model.page_tokens as usize));
        tokens.extend((1..self.model.page_tokens).take(bytes.below(3))); // less than a page: left out
        let found = self.tree.match_(&space(path[0]), &tokens, limit.map(|limit| limit as u64));
        let part = &path[..=offered];
        assert_eq!(self.pages_of(found.path_tokens), self.model.known(part));
        assert_eq!(self.pages_of(found.boundary_tokens), self.model.agreed(part));
        assert_eq!(found.lost_tokens, found.path_tokens - found.boundary_tokens);
        assert_eq!(found.limited_by.is_some(), found.lost_tokens > 0);
        for (component, vote) in found.votes.iter().enumerate() {
            let own = self.pages_of(vote.boundary_tokens);
            assert!(self.model.valid(component, part, own), "a vote is a valid boundary");
            let deeper = own + 1..=self.model.known(part);
            assert!(deeper.into_iter().all(|b| !self.model.valid(component, part, b)), "and the deepest one");
            assert!(vote.without_tokens >= found.boundary_tokens);
        }
        (found, offered)
    }

    fn pages_of(&self, tokens: u64) -> usize {
        assert_eq!(tokens % u64::from(self.model.page_tokens), 0);
        (tokens / u64::from(self.model.page_tokens)) as usize
    }

    fn lease(&mut self, bytes: &mut Bytes) {
        let path = self.path(bytes);
        let (found, _) = self.find(&path, bytes);
        let boundary = self.pages_of(found.boundary_tokens);
        let granted = self.tree.lease(&space(path[0]), found.boundary_tokens, found.node);
        self.take(&granted.expect("a fresh match"), path[..=boundary].to_vec());
        self.keep_match(path, found);
    }

    fn keep_match(&mut self, path: Path, found: Match) {
        if self.matches.len() == KEPT_MAX {
            self.matches.remove(0);
        }
        self.matches.push((path, found));
    }

    /// Books a lease; what it tells as held is the gapless run of needed pages that ends at its boundary.
    pub(crate) fn take(&mut self, lease: &Lease, path: Path) {
        let boundary = pages(&path);
        assert_eq!(self.pages_of(lease.boundary_tokens), boundary);
        for (component, held) in lease.held.iter().enumerate() {
            let needed = self.model.first_page(component, boundary)..boundary;
            let back = needed.rev().map_while(|page| self.model.slot(component, &path, page));
            let mut slots: Vec<i32> = back.collect();
            slots.reverse();
            let told: Vec<i32> = held.parts.iter().flat_map(|part| part.iter().copied()).collect();
            assert_eq!(told, slots);
            assert_eq!(
                (held.pages as usize, held.first_page as usize),
                (slots.len(), boundary - slots.len())
            );
        }
        let protects = vec![true; self.model.rules.len()];
        self.model.leases.push(Leased { handle: lease.handle, path, protects });
    }

    fn claim(&mut self, bytes: &mut Bytes) {
        let path = self.path(bytes);
        let (found, offered) = self.find(&path, bytes);
        let known = self.model.known(&path[..=offered]);
        let boundary = bytes.below(known + 1);
        let (place, tokens) =
            (KnownPath::from(&found), (boundary as i64) * i64::from(self.model.page_tokens));
        let holdings = self.tree.holdings(place, tokens).expect("a fresh match");
        for (component, runs) in holdings.iter().enumerate() {
            assert_eq!(slots_by_page(runs), {
                let held = |page| Some((page, self.model.slot(component, &path, page)?));
                (0..boundary).filter_map(held).collect::<Vec<_>>()
            });
        }
        let granted = self.tree.claim(&space(path[0]), place, tokens).expect("a fresh match");
        self.take(&granted, path[..=boundary].to_vec());
        self.keep_match(path, found);
    }

    fn release(&mut self, bytes: &mut Bytes) {
        let Some(index) = bytes.pick(&self.model.leases) else { return };
        let lease = self.model.leases.swap_remove(index);
        self.tree.release(lease.handle).expect("a lease that is out");
        if self.released.len() == KEPT_MAX {
            self.released.remove(0);
        }
        self.released.push(lease.handle);
    }

    fn release_components(&mut self, bytes: &mut Bytes) {
        let Some(index) = bytes.pick(&self.model.leases) else { return };
        let mask = bytes.byte();
        let lease = &mut self.model.leases[index];
        let chosen: Vec<usize> = (0..lease.protects.len()).filter(|c| mask >> c & 1 == 1).collect();
        let names: Vec<String> = chosen.iter().map(|c| format!("c{c}")).collect();
        self.tree.release_components(lease.handle, names.iter().map(String::as_str)).expect("known names");
        chosen.iter().for_each(|&component| lease.protects[component] = false);
    }

    fn evict(&mut self, bytes: &mut Bytes) {
        let component = bytes.below(self.model.rules.len());
        let wanted = bytes.below(12) as u64;
        let within = [None, Some(0), Some(1), Some(2)][bytes.below(4)]; // of the last nothing is ever known
        let others = self.model.count_within(component, |number| Some(number) != within);
        let freed = self.evict_some(component, wanted, within);
        let left = freed[component].len() as u64;
        self.forget(&freed);
        assert!(left <= wanted);
        if within.is_some() {
            assert_eq!(self.model.count_within(component, |number| Some(number) != within), others);
        }
        if left < wanted {
            assert!(self.evict_some(component, 1, within)[component].is_empty(), "all that may leave left");
        }
    }

    /// A state leaves only where nobody needs it, which of sessions and branches only the tree knows here.
    fn drop_state(&mut self, bytes: &mut Bytes) {
        let Some(index) = bytes.pick(&self.model.leases) else { return };
        let (component, boundary) = (bytes.below(self.model.rules.len()), bytes.below(PATH_PAGES_MAX + 1));
        let (handle, path) = (self.model.leases[index].handle, self.model.leases[index].path.clone());
        let tokens = boundary as i64 * i64::from(self.model.page_tokens);
        let done = self.tree.drop_state(handle, component, tokens);
        if self.model.rules[component] != Rule::Checkpoint || boundary == 0 || boundary > pages(&path) {
            assert!(matches!(done, Err(Error::Config { .. })));
            return;
        }
        let freed = done.expect("a boundary of a lease's path").slots;
        let held = self.model.slot(component, &path, boundary - 1);
        assert!(freed[component].is_empty() || freed[component] == [held.expect("what leaves was held")]);
        assert!(freed.iter().enumerate().all(|(other, slots)| other == component || slots.is_empty()));
        self.forget(&freed);
    }

    fn evict_some(&mut self, component: usize, wanted: u64, within: Option<u8>) -> Vec<Vec<i32>> {
        match within {
            Some(number) => self.tree.evict_within(component, wanted, &space(number)).slots,
            None => self.tree.evict(component, wanted).slots,
        }
    }

    fn clear(&mut self) {
        let freed = self.tree.clear();
        self.forget(&freed.slots);
        if self.model.leases.is_empty() {
            assert!(self.model.is_empty(), "nothing was leased, so all is gone");
        }
    }

    fn forget(&mut self, slots: &[Vec<i32>]) {
        for (component, slots) in slots.iter().enumerate() {
            slots.iter().for_each(|&slot| self.model.forget(component, slot));
        }
    }

    /// The events rebuild what is held.
    fn events(&mut self) {
        for event in self.tree.take_events() {
            assert_eq!(event.reason.is_none(), event.kind == EventKind::Stored);
            assert!(event.reason != Some(Reason::Cleared) || event.tokens.is_empty());
            for key in event.page_keys {
                let place = (event.component, key);
                let changed = match event.kind {
                    EventKind::Stored => self.stored.insert(place),
                    EventKind::Removed => self.stored.remove(&place),
                };
                assert!(changed, "an event tells a change");
            }
        }
        for component in 0..self.model.rules.len() {
            let told = self.stored.iter().filter(|place| place.0 == component).count() as u64;
            assert_eq!(told, self.model.count(component).0);
        }
    }

    pub(crate) fn check(&self) {
        self.tree.check().expect("no contradiction");
        let stats = self.tree.stats();
        assert_eq!(stats.path_pages, self.model.path_pages());
        assert_eq!(stats.leases, self.model.leases.len());
        for (component, pool) in stats.pools.iter().enumerate() {
            assert_eq!((pool.held_pages, pool.leased_pages), self.model.count(component));
            assert!(pool.dead_pages <= pool.held_pages);
            for number in 0..3 {
                let held = self.model.count_within(component, |other| other == number);
                assert_eq!(self.tree.held_pages(component, &space(number)), held);
            }
        }
    }

    pub(crate) fn finish(mut self) {
        self.check();
        for lease in std::mem::take(&mut self.model.leases) {
            self.tree.release(lease.handle).expect("a lease that is out");
        }
        self.clear();
        self.events();
        self.check();
        assert_eq!(self.tree.dump(), "");
    }
}

pub(crate) fn space(number: u8) -> Namespace {
    Namespace { model: "m".into(), weight_epoch: i64::from(number), ..Namespace::default() }
}

fn slots_by_page(runs: &[HeldParts]) -> Vec<(usize, i32)> {
    runs.iter().flat_map(HeldParts::slots).map(|(page, slot)| (page as usize, slot)).collect()
}

/// One to four components of any rule.
fn composition(bytes: &mut Bytes) -> Vec<Rule> {
    let count = 1 + bytes.below(4);
    let rule = |_| match bytes.below(6) {
        0..=1 => Rule::Full,
        2..=3 => Rule::Window { lookback_tokens: bytes.below(12) as u64 },
        4 => Rule::Checkpoint,
        _ => Rule::Chunk { chunk_tokens: 1 + bytes.below(12) as u64 },
    };
    (0..count).map(rule).collect()
}
