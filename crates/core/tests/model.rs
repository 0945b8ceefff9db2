//! The tree against a model: a map of pages, without nodes, runs, counters or orders.
//!
//! The model is told what was adopted and what left; it finds matches, duplicates and what a lease holds by
//! looking at every page. `check` finds the tree's own contradictions after each step.

use std::collections::BTreeMap;

use graftline_core::{Component, GivenRun, Handle, KnownPath, Lease, Namespace, Rule, Settings, Tree};
use proptest::prelude::*;

const PAGE: usize = 2;

type Tokens = Vec<u32>;

#[derive(Default)]
struct Model {
    rules: Vec<Rule>,
    /// Tokens up to the end of a page -> the slot that each component holds there.
    pages: BTreeMap<Tokens, Vec<Option<i32>>>,
    /// Boundary of each lease that is out, and the components that it still protects.
    leases: Vec<(Handle, Tokens, Vec<bool>)>,
}

impl Model {
    fn first_page(&self, component: usize, boundary: usize) -> usize {
        self.rules[component].first_page(boundary as u32, PAGE as u32) as usize
    }

    fn held(&self, component: usize, path: &[u32], page: usize) -> Option<i32> {
        self.pages.get(&path[..(page + 1) * PAGE])?[component]
    }

    fn valid(&self, component: usize, path: &[u32], boundary: usize) -> bool {
        (self.first_page(component, boundary)..boundary)
            .all(|page| self.held(component, path, page).is_some())
    }

    fn known(&self, tokens: &[u32]) -> usize {
        let whole = tokens.len() / PAGE;
        (0..whole).take_while(|page| self.pages.contains_key(&tokens[..(page + 1) * PAGE])).count()
    }

    fn agreed(&self, tokens: &[u32]) -> usize {
        let valid = |&b: &usize| (0..self.rules.len()).all(|c| self.valid(c, tokens, b));
        (0..=self.known(tokens)).rev().find(valid).unwrap_or(0)
    }

    fn protected(&self, component: usize, path: &[u32]) -> bool {
        let page = path.len() / PAGE - 1;
        let covers = |end: &Tokens| {
            let first = self.first_page(component, end.len() / PAGE);
            end.starts_with(path) && page >= first
        };
        self.leases.iter().any(|(_, end, protects)| protects[component] && covers(end))
    }

    /// A page stays for a value on it, a page below it, or a lease that ends there (T-4).
    fn tidy(&mut self) {
        let paths: Vec<Tokens> = self.pages.keys().rev().cloned().collect();
        for path in paths {
            let below = self.pages.keys().any(|other| other.len() > path.len() && other.starts_with(&path));
            let leased = self.leases.iter().any(|(_, end, _)| *end == path);
            if !below && !leased && self.pages[&path].iter().all(Option::is_none) {
                self.pages.remove(&path);
            }
        }
    }

    fn forget(&mut self, component: usize, slot: i32) {
        let mut holders = self.pages.iter().filter(|(_, slots)| slots[component] == Some(slot));
        let path = holders.next().expect("what left was held").0.clone();
        assert!(!self.protected(component, &path), "a leased page left");
        self.pages.get_mut(&path).expect("found above")[component] = None;
    }
}

struct Both {
    tree: Tree,
    model: Model,
    space: Namespace,
    next_slot: i32,
}

impl Both {
    fn new(rules: &[Rule]) -> Self {
        let component = |(index, &rule): (usize, &Rule)| Component { name: format!("c{index}"), rule };
        let components = rules.iter().enumerate().map(component).collect();
        let settings = Settings { page_tokens: PAGE as u32, record_events: true, ..Settings::default() };
        let tree = Tree::new(components, settings).expect("good settings");
        let model = Model { rules: rules.to_vec(), ..Model::default() };
        Self { tree, model, space: Namespace::default(), next_slot: 0 }
    }

    fn lease(&mut self, tokens: &[u32], limit: Option<usize>) {
        let offered = limit.unwrap_or(tokens.len()).min(tokens.len());
        let known = &tokens[..offered];
        let found = self.tree.match_(&self.space, tokens, limit.map(|limit| limit as u64));
        let boundary = self.model.agreed(known);
        assert_eq!(found.path_tokens as usize, self.model.known(known) * PAGE);
        assert_eq!(found.boundary_tokens as usize, boundary * PAGE);
        let lease = self.tree.lease(&self.space, found.boundary_tokens, found.node).expect("a fresh match");
        self.take(lease, tokens[..boundary * PAGE].to_vec());
    }

    /// Claims any boundary of the known path; what is held before it is told without a change.
    fn claim(&mut self, tokens: &[u32], pick: usize) {
        let found = self.tree.match_(&self.space, tokens, None);
        let boundary = pick % (self.model.known(tokens) + 1);
        let (path, boundary_tokens) = (KnownPath::from(&found), (boundary * PAGE) as i64);
        let before = self.tree.dump();
        let holdings = self.tree.holdings(path, boundary_tokens).expect("a fresh match");
        for (component, runs) in holdings.iter().enumerate() {
            let told = runs.iter().flat_map(|run| (run.first_page as usize..).zip(run.slots.iter().copied()));
            let held = |page| Some((page, self.model.held(component, tokens, page)?));
            assert!(told.eq((0..boundary).filter_map(held)), "all that is held is told");
            assert!(runs.windows(2).all(|pair| pair[0].end_page() < pair[1].first_page), "runs are joined");
        }
        assert!(self.tree.claim(&self.space, path, boundary_tokens + 1).is_err(), "no page ends there");
        assert_eq!(self.tree.dump(), before);
        let lease = self.tree.claim(&self.space, path, boundary_tokens).expect("a fresh match");
        self.take(lease, tokens[..boundary * PAGE].to_vec());
    }

    /// Books a lease; what it holds is what its rule needs there, as far back as there is no gap.
    fn take(&mut self, lease: Lease, end: Tokens) {
        assert_eq!(lease.boundary_tokens as usize, end.len());
        for (component, held) in lease.held.iter().enumerate() {
            let slots: Vec<i32> = held.parts.iter().flat_map(|part| part.iter().copied()).collect();
            assert_eq!(slots.len(), held.pages as usize);
            let pages = held.first_page as usize..end.len() / PAGE;
            let wanted: Vec<i32> = pages.filter_map(|page| self.model.held(component, &end, page)).collect();
            assert_eq!(slots, wanted);
            let first = held.first_page as usize;
            let needed = self.model.first_page(component, end.len() / PAGE);
            assert!(
                first == needed || (first > needed && self.model.held(component, &end, first - 1).is_none())
            );
        }
        self.model.leases.push((lease.handle, end, vec![true; self.model.rules.len()]));
    }

    fn insert(&mut self, pick: usize, added: &[u32], masks: &[u32], move_lease: bool) {
        let Some((handle, end, _)) = self.model.leases.get(pick % self.model.leases.len().max(1)) else {
            return;
        };
        let (handle, start) = (*handle, end.len() / PAGE);
        let path = [end.as_slice(), added].concat();
        let (pages, known) = (path.len() / PAGE, self.model.known(&path));
        let mut values = Vec::new();
        for (component, rule) in self.model.rules.iter().enumerate() {
            let wanted = |page: usize| {
                masks[component] >> (page - start) & 1 == 1 || (rule.prefix_closed() && page >= known)
            };
            let runs = (start..pages).filter(|&page| wanted(page)).map(|page| {
                self.next_slot += 1;
                GivenRun { first_page: page as i64, slots: vec![self.next_slot] }
            });
            values.push((format!("c{component}"), runs.collect()));
        }
        let done = self.tree.insert(handle, added, values, move_lease).expect("good values");
        assert_eq!(done.new_pages as usize, pages - known.max(start));
        for page in start..pages {
            self.model
                .pages
                .entry(path[..(page + 1) * PAGE].to_vec())
                .or_insert_with(|| vec![None; masks.len()]);
        }
        for (component, runs) in done.duplicates.iter().enumerate() {
            for page in runs.iter().flat_map(|run| run.first_page..run.end_page()) {
                assert!(self.model.held(component, &path, page as usize).is_some(), "a duplicate was held");
            }
        }
        for (component, runs) in done.adopted.iter().enumerate() {
            for (page, &slot) in runs.iter().flat_map(|run| (run.first_page as usize..).zip(&run.slots)) {
                let place =
                    &mut self.model.pages.get_mut(&path[..(page + 1) * PAGE]).expect("known")[component];
                assert_eq!(place.replace(slot), None, "an adopted page was not held");
            }
        }
        if let Some(lease) = done.lease {
            self.model.leases.retain(|(other, _, _)| *other != handle);
            self.take(lease, path[..pages * PAGE].to_vec());
        }
    }

    fn release(&mut self, pick: usize) {
        if !self.model.leases.is_empty() {
            let (handle, _, _) = self.model.leases.swap_remove(pick % self.model.leases.len());
            self.tree.release(handle).expect("a lease that is out");
            assert!(self.tree.release(handle).is_err(), "it is stale now");
        }
    }

    fn release_components(&mut self, pick: usize, mask: u32) {
        let count = self.model.leases.len().max(1);
        let Some((handle, _, protects)) = self.model.leases.get_mut(pick % count) else { return };
        let names: Vec<String> =
            (0..protects.len()).filter(|c| mask >> c & 1 == 1).map(|c| format!("c{c}")).collect();
        protects.iter_mut().enumerate().for_each(|(c, protected)| *protected &= mask >> c & 1 == 0);
        self.tree.release_components(*handle, names.iter().map(String::as_str)).expect("known names");
    }

    fn evict(&mut self, component: usize, wanted: u64) {
        let component = component % self.model.rules.len();
        let freed = self.tree.evict(component, wanted);
        let left = freed.slots[component].len() as u64;
        for (component, slots) in freed.slots.iter().enumerate() {
            slots.iter().for_each(|&slot| self.model.forget(component, slot));
        }
        assert!(left <= wanted);
        if left < wanted {
            let more = self.tree.evict(component, 1);
            assert!(more.slots[component].is_empty(), "as many leave as may leave");
        }
    }

    fn check(&mut self) {
        self.model.tidy();
        self.tree.check().expect("no contradiction");
        let stats = self.tree.stats();
        assert_eq!(stats.path_pages as usize, self.model.pages.len());
        for (component, pool) in stats.pools.iter().enumerate() {
            let held: Vec<&Tokens> = self
                .model
                .pages
                .iter()
                .filter(|(_, slots)| slots[component].is_some())
                .map(|(path, _)| path)
                .collect();
            let leased = held.iter().filter(|path| self.model.protected(component, path)).count();
            assert_eq!((pool.held_pages, pool.leased_pages), (held.len() as u64, leased as u64));
        }
    }

    fn finish(mut self) {
        while !self.model.leases.is_empty() {
            self.release(0);
        }
        for (component, slots) in self.tree.clear().slots.iter().enumerate() {
            slots.iter().for_each(|&slot| self.model.forget(component, slot));
        }
        self.check();
        assert_eq!(self.tree.dump(), "");
        assert_eq!(self.tree.stats().nodes, 0);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Lease { path: Vec<u8>, limit: Option<usize> },
    Claim { path: Vec<u8>, pick: usize },
    Insert { pick: usize, path: Vec<u8>, masks: Vec<u32>, move_lease: bool },
    Release(usize),
    ReleaseComponents(usize, u32),
    Evict(usize, u64),
}

fn step(kinds: u8) -> impl Strategy<Value = Step> {
    let path = || prop::collection::vec(0..kinds, 0..7);
    prop_oneof![
        3 => (path(), prop::option::of(0..12_usize)).prop_map(|(path, limit)| Step::Lease { path, limit }),
        2 => (path(), 0..8_usize).prop_map(|(path, pick)| Step::Claim { path, pick }),
        4 => (0..8_usize, path(), prop::collection::vec(0..64_u32, 3), any::<bool>())
            .prop_map(|(pick, path, masks, move_lease)| Step::Insert { pick, path, masks, move_lease }),
        2 => (0..8_usize).prop_map(Step::Release),
        1 => (0..8_usize, 0..8_u32).prop_map(|(pick, mask)| Step::ReleaseComponents(pick, mask)),
        3 => (0..3_usize, 0..9_u64).prop_map(|(component, wanted)| Step::Evict(component, wanted)),
    ]
}

/// Pages that differ in the last token or in the first.
fn tokens_of(path: &[u8]) -> Tokens {
    path.iter().flat_map(|&kind| [u32::from(kind / 2), u32::from(kind % 2)]).collect()
}

fn play(rules: &[Rule], steps: Vec<Step>) {
    let mut both = Both::new(rules);
    for step in steps {
        match step {
            Step::Lease { path, limit } => both.lease(&tokens_of(&path), limit),
            Step::Claim { path, pick } => both.claim(&tokens_of(&path), pick),
            Step::Insert { pick, path, masks, move_lease } => {
                both.insert(pick, &tokens_of(&path), &masks[..rules.len()], move_lease);
            }
            Step::Release(pick) => both.release(pick),
            Step::ReleaseComponents(pick, mask) => both.release_components(pick, mask),
            Step::Evict(component, wanted) => both.evict(component, wanted),
        }
        both.check();
    }
    both.finish();
}

fn any_rules() -> impl Strategy<Value = Vec<Rule>> {
    let window = |lookback_tokens| Rule::Window { lookback_tokens };
    let chunk = |chunk_tokens| Rule::Chunk { chunk_tokens };
    prop::sample::select(vec![
        vec![Rule::Full],
        vec![Rule::Full, window(3)],
        vec![Rule::Full, Rule::Checkpoint],
        vec![window(5), Rule::Full, Rule::Checkpoint],
        vec![Rule::Full, chunk(6)],
        vec![Rule::Full, Rule::Full, window(1)],
        vec![window(2), window(7)],
        vec![Rule::Checkpoint],
        vec![Rule::Full, window(0), Rule::Checkpoint],
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_tree_does_as_the_model(rules in any_rules(), steps in prop::collection::vec(step(3), 1..60)) {
        play(&rules, steps);
    }

    /// With many kinds of pages nodes have many children, which the index finds.
    #[test]
    fn nodes_with_many_children_do_as_the_model(rules in any_rules(), steps in prop::collection::vec(step(24), 1..80)) {
        play(&rules, steps);
    }
}
