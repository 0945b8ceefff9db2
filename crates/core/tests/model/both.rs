//! The tree and the model, driven by the same operations.

use graftline_core::policy::make_policy;
use graftline_core::{Component, GivenRun, Handle, Hints, KnownPath, Lease, Namespace, Rule, Settings, Tree};

use crate::pages::{Model, OpenSession, PAGE, SESSION_TTL_S, SESSIONS_MAX, Tokens, told_by};

pub(crate) struct Both {
    pub(crate) tree: Tree,
    pub(crate) model: Model,
    pub(crate) space: Namespace,
    pub(crate) next_slot: i32,
}

impl Both {
    pub(crate) fn new(rules: &[Rule], policy: &str) -> Self {
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

    pub(crate) fn lease(&mut self, tokens: &[u32], limit: Option<usize>) {
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
    pub(crate) fn claim(&mut self, tokens: &[u32], pick: usize) {
        let found = self.tree.match_(&self.space, tokens, None);
        let boundary = pick % (self.model.known(tokens) + 1);
        let (path, boundary_tokens) = (KnownPath::from(&found), (boundary * PAGE) as i64);
        let before = self.tree.dump();
        let holdings = self.tree.holdings(path, boundary_tokens).expect("a fresh match");
        for (component, runs) in holdings.iter().enumerate() {
            let told = runs.iter().flat_map(|run| run.slots().map(|(page, slot)| (page as usize, slot)));
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
    pub(crate) fn take(&mut self, lease: Lease, end: Tokens) {
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

    pub(crate) fn insert(&mut self, pick: usize, added: &[u32], masks: &[u32], move_lease: bool) {
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
                GivenRun { first_page: page as i64, slots: vec![self.next_slot].into() }
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
            for (page, &slot) in runs.iter().flat_map(|run| (run.first_page as usize..).zip(run.slots.iter()))
            {
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

    pub(crate) fn release(&mut self, pick: usize) {
        if !self.model.leases.is_empty() {
            let (handle, _, _) = self.model.leases.swap_remove(pick % self.model.leases.len());
            self.tree.release(handle).expect("a lease that is out");
            assert!(self.tree.release(handle).is_err(), "it is stale now");
        }
    }

    pub(crate) fn release_components(&mut self, pick: usize, mask: u32) {
        let count = self.model.leases.len().max(1);
        let Some((handle, _, protects)) = self.model.leases.get_mut(pick % count) else { return };
        let names: Vec<String> =
            (0..protects.len()).filter(|c| mask >> c & 1 == 1).map(|c| format!("c{c}")).collect();
        protects.iter_mut().enumerate().for_each(|(c, protected)| *protected &= mask >> c & 1 == 0);
        self.tree.release_components(*handle, names.iter().map(String::as_str)).expect("known names");
    }

    pub(crate) fn open(&mut self, name: &str) -> Handle {
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
    pub(crate) fn register(&mut self, name: &str, pick: usize, closed_before: bool, answer: Option<u32>) {
        let handle = self.open(name);
        if closed_before {
            assert!(self.tree.close_session(name));
            self.model.take_session(name);
        }
        let count = self.model.leases.len().max(1);
        let Some((lease, end, _)) = self.model.leases.get(pick % count) else { return };
        let (path, boundary) = (end.clone(), end.len() / PAGE);
        assert_eq!(self.tree.register(handle, *lease, answer), Ok(!closed_before));
        if let Some(session) = self.model.take_session(name) {
            self.model.sessions.push(OpenSession { path, boundary, ..session });
        }
    }

    pub(crate) fn fork(&mut self, source: &str, target: &str) {
        let found = self.model.sessions.iter().find(|session| session.name == source).cloned();
        let forked = self.tree.fork_session(source, target);
        assert_eq!(forked.is_ok(), found.is_some());
        if let (Ok(_), Some(OpenSession { path, boundary, .. })) = (forked, found) {
            self.open(target);
            let session = self.model.take_session(target).expect("it was opened just now");
            self.model.sessions.push(OpenSession { path, boundary, ..session });
        }
    }

    pub(crate) fn close(&mut self, name: &str) {
        assert_eq!(self.tree.close_session(name), self.model.take_session(name).is_some());
    }

    pub(crate) fn pass_time(&mut self, seconds: f64) {
        self.model.now_s += seconds.max(0.0);
        let told = self.tree.set_time(self.model.now_s + seconds.min(0.0)).expect("a finite time");
        let now_s = self.model.now_s;
        let is_idle = |session: &mut OpenSession| now_s - session.last_s > SESSION_TTL_S;
        let idle: Vec<String> = self.model.sessions.extract_if(.., is_idle).map(|gone| gone.name).collect();
        assert_eq!(told.iter().map(|name| &**name).collect::<Vec<_>>(), idle);
    }

    pub(crate) fn evict(&mut self, component: usize, wanted: u64) {
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

    pub(crate) fn check(&mut self) {
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

    pub(crate) fn finish(mut self) {
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
