//! Sessions that are opened and left leave nothing behind: every byte of this process is counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

use graftline_core::policy::make_policy;
use graftline_core::{Component, GivenRun, Handle, Hints, Namespace, Rule, Settings, Tree};

struct Counting;

static BYTES: AtomicI64 = AtomicI64::new(0);

// SAFETY: everything is handed on to the system's allocator; only sizes are added up.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the promises that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const OPEN_MAX: usize = 512;

fn tree(policy: &str) -> Tree {
    let window = Rule::Window { lookback_tokens: 5 };
    let components = [("full", Rule::Full), ("swa", window)];
    let components = components.map(|(name, rule)| Component { name: name.to_owned(), rule }).to_vec();
    let policy = make_policy(policy).expect("a known name");
    let settings = Settings { policy, session_ttl_s: 60.0, max_sessions: OPEN_MAX, ..Settings::default() };
    Tree::new(components, settings).expect("good settings")
}

/// A session that has its own branch of a shared prompt for a while. What it cached leaves, or stays.
fn visit(tree: &mut Tree, number: u32) {
    let space = Namespace::default();
    let hints = Hints { priority: number % 3, expected_return_s: Some(5.0) };
    let session = tree.open_session(&format!("session {number}"), hints).expect("good hints");
    let tokens: Vec<u32> = (0..8).chain([100 + number % 64, 7, 7]).collect();
    let root = tree.lease(&space, 0, Handle::NONE).expect("the empty prefix");
    let first = number as i32 * 11;
    let run =
        |place: i64| GivenRun { first_page: place, slots: (first + place as i32..first + 11).collect() };
    let values = vec![("full".to_owned(), vec![run(0)]), ("swa".to_owned(), vec![run(6)])];
    let done = tree.insert(root.handle, &tokens, values, true).expect("good values");
    let lease = done.lease.expect("it moved").handle;
    assert!(tree.register(session, lease, Some(number)).expect("a lease that is out"));
    tree.release(lease).expect("a lease that is out");
    if number.is_multiple_of(2) {
        tree.evict(0, 3);
    }
}

/// Lets sessions come and go, the last ones until they are closed; returns the bytes in use then.
fn visits(tree: &mut Tree, numbers: std::ops::Range<u32>) -> i64 {
    let end = f64::from(numbers.end);
    for number in numbers {
        visit(tree, number);
        if number.is_multiple_of(100) {
            tree.set_time(f64::from(number)).expect("a finite time");
        }
    }
    tree.set_time(end + 61.0).expect("a finite time");
    assert_eq!(tree.stats().sessions, 0);
    assert!(!tree.dump().contains("references"));
    tree.clear();
    assert_eq!(tree.dump(), "");
    BYTES.load(Ordering::Relaxed)
}

/// One test, so that nothing else allocates beside it.
#[test]
fn a_hundred_thousand_sessions_leave_nothing_behind() {
    for (policy, sessions) in [("lru", 20_000), ("session(cost)", 100_000)] {
        let mut tree = tree(policy);
        visits(&mut tree, 0..2_000);
        let before = visits(&mut tree, 2_000..4_000);
        let after = visits(&mut tree, 4_000..4_000 + sessions);
        // what a peak made the tree's own vectors larger by; a byte a session would be too much
        assert!(after - before < i64::from(sessions) / 2, "{policy}: {} bytes stayed", after - before);
        tree.check().expect("no contradiction");
    }
}
