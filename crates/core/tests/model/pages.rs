//! The model: a map of pages and a list of sessions, without nodes, runs, counters or orders.

use std::collections::BTreeMap;

use graftline_core::{Handle, Rule};

pub(crate) const PAGE: usize = 2;

pub(crate) type Tokens = Vec<u32>;

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) rules: Vec<Rule>,
    /// Tokens up to the end of a page -> the slot that each component holds there.
    pub(crate) pages: BTreeMap<Tokens, Vec<Option<i32>>>,
    /// Boundary of each lease that is out, and the components that it still protects.
    pub(crate) leases: Vec<(Handle, Tokens, Vec<bool>)>,
    /// The one idle longest first.
    pub(crate) sessions: Vec<OpenSession>,
    pub(crate) now_s: f64,
}

pub(crate) const SESSION_TTL_S: f64 = 8.0;
pub(crate) const SESSIONS_MAX: usize = 3;

#[derive(Clone)]
pub(crate) struct OpenSession {
    pub(crate) name: String,
    pub(crate) handle: Handle,
    pub(crate) last_s: f64,
    /// What is left of the path to its frontier, and the boundary that was registered.
    pub(crate) path: Tokens,
    pub(crate) boundary: usize,
}

impl Model {
    pub(crate) fn first_page(&self, component: usize, boundary: usize) -> usize {
        self.rules[component].first_page(boundary as u32, PAGE as u32) as usize
    }

    pub(crate) fn held(&self, component: usize, path: &[u32], page: usize) -> Option<i32> {
        self.pages.get(&path[..(page + 1) * PAGE])?[component]
    }

    pub(crate) fn valid(&self, component: usize, path: &[u32], boundary: usize) -> bool {
        (self.first_page(component, boundary)..boundary)
            .all(|page| self.held(component, path, page).is_some())
    }

    pub(crate) fn known(&self, tokens: &[u32]) -> usize {
        let whole = tokens.len() / PAGE;
        (0..whole).take_while(|page| self.pages.contains_key(&tokens[..(page + 1) * PAGE])).count()
    }

    pub(crate) fn agreed(&self, tokens: &[u32]) -> usize {
        let valid = |&b: &usize| (0..self.rules.len()).all(|c| self.valid(c, tokens, b));
        (0..=self.known(tokens)).rev().find(valid).unwrap_or(0)
    }

    pub(crate) fn protected(&self, component: usize, path: &[u32]) -> bool {
        let page = path.len() / PAGE - 1;
        let covers = |end: &Tokens| {
            let first = self.first_page(component, end.len() / PAGE);
            end.starts_with(path) && page >= first
        };
        self.leases.iter().any(|(_, end, protects)| protects[component] && covers(end))
    }

    /// A page stays for a value on it, a page below it, or a lease that ends there (T-4).
    pub(crate) fn tidy(&mut self) {
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

    pub(crate) fn forget(&mut self, component: usize, slot: i32) {
        let mut holders = self.pages.iter().filter(|(_, slots)| slots[component] == Some(slot));
        let path = holders.next().expect("what left was held").0.clone();
        assert!(!self.protected(component, &path), "a leased page left");
        self.pages.get_mut(&path).expect("found above")[component] = None;
    }
}

impl Model {
    /// Takes a session out, to be put back as the one heard of last.
    pub(crate) fn take_session(&mut self, name: &str) -> Option<OpenSession> {
        let place = self.sessions.iter().position(|session| session.name == name)?;
        Some(self.sessions.remove(place))
    }

    /// Pages to which sessions refer, each counted for each session and component.
    pub(crate) fn referenced_pages(&self) -> usize {
        let of = |session: &OpenSession, component| {
            (session.path.len() / PAGE).saturating_sub(self.first_page(component, session.boundary))
        };
        let components = 0..self.rules.len();
        components.map(|c| self.sessions.iter().map(|session| of(session, c)).sum::<usize>()).sum()
    }
}

/// From the lines of a dump: the pages to which sessions refer, counted as the model does, and for each session
/// with a frontier how many pages lie before it.
pub(crate) fn told_by(dump: &str) -> (usize, Vec<usize>) {
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
