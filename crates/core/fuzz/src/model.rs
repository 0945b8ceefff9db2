//! What the tree must do, over a map from paths to slots: no nodes, no runs, no counters.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use graftline_core::{Handle, Rule};

/// A namespace, then the kind of each page.
pub type Path = Vec<u8>;

/// Pages of a path.
pub fn pages(path: &[u8]) -> usize {
    path.len() - 1
}

/// A lease that is out.
pub struct Leased {
    pub handle: Handle,
    pub path: Path,
    pub protects: Vec<bool>,
}

/// All that is held and leased.
pub struct Model {
    pub rules: Vec<Rule>,
    pub page_tokens: u32,
    pub leases: Vec<Leased>,
    held: BTreeMap<Path, Vec<Option<i32>>>,
    places: HashMap<(usize, i32), Path>,
}

impl Model {
    pub fn new(rules: Vec<Rule>, page_tokens: u32) -> Self {
        Self { rules, page_tokens, leases: Vec::new(), held: BTreeMap::new(), places: HashMap::new() }
    }

    pub fn first_page(&self, component: usize, boundary: usize) -> usize {
        self.rules[component].first_page(boundary as u32, self.page_tokens) as usize
    }

    /// Slot of a component on the page with this index.
    pub fn slot(&self, component: usize, path: &[u8], page: usize) -> Option<i32> {
        self.held.get(&path[..page + 2])?[component]
    }

    pub fn valid(&self, component: usize, path: &[u8], boundary: usize) -> bool {
        (self.first_page(component, boundary)..boundary)
            .all(|page| self.slot(component, path, page).is_some())
    }

    pub fn agreed_at(&self, path: &[u8], boundary: usize) -> bool {
        (0..self.rules.len()).all(|component| self.valid(component, path, boundary))
    }

    /// How many pages of a path the tree knows: values on or below them, or a lease that ends there or below.
    pub fn known(&self, path: &[u8]) -> usize {
        let kept = |end: usize| {
            let part = &path[..=end];
            let next = self.held.range(part.to_vec()..).next();
            next.is_some_and(|(below, _)| below.starts_with(part))
                || self.leases.iter().any(|lease| lease.path.starts_with(part))
        };
        (1..=pages(path)).take_while(|&end| kept(end)).count()
    }

    /// Deepest boundary of the known path that all accept.
    pub fn agreed(&self, path: &[u8]) -> usize {
        (0..=self.known(path)).rev().find(|&boundary| self.agreed_at(path, boundary)).unwrap_or(0)
    }

    pub fn protected(&self, component: usize, path: &[u8]) -> bool {
        let page = pages(path) - 1;
        self.leases.iter().any(|lease| {
            lease.protects[component]
                && lease.path.starts_with(path)
                && page >= self.first_page(component, pages(&lease.path))
        })
    }

    /// A page is adopted.
    pub fn store(&mut self, component: usize, path: &[u8], slot: i32) {
        let count = self.rules.len();
        let place = &mut self.held.entry(path.to_vec()).or_insert_with(|| vec![None; count])[component];
        assert_eq!(place.replace(slot), None, "an adopted page was not held");
        assert!(self.places.insert((component, slot), path.to_vec()).is_none(), "a slot has one place");
    }

    /// A page leaves.
    pub fn forget(&mut self, component: usize, slot: i32) {
        let path = self.places.remove(&(component, slot)).expect("what leaves was held");
        assert!(!self.protected(component, &path), "a leased page left");
        let slots = self.held.get_mut(&path).expect("what leaves was held");
        slots[component] = None;
        if slots.iter().all(Option::is_none) {
            self.held.remove(&path);
        }
    }

    /// Pages that a component holds, and how many of them are leased.
    pub fn count(&self, component: usize) -> (u64, u64) {
        let held = self.held.iter().filter(|(_, slots)| slots[component].is_some());
        held.fold((0, 0), |(held, leased), (path, _)| {
            (held + 1, leased + u64::from(self.protected(component, path)))
        })
    }

    /// Pages that a component holds in the namespaces chosen.
    pub fn count_within(&self, component: usize, chosen: impl Fn(u8) -> bool) -> u64 {
        let held = self.held.iter().filter(|(path, slots)| chosen(path[0]) && slots[component].is_some());
        held.count() as u64
    }

    /// Pages of all known paths, each counted once.
    pub fn path_pages(&self) -> u64 {
        let ends = self.held.keys().chain(self.leases.iter().map(|lease| &lease.path));
        let all: BTreeSet<&[u8]> = ends.flat_map(|path| (2..=path.len()).map(|end| &path[..end])).collect();
        all.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}
