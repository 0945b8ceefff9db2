//! The tree against a model: a map of pages, without nodes, runs, counters or orders.
//!
//! The model is told what was adopted and what left; it finds matches, duplicates and what a lease holds by
//! looking at every page. `check` finds the tree's own contradictions after each step.

mod both;
mod pages;

use both::Both;
use graftline_core::Rule;
use pages::Tokens;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Lease { path: Vec<u8>, limit: Option<usize> },
    Claim { path: Vec<u8>, pick: usize },
    Insert { pick: usize, path: Vec<u8>, masks: Vec<u32>, move_lease: bool },
    Release(usize),
    ReleaseComponents(usize, u32),
    Evict(usize, u64),
    Register { name: u8, pick: usize, closed_before: bool, answer: Option<u32> },
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
        2 => (0..5_u8, 0..8_usize, prop::bool::weighted(0.1), prop::option::of(0..40_u32))
            .prop_map(|(name, pick, closed_before, answer)| Step::Register { name, pick, closed_before, answer }),
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
            Step::Register { name: number, pick, closed_before, answer } => {
                both.register(&name(number), pick, closed_before, answer);
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
