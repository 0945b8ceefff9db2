//! The tree against a model: a map of pages, without nodes, runs, counters or orders.
//!
//! The model is told what was adopted and what left; it finds matches, duplicates and what a lease holds by
//! looking at every page. `check` finds the tree's own contradictions after each step.

use std::collections::BTreeMap;

use graftline_core::policy::make_policy;
use graftline_core::{Component, GivenRun, Handle, Hints, KnownPath, Lease, Namespace, Rule, Settings, Tree};
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
    /// The one idle longest first.
    sessions: Vec<OpenSession>,
    now_s: f64,
}

const SESSION_TTL_S: f64 = 8.0;
const SESSIONS_MAX: usize = 3;

#[derive(Clone)]
struct OpenSession {
    name: String,
    handle: Handle,
    last_s: f64,
    /// What is left of the path to its frontier, and the boundary that was registered.
    path: Tokens,
    boundary: usize,
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
                let at_end = self.sessions.iter_mut().filter(|session| session.path == path);
                at_end.for_each(|session| session.path.truncate(path.len() - PAGE));
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

impl Model {
    /// Takes a session out, to be put back as the one heard of last.
    fn take_session(&mut self, name: &str) -> Option<OpenSession> {
        let place = self.sessions.iter().position(|session| session.name == name)?;
        Some(self.sessions.remove(place))
    }

    /// Pages to which sessions refer, each counted for each session and component.
    fn referenced_pages(&self) -> usize {
        let of = |session: &OpenSession, component| {
            (session.path.len() / PAGE).saturating_sub(self.first_page(component, session.boundary))
        };
        let components = 0..self.rules.len();
        components.map(|c| self.sessions.iter().map(|session| of(session, c)).sum::<usize>()).sum()
    }
}

/// From the lines of a dump: the pages to which sessions refer, counted as the model does, and for each session
/// with a frontier how many pages lie before it.
fn told_by(dump: &str) -> (usize, Vec<usize>) {
    let (mut referenced, mut frontiers) = (0, Vec::new());
    for line in dump.lines().filter(|line| line.starts_with("  ")) {
        let mut words = line.split_whitespace();
        let place = words.next().and_then(|place| place.split_once("..")).expect("a place");
        let end: usize = place.1.parse().expect("a number");
        while let Some(word) = words.next() {
            if word == "sessions" {
                let count = words.next().and_then(|count| count.parse().ok()).expect("a number");
                frontiers.extend(std::iter::repeat_n(end, count));
            }
            if word == "references" {
                for (first, count) in words.by_ref().map_while(|place| place.split_once('x')) {
                    let (first, count): (usize, usize) =
                        (first.parse().expect("a number"), count.parse().expect("a number"));
                    referenced += count * (end - first);
                }
            }
        }
    }
    frontiers.sort_unstable();
    (referenced, frontiers)
}

struct Both {
    tree: Tree,
    model: Model,
    space: Namespace,
    next_slot: i32,
}

impl Both {
    fn new(rules: &[Rule], policy: &str) -> Self {
        let component = |(index, &rule): (usize, &Rule)| Component { name: format!("c{index}"), rule };
        let components = rules.iter().enumerate().map(component).collect();
        let settings = Settings {
            page_tokens: PAGE as u32,
            policy: make_policy(policy).expect("a known name"),
            record_events: true,
            session_ttl_s: SESSION_TTL_S,
            max_sessions: SESSIONS_MAX,
            ..Settings::default()
        };
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

    fn open(&mut self, name: &str) -> Handle {
        let handle = self.tree.open_session(name, Hints::default()).expect("good hints");
        let mut session = self.model.take_session(name).unwrap_or_else(|| OpenSession {
            name: name.to_owned(),
            handle,
            last_s: 0.0,
            path: Tokens::new(),
            boundary: 0,
        });
        assert_eq!(session.handle, handle, "the same session");
        session.last_s = self.model.now_s;
        if self.model.sessions.len() == SESSIONS_MAX {
            self.model.sessions.remove(0);
        }
        self.model.sessions.push(session);
        handle
    }

    /// A request of a session ends; of one that was closed it changes nothing.
    fn register(&mut self, name: &str, pick: usize, closed_before: bool) {
        let handle = self.open(name);
        if closed_before {
            assert!(self.tree.close_session(name));
            self.model.take_session(name);
        }
        let count = self.model.leases.len().max(1);
        let Some((lease, end, _)) = self.model.leases.get(pick % count) else { return };
        let (path, boundary) = (end.clone(), end.len() / PAGE);
        assert_eq!(self.tree.register(handle, *lease), Ok(!closed_before));
        if let Some(session) = self.model.take_session(name) {
            self.model.sessions.push(OpenSession { path, boundary, ..session });
        }
    }

    fn fork(&mut self, source: &str, target: &str) {
        let found = self.model.sessions.iter().find(|session| session.name == source).cloned();
        let forked = self.tree.fork_session(source, target);
        assert_eq!(forked.is_ok(), found.is_some());
        if let (Ok(_), Some(OpenSession { path, boundary, .. })) = (forked, found) {
            self.open(target);
            let session = self.model.take_session(target).expect("it was opened just now");
            self.model.sessions.push(OpenSession { path, boundary, ..session });
        }
    }

    fn close(&mut self, name: &str) {
        assert_eq!(self.tree.close_session(name), self.model.take_session(name).is_some());
    }

    fn pass_time(&mut self, seconds: f64) {
        self.model.now_s += seconds.max(0.0);
        let told = self.tree.set_time(self.model.now_s + seconds.min(0.0)).expect("a finite time");
        let now_s = self.model.now_s;
        let is_idle = |session: &mut OpenSession| now_s - session.last_s > SESSION_TTL_S;
        let idle: Vec<String> = self.model.sessions.extract_if(.., is_idle).map(|gone| gone.name).collect();
        assert_eq!(told.iter().map(|name| &**name).collect::<Vec<_>>(), idle);
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
        assert_eq!(stats.sessions, self.model.sessions.len());
        let ends = self.model.sessions.iter().map(|session| session.path.len() / PAGE);
        let mut ends: Vec<usize> = ends.filter(|&end| end > 0).collect();
        ends.sort_unstable();
        assert_eq!(told_by(&self.tree.dump()), (self.model.referenced_pages(), ends));
        let held: Vec<u64> =
            (0..stats.pools.len()).map(|component| self.tree.held_pages(component, &self.space)).collect();
        assert_eq!(held, stats.pools.iter().map(|pool| pool.held_pages).collect::<Vec<_>>());
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
    Register { name: u8, pick: usize, closed_before: bool },
    Fork(u8, u8),
    Close(u8),
    PassTime(i8),
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
        2 => (0..5_u8, 0..8_usize, prop::bool::weighted(0.1))
            .prop_map(|(name, pick, closed_before)| Step::Register { name, pick, closed_before }),
        1 => (0..5_u8, 0..5_u8).prop_map(|(source, target)| Step::Fork(source, target)),
        1 => (0..5_u8).prop_map(Step::Close),
        1 => (-2..5_i8).prop_map(Step::PassTime),
    ]
}

/// Pages that differ in the last token or in the first.
fn tokens_of(path: &[u8]) -> Tokens {
    path.iter().flat_map(|&kind| [u32::from(kind / 2), u32::from(kind % 2)]).collect()
}

fn play(rules: &[Rule], policy: &str, steps: Vec<Step>) {
    let mut both = Both::new(rules, policy);
    let name = |number: u8| format!("s{number}");
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
            Step::Register { name: number, pick, closed_before } => {
                both.register(&name(number), pick, closed_before);
            }
            Step::Fork(source, target) => both.fork(&name(source), &name(target)),
            Step::Close(number) => both.close(&name(number)),
            Step::PassTime(seconds) => both.pass_time(f64::from(seconds)),
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

fn any_policy() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["lru", "lfu(3)", "slru", "priority", "session", "session(cost)", "cost"])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_tree_does_as_the_model(
        rules in any_rules(), policy in any_policy(), steps in prop::collection::vec(step(3), 1..60)
    ) {
        play(&rules, policy, steps);
    }

    /// With many kinds of pages nodes have many children, which the index finds.
    #[test]
    fn nodes_with_many_children_do_as_the_model(
        rules in any_rules(), policy in any_policy(), steps in prop::collection::vec(step(24), 1..80)
    ) {
        play(&rules, policy, steps);
    }
}
