//! Worked examples, as `dump` tells them.

use graftline_core::policy::{Lru, Policy, Usage};
use graftline_core::{
    Component, Error, EventKind, GivenRun, Handle, Lease, Namespace, Reason, Rule, Settings, Tree,
};

fn tree_with(rules: &[(&str, Rule)], policy: Box<dyn Policy>) -> Tree {
    let components = rules.iter().map(|&(name, rule)| Component { name: name.to_owned(), rule }).collect();
    let settings = Settings { policy, record_events: true, ..Settings::default() };
    Tree::new(components, settings).expect("good settings")
}

fn tree(rules: &[(&str, Rule)]) -> Tree {
    tree_with(rules, Box::new(Lru))
}

fn space() -> Namespace {
    Namespace::default()
}

fn lease(tree: &mut Tree, tokens: &[u32]) -> Lease {
    let found = tree.match_(&space(), tokens, None);
    tree.lease(&space(), found.boundary_tokens, found.node).expect("a fresh match")
}

/// One run of pages.
fn run(name: &str, first_page: i64, slots: &[i32]) -> (String, Vec<GivenRun>) {
    (name.to_owned(), vec![GivenRun { first_page, slots: slots.into() }])
}

/// Adds a path from the start and leaves no lease behind. A slot is a hundred, for a state two hundred, more than
/// the token at its page.
fn add(tree: &mut Tree, tokens: &[u32], states: &[i64]) {
    let root = tree.lease(&space(), 0, Handle::NONE).expect("the empty prefix");
    let slots: Vec<i32> = tokens.iter().map(|&token| 100 + token as i32).collect();
    let mut values = vec![run("full", 0, &slots)];
    if !states.is_empty() {
        let runs = states.iter().map(|&page| GivenRun {
            first_page: page,
            slots: vec![200 + tokens[page as usize] as i32].into(),
        });
        values.push(("state".to_owned(), runs.collect()));
    }
    tree.insert(root.handle, tokens, values, false).expect("good values");
    tree.release(root.handle).expect("a lease that is out");
    tree.check().expect("no contradiction");
}

/// The dump without its first line and the checksums.
fn lines(tree: &Tree) -> Vec<String> {
    let text = tree.dump();
    let without_mark =
        |line: &str| line.split(' ').filter(|word| !word.starts_with('#')).collect::<Vec<_>>().join(" ");
    text.lines().skip(1).map(without_mark).collect()
}

const FULL: (&str, Rule) = ("full", Rule::Full);
const STATE: (&str, Rule) = ("state", Rule::Checkpoint);

#[test]
fn a_lease_splits_the_node_of_its_boundary_and_protects_what_it_needs() {
    let mut tree = tree(&[FULL]);
    add(&mut tree, &[1, 2, 3, 4], &[]);
    assert_eq!(lines(&tree), ["  0..4 valid 1..4 | full 0..4 [101 102 103 104] @1"]);

    let held = lease(&mut tree, &[1, 2, 9]);
    assert_eq!(held.held[0].parts.iter().map(|part| part.to_vec()).collect::<Vec<_>>(), [[101, 102]]);
    assert_eq!(
        lines(&tree),
        [
            "  0..2 valid 1..2 leases 1 | full 0..2 [101 102] @2 | full locks 0x1",
            "    2..4 valid 3..4 | full 2..4 [103 104] @1",
        ]
    );
    assert_eq!(tree.evict(0, 9).slots, [[104, 103]], "the tail leaves, what is leased stays");
    tree.release(held.handle).expect("a lease that is out");
    assert_eq!(tree.evict(0, 1).slots, [[102]]);
    assert_eq!(lines(&tree), ["  0..1 valid 1..1 | full 0..1 [101] @2"]);
}

#[test]
fn the_component_that_kept_most_away_limits_the_match() {
    let mut tree = tree(&[FULL, STATE]);
    add(&mut tree, &[1, 2, 3, 4], &[1]);
    let found = tree.match_(&space(), &[1, 2, 3, 4, 5], None);
    assert_eq!((found.boundary_tokens, found.path_tokens, found.lost_tokens), (2, 4, 2));
    assert_eq!((found.limited_by, found.reason), (Some(1), "no checkpoint here"));
    assert_eq!(found.branch_tokens, 4, "a checkpoint kept there would let the next request start there");
    assert_eq!(tree.evict(1, 1).slots[1], [202]);
    let found = tree.match_(&space(), &[1, 2], None);
    assert_eq!((found.boundary_tokens, found.reason), (0, "evicted"));
}

#[test]
fn dead_values_leave_before_live_ones() {
    let mut tree = tree(&[FULL, STATE]);
    add(&mut tree, &[1, 2, 3], &[1]);
    add(&mut tree, &[7, 8], &[1]);
    let freed = tree.evict(0, 1);
    assert_eq!(
        freed.slots[0],
        [103],
        "no state makes page 2 usable, though it is not the coldest path's tail"
    );
    assert_eq!(freed.dead_pages, [1, 0]);
    let freed = tree.evict(0, 1);
    assert_eq!((freed.slots, freed.dead_pages), (vec![vec![102], vec![202]], vec![0, 1]));
}

#[test]
fn events_tell_what_came_and_what_left() {
    let mut tree = tree(&[FULL, STATE]);
    add(&mut tree, &[1, 2], &[1]);
    tree.evict(0, 1);
    let told: Vec<_> = tree
        .take_events()
        .into_iter()
        .map(|e| (e.kind, e.component, e.first_page, e.tokens, e.reason))
        .collect();
    assert_eq!(
        told,
        [
            (EventKind::Stored, 0, 0, vec![1, 2], None),
            (EventKind::Stored, 1, 1, vec![2], None),
            (EventKind::Removed, 0, 1, vec![], Some(Reason::Evicted)),
            (EventKind::Removed, 1, 1, vec![], Some(Reason::PathEvicted)),
        ]
    );
    assert_eq!(tree.take_events(), []);
}

#[test]
fn an_outdated_match_is_refused() {
    let mut tree = tree(&[FULL]);
    add(&mut tree, &[1, 2, 3], &[]);
    let found = tree.match_(&space(), &[1, 2, 3], None);
    tree.evict(0, 1);
    let refused = tree.lease(&space(), found.boundary_tokens, found.node);
    assert!(matches!(refused, Err(Error::StaleHandle { .. })), "its boundary is gone");
    tree.evict(0, 2);
    add(&mut tree, &[7, 8, 9], &[]);
    let refused = tree.lease(&space(), found.boundary_tokens, found.node);
    assert!(matches!(refused, Err(Error::StaleHandle { .. })), "its node is gone, another has its place");
}

#[test]
fn a_refused_insertion_changes_nothing() {
    let mut tree = tree(&[FULL, STATE]);
    add(&mut tree, &[1, 2], &[1]);
    let root = tree.lease(&space(), 0, Handle::NONE).expect("the empty prefix");
    let before = tree.dump();
    for (values, wrong) in [
        (vec![run("full", 0, &[1])], "component 'full' needs every page of a prefix, page 2 is missing"),
        (vec![run("state", 3, &[1])], "component 'state': pages 3 to 4 overlap another run or lie outside"),
        (vec![run("state", -1, &[1])], "component 'state': pages -1 to 0 overlap another run or lie outside"),
        (vec![run("other", 0, &[1])], "no component is named 'other'"),
    ] {
        let refused = tree.insert(root.handle, &[1, 2, 3], values, true).expect_err("a fault");
        assert!(refused.to_string().starts_with(wrong), "{refused}");
        assert_eq!(tree.dump(), before);
    }
}

/// Ranks by the count of uses: any order of eviction fits the trait.
#[derive(Debug)]
struct FewestUses;

impl Policy for FewestUses {
    fn text(&self) -> String {
        "fewest-uses".to_owned()
    }

    fn rank(&self, usage: &Usage) -> f64 {
        f64::from(usage.uses)
    }
}

#[test]
fn the_policy_orders_and_ties_fall_to_the_older_use() {
    let mut tree = tree_with(&[FULL], Box::new(FewestUses));
    for first in [1, 2, 3] {
        add(&mut tree, &[first], &[]);
    }
    let used_again = lease(&mut tree, &[1]);
    tree.release(used_again.handle).expect("a lease that is out");
    let order: Vec<i32> = (0..3).flat_map(|_| tree.evict(0, 1).slots.remove(0)).collect();
    assert_eq!(order, [102, 103, 101]);
}

#[test]
fn a_state_is_dropped_unless_somebody_needs_it() {
    let mut tree = tree(&[FULL, STATE]);
    add(&mut tree, &[1, 2, 3, 4, 5, 6], &[0, 1, 2, 3, 5]);
    add(&mut tree, &[1, 7], &[]);
    let out = lease(&mut tree, &[1, 2, 3, 4, 5, 6]);
    let other = lease(&mut tree, &[1, 2]);
    for kept in [1, 2, 5, 6] {
        // paths part, leased, not held, the lease's own
        let freed = tree.drop_state(out.handle, 1, kept).expect("a boundary of its path");
        assert!(freed.slots.iter().all(Vec::is_empty), "{kept}");
    }
    assert_eq!(tree.drop_state(out.handle, 1, 3).expect("nobody needs it").slots[1], [203]);
    tree.check().expect("no contradiction");
    tree.release(other.handle).expect("a lease that is out");
    assert_eq!(tree.drop_state(out.handle, 1, 2).expect("nobody needs it any more").slots[1], [202]);
    assert_eq!(tree.match_(&space(), &[1, 2, 3], None).boundary_tokens, 1);
    for (component, boundary) in [(0, 2), (1, 0), (1, -1), (1, 7), (1, i64::MAX)] {
        assert!(matches!(tree.drop_state(out.handle, component, boundary), Err(Error::Config { .. })));
    }
    tree.release(out.handle).expect("a lease that is out");
    assert!(matches!(tree.drop_state(out.handle, 1, 4), Err(Error::StaleHandle { .. })));
    tree.check().expect("no contradiction");
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let component = |name: &str| Component { name: name.to_owned(), rule: Rule::Full };
    for (components, page_tokens) in
        [(vec![], 1), (vec![component("a"), component("a")], 1), (vec![component("a")], 0)]
    {
        assert!(matches!(
            Tree::new(components, Settings { page_tokens, ..Settings::default() }),
            Err(Error::Config { .. })
        ));
    }
}

#[test]
fn readers_share_a_tree() {
    let mut tree = tree(&[FULL]);
    add(&mut tree, &(0..64).collect::<Vec<u32>>(), &[]);
    let (tree, key) = (&tree, &(0..64).collect::<Vec<u32>>());
    std::thread::scope(|scope| {
        let readers: Vec<_> = (1..=4)
            .map(|n| scope.spawn(move || tree.match_(&space(), key, Some(n * 16)).boundary_tokens))
            .collect();
        let found: Vec<u64> = readers.into_iter().map(|reader| reader.join().expect("no panic")).collect();
        assert_eq!(found, [16, 32, 48, 64]);
    });
}
