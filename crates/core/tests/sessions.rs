//! Sessions and the orders of eviction that know of them, as worked examples.

use graftline_core::policy::make_policy;
use graftline_core::{
    Component, Error, GivenRun, Handle, Hints, KnownPath, Lease, Namespace, Rule, Settings, Tree,
};

fn tree(policy: &str) -> Tree {
    let window = Rule::Window { lookback_tokens: 2 };
    let components = [("full", Rule::Full), ("swa", window)];
    let components = components.map(|(name, rule)| Component { name: name.to_owned(), rule }).to_vec();
    let policy = make_policy(policy).expect("a known name");
    let settings = Settings { policy, session_ttl_s: 10.0, max_sessions: 2, ..Settings::default() };
    Tree::new(components, settings).expect("good settings")
}

fn space(salt: &str) -> Namespace {
    Namespace { salt: salt.to_owned(), ..Namespace::default() }
}

/// A path with all its values, leased at its end. A slot is a hundred more than the token at its page.
fn grow(tree: &mut Tree, space: &Namespace, tokens: &[u32]) -> Lease {
    let root = tree.lease(space, 0, Handle::NONE).expect("the empty prefix");
    let slots: Vec<i32> = tokens.iter().map(|&token| 100 + token as i32).collect();
    let run = vec![GivenRun { first_page: 0, slots: slots.into() }];
    let values = vec![("full".to_owned(), run.clone()), ("swa".to_owned(), run)];
    tree.insert(root.handle, tokens, values, true).expect("good values").lease.expect("it moved")
}

/// A session that goes to the end of a path, which is not leased afterwards.
fn visit(tree: &mut Tree, name: &str, hints: Hints, tokens: &[u32]) -> Handle {
    let lease = grow(tree, &space(""), tokens);
    let session = tree.open_session(name, hints).expect("good hints");
    assert_eq!(tree.register(session, lease.handle, None), Ok(true));
    tree.release(lease.handle).expect("a lease that is out");
    tree.check().expect("no contradiction");
    session
}

/// What the dump tells of sessions and references, by node.
fn told(tree: &Tree) -> Vec<String> {
    let text = tree.dump();
    let of_line = |line: &str| {
        let parts: Vec<&str> = line.split(" | ").filter(|part| part.contains("references")).collect();
        let sessions = line.split_once(" sessions ").map_or("", |(_, rest)| &rest[..1]);
        let place = line.trim().split(' ').next().unwrap_or_default();
        format!("{place} {sessions} {}", parts.join(" "))
    };
    text.lines().skip(1).map(of_line).collect()
}

#[test]
fn references_are_cut_with_nodes_and_leave_with_pages() {
    let mut tree = tree("lru");
    visit(&mut tree, "a", Hints::default(), &[1, 2, 3, 4, 5]);
    assert_eq!(told(&tree), ["0..5 1 full references 0x1 swa references 3x1"]);
    let lease = grow(&mut tree, &space(""), &[1, 2, 3, 4]);
    tree.release(lease.handle).expect("a lease that is out");
    assert_eq!(
        told(&tree),
        ["0..4  full references 0x1 swa references 3x1", "4..5 1 full references 4x1 swa references 4x1"]
    );
    tree.evict(0, 2);
    assert_eq!(told(&tree), ["0..3 1 full references 0x1"]);
    assert!(tree.close_session("a"));
    assert_eq!(told(&tree), ["0..3  "]);
    tree.check().expect("no contradiction");
}

#[test]
fn a_session_that_goes_on_refers_to_its_new_frontier_only() {
    let mut tree = tree("session");
    visit(&mut tree, "a", Hints::default(), &[1, 2, 3]);
    visit(&mut tree, "a", Hints::default(), &[1, 2, 3, 4, 5, 6]);
    assert_eq!(told(&tree), ["0..3  full references 0x1", "3..6 1 full references 3x1 swa references 4x1"]);
    visit(&mut tree, "a", Hints::default(), &[9]);
    assert_eq!(told(&tree), ["0..3  ", "3..6  ", "0..1 1 full references 0x1 swa references 0x1"]);
}

#[test]
fn what_no_session_refers_to_leaves_first() {
    let mut tree = tree("session(lru)");
    visit(&mut tree, "a", Hints::default(), &[1]);
    for token in [2, 3] {
        let lease = grow(&mut tree, &space(""), &[token]);
        tree.release(lease.handle).expect("a lease that is out");
    }
    assert_eq!(tree.evict(0, 3).slots[0], [102, 103, 101]);
}

#[test]
fn a_larger_hint_leaves_later() {
    let mut tree = tree("priority");
    visit(&mut tree, "a", Hints { priority: 2, ..Hints::default() }, &[1]);
    visit(&mut tree, "b", Hints { priority: 1, ..Hints::default() }, &[2]);
    assert!(tree.close_session("a"), "what it told of its values stays");
    assert_eq!(tree.evict(0, 2).slots[0], [102, 101]);
}

#[test]
fn a_run_that_is_expected_back_is_spared_once() {
    for (expected_return_s, first) in [(None, 101), (Some(5.0), 102)] {
        let mut tree = tree("cost");
        visit(&mut tree, "a", Hints { expected_return_s, ..Hints::default() }, &[1]);
        let lease = grow(&mut tree, &space(""), &[2]);
        tree.release(lease.handle).expect("a lease that is out");
        assert_eq!(tree.evict(0, 1).slots[0], [first]);
    }
}

#[test]
fn a_handle_is_of_no_use_after_its_session() {
    let mut tree = tree("lru");
    let lease = grow(&mut tree, &space(""), &[1]);
    let first = tree.open_session("a", Hints::default()).expect("good hints");
    tree.set_time(3.0).expect("a finite time");
    assert_eq!(tree.open_session("a", Hints::default()), Ok(first), "renewed");
    tree.set_time(12.0).expect("a finite time");
    assert_eq!(tree.stats().sessions, 1);
    assert_eq!(
        tree.set_time(14.0).expect("a finite time").iter().map(|name| &**name).collect::<Vec<_>>(),
        ["a"]
    );
    assert_eq!(tree.register(first, lease.handle, None), Ok(false));
    let second = tree.open_session("a", Hints::default()).expect("good hints");
    assert_ne!(first, second);
    for name in ["b", "c"] {
        tree.open_session(name, Hints::default()).expect("good hints");
    }
    assert_eq!(tree.register(second, lease.handle, None), Ok(false), "two may be open, it was idle longest");
    assert!(matches!(tree.fork_session("a", "d"), Err(Error::Config { .. })));
}

#[test]
fn numbers_that_mean_nothing_are_refused() {
    let mut tree = tree("lru");
    let hints = |expected_return_s| Hints { expected_return_s: Some(expected_return_s), ..Hints::default() };
    for wrong in
        [hints(-1.0), hints(f64::NAN), hints(f64::INFINITY), Hints { priority: 1 << 20, ..hints(0.0) }]
    {
        assert!(matches!(tree.open_session("a", wrong), Err(Error::Config { .. })));
    }
    assert!(tree.set_time(f64::NAN).is_err());
    for settings in [
        Settings { session_ttl_s: 0.0, ..Settings::default() },
        Settings { session_ttl_s: f64::NAN, ..Settings::default() },
        Settings { max_sessions: 0, ..Settings::default() },
    ] {
        let component = Component { name: "full".to_owned(), rule: Rule::Full };
        assert!(matches!(Tree::new(vec![component], settings), Err(Error::Config { .. })));
    }
}

#[test]
fn one_namespace_alone_can_be_evicted_from() {
    let mut tree = tree("lru");
    for (salt, token) in [("x", 1), ("y", 2), ("x", 3), ("y", 4)] {
        let lease = grow(&mut tree, &space(salt), &[token]);
        tree.release(lease.handle).expect("a lease that is out");
    }
    assert_eq!(tree.held_pages(0, &space("y")), 2);
    assert_eq!(tree.evict_within(0, 1, &space("y")).slots[0], [102]);
    tree.check().expect("no contradiction");
    let lease = grow(&mut tree, &space("y"), &[5]);
    tree.release(lease.handle).expect("a lease that is out");
    tree.check().expect("its own queue knows of the new one");
    assert_eq!(tree.evict_within(0, 9, &space("y")).slots[0], [104, 105]);
    assert_eq!(tree.held_pages(0, &space("y")), 0);
    assert!(tree.evict_within(0, 9, &space("y")).slots[0].is_empty());
    assert_eq!(tree.held_pages(0, &space("x")), 2);
}

#[test]
fn a_claim_protects_a_boundary_that_is_not_valid_and_counts_no_use() {
    let mut tree = tree("lru");
    let lease = grow(&mut tree, &space(""), &[1, 2, 3, 4]);
    tree.release(lease.handle).expect("a lease that is out");
    tree.evict(1, 3);
    let found = tree.match_(&space(""), &[1, 2, 3, 4], None);
    let path = KnownPath::from(&found);
    assert_eq!((found.boundary_tokens, path.tokens), (0, 4));
    let claim = tree.claim(&space(""), path, 3).expect("a fresh match");
    assert_eq!(claim.held.iter().map(|held| held.pages).collect::<Vec<_>>(), [3, 0]);
    assert_eq!(tree.evict(0, 9).slots[0], [104], "what is claimed stays");
    tree.release(claim.handle).expect("a lease that is out");
    assert!(matches!(tree.claim(&space(""), path, 5), Err(Error::Config { .. })));
    assert!(matches!(tree.claim(&space(""), path, 4), Err(Error::StaleHandle { .. })), "page 4 has left");
    tree.check().expect("no contradiction");
}
