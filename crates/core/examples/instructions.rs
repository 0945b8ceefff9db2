//! The main operations on fixed inputs, each in a function of its own, for `bench/core/instructions.py`.
//!
//! Valgrind counts what each function whose name begins with `op_` takes, and how often it was called.

use std::hint::black_box;

use graftline_core::{
    Component, Freed, GivenRun, Handle, HeldParts, Insertion, KnownPath, Lease, Match, Namespace, Rule,
    Settings, Tree,
};

const PAGE: usize = 16;
const TURN_TOKENS: usize = 512;
const LONG_TOKENS: usize = 131_072;
const LEAVES: usize = 2_000;
const LEAF_TOKENS: usize = 4 * PAGE;
const REPEATS: usize = 32;

fn main() {
    let mut long = Owner::new(false);
    let tokens = random_tokens(LONG_TOKENS, 1);
    long.grow(&tokens, LONG_TOKENS);
    for _ in 0..REPEATS {
        black_box(op_match_1_node(&long, &tokens));
    }
    let mut turns = Owner::new(false);
    turns.grow(&tokens, TURN_TOKENS);
    one_conversation(&mut turns, &tokens);
    let mut told = Owner::new(true);
    told.grow(&tokens[..LONG_TOKENS / 8], TURN_TOKENS);
    for turn in 0..REPEATS {
        let end = told.lease(&tokens[..LONG_TOKENS / 8]);
        let added = random_tokens(TURN_TOKENS, 100 + turn as u64);
        let values = told.values(LONG_TOKENS / 8 / PAGE, TURN_TOKENS / PAGE);
        black_box(op_insert_turn_with_events(&mut told, &end, &added, values));
        told.tree.take_events();
        told.tree.release(end.handle).expect("a lease that is out");
    }
    leaves();
}

/// Turns at the end of a conversation of 256 nodes.
fn one_conversation(owner: &mut Owner, tokens: &[u32]) {
    for turn in 0..REPEATS {
        let found = op_match_256_nodes(owner, tokens);
        let lease = op_lease(owner, &found);
        let added = random_tokens(TURN_TOKENS, 500 + turn as u64);
        let values = owner.values(LONG_TOKENS / PAGE, TURN_TOKENS / PAGE);
        black_box(op_insert_turn(owner, &lease, &added, values));
        op_release(owner, &lease);
        let claim = op_claim(owner, &found);
        owner.tree.release(claim.handle).expect("a lease that is out");
        black_box(op_holdings(owner, &found));
    }
    owner.tree.check().expect("no contradiction");
}

/// Many leaves below one prompt.
fn leaves() {
    let mut owner = Owner::new(false);
    let prompt = random_tokens(TURN_TOKENS, 7);
    owner.grow(&prompt, TURN_TOKENS);
    for leaf in 0..LEAVES {
        let lease = owner.lease(&prompt);
        let values = owner.values(TURN_TOKENS / PAGE, LEAF_TOKENS / PAGE);
        black_box(op_insert_leaf(
            &mut owner,
            &lease,
            &random_tokens(LEAF_TOKENS, 1000 + leaf as u64),
            values,
        ));
        owner.tree.release(lease.handle).expect("a lease that is out");
    }
    for _ in 0..REPEATS {
        assert_eq!(op_evict_page(&mut owner).slots[0].len(), 1);
    }
    assert_eq!(op_evict_1000_pages(&mut owner).slots[0].len(), 1000);
    owner.tree.check().expect("no contradiction");
    black_box(op_clear(&mut owner));
}

#[inline(never)]
fn op_match_1_node(owner: &Owner, tokens: &[u32]) -> Match {
    black_box(1); // keeps functions of one body apart
    owner.tree.match_(&owner.space, tokens, None)
}

#[inline(never)]
fn op_match_256_nodes(owner: &Owner, tokens: &[u32]) -> Match {
    black_box(2);
    owner.tree.match_(&owner.space, tokens, None)
}

#[inline(never)]
fn op_lease(owner: &mut Owner, found: &Match) -> Lease {
    black_box(3);
    owner.tree.lease(&owner.space, found.boundary_tokens, found.node).expect("a fresh match")
}

#[inline(never)]
fn op_release(owner: &mut Owner, lease: &Lease) {
    black_box(4);
    owner.tree.release(lease.handle).expect("a lease that is out");
}

#[inline(never)]
fn op_claim(owner: &mut Owner, found: &Match) -> Lease {
    black_box(5);
    let boundary = found.path_tokens as i64 - TURN_TOKENS as i64;
    owner.tree.claim(&owner.space, KnownPath::from(found), boundary).expect("a known path")
}

#[inline(never)]
fn op_holdings(owner: &Owner, found: &Match) -> Vec<Vec<HeldParts>> {
    black_box(6);
    owner.tree.holdings(KnownPath::from(found), found.path_tokens as i64).expect("a known path")
}

#[inline(never)]
fn op_insert_turn(owner: &mut Owner, lease: &Lease, added: &[u32], values: Values) -> Insertion {
    black_box(7);
    owner.tree.insert(lease.handle, added, values, false).expect("good values")
}

#[inline(never)]
fn op_insert_turn_with_events(owner: &mut Owner, lease: &Lease, added: &[u32], values: Values) -> Insertion {
    black_box(8);
    owner.tree.insert(lease.handle, added, values, false).expect("good values")
}

#[inline(never)]
fn op_insert_leaf(owner: &mut Owner, lease: &Lease, added: &[u32], values: Values) -> Insertion {
    black_box(9);
    owner.tree.insert(lease.handle, added, values, false).expect("good values")
}

#[inline(never)]
fn op_evict_page(owner: &mut Owner) -> Freed {
    black_box(10);
    owner.tree.evict(0, 1)
}

#[inline(never)]
fn op_evict_1000_pages(owner: &mut Owner) -> Freed {
    black_box(11);
    owner.tree.evict(0, 1000)
}

#[inline(never)]
fn op_clear(owner: &mut Owner) -> Freed {
    black_box(12);
    owner.tree.clear()
}

type Values = Vec<(String, Vec<GivenRun>)>;

/// A tree of full attention, a window and a checkpoint, and slots that are never used twice.
struct Owner {
    tree: Tree,
    space: Namespace,
    next_slot: i32,
}

impl Owner {
    fn new(record_events: bool) -> Self {
        let rules = [
            ("full", Rule::Full),
            ("swa", Rule::Window { lookback_tokens: 127 }),
            ("state", Rule::Checkpoint),
        ];
        let components =
            rules.into_iter().map(|(name, rule)| Component { name: name.to_owned(), rule }).collect();
        let settings = Settings { page_tokens: PAGE as u32, record_events, ..Settings::default() };
        let tree = Tree::new(components, settings).expect("good settings");
        Self { tree, space: Namespace::default(), next_slot: 0 }
    }

    fn lease(&mut self, tokens: &[u32]) -> Lease {
        let found = self.tree.match_(&self.space, tokens, None);
        assert_eq!(found.boundary_tokens as usize, tokens.len());
        self.tree.lease(&self.space, found.boundary_tokens, found.node).expect("a fresh match")
    }

    /// What a request gives that computed `pages` pages from `start` on: all, a window, a state.
    fn values(&mut self, start: usize, pages: usize) -> Values {
        let window = 128 / PAGE;
        [("full", 0), ("swa", pages.saturating_sub(window)), ("state", pages - 1)]
            .into_iter()
            .map(|(name, skipped)| {
                let first = self.next_slot;
                self.next_slot += (pages - skipped) as i32;
                let slots = (first..self.next_slot).collect();
                (name.to_owned(), vec![GivenRun { first_page: (start + skipped) as i64, slots }])
            })
            .collect()
    }

    /// Inserts a path in pieces.
    fn grow(&mut self, tokens: &[u32], step: usize) {
        let mut lease = self.tree.lease(&self.space, 0, Handle::NONE).expect("the empty prefix");
        for (turn, added) in tokens.chunks(step).enumerate() {
            let values = self.values(turn * step / PAGE, added.len() / PAGE);
            let done = self.tree.insert(lease.handle, added, values, true).expect("good values");
            lease = done.lease.expect("the lease moves");
        }
        self.tree.release(lease.handle).expect("a lease that is out");
    }
}

/// Tokens of a linear congruential generator, the same at every run.
fn random_tokens(count: usize, seed: u64) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % 150_000
    };
    (0..count).map(|_| next()).collect()
}
