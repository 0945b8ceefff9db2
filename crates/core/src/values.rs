//! The values given to an insertion: checking them, and putting them into nodes.

use crate::error::{Error, Result};
use crate::node::NodeId;
use crate::plan::{GivenRun, Piece, Pieces};
use crate::run::Run;
use crate::tree::Tree;

/// Runs by component, in order of their place.
pub(crate) type Values = Vec<Pieces>;

impl Tree {
    /// Runs by component index, in order of their place; rule N-2.
    ///
    /// Fails on an unknown component, a run outside `[start, end)`, or runs that overlap.
    pub(crate) fn check_values(
        &self,
        given: Vec<(impl AsRef<str>, Vec<GivenRun>)>,
        start: u32,
        end: u32,
    ) -> Result<Values> {
        let mut values: Values = vec![Pieces::new(); self.components.len()];
        for (name, mut runs) in given {
            runs.retain(|run| !run.slots.is_empty());
            runs.sort_by_key(|run| run.first_page);
            let name = name.as_ref();
            let mut reached = i64::from(start);
            for run in &runs {
                let (first_page, last) = (run.first_page, run.last());
                if first_page < reached || last > i64::from(end) {
                    return Err(Error::config(format!(
                        "component '{name}': pages {first_page} to {last} overlap another run or lie outside the \
                         inserted pages {start} to {end}"
                    )));
                }
                reached = last;
            }
            values[self.component(name)?] = joined(&runs);
        }
        Ok(values)
    }

    /// A prefix-closed component must give every page that the tree does not know; rule N-3.
    pub(crate) fn missing_closed(&self, given: &Values, known_end: u32, end: u32) -> Result<()> {
        for (component, runs) in given.iter().enumerate() {
            if !self.closed(component) {
                continue;
            }
            let mut reached = known_end;
            for run in runs {
                if run.first_page > reached {
                    break;
                }
                reached = reached.max(run.end_page());
            }
            if reached < end {
                let name = &self.components[component].name;
                return Err(Error::Config {
                    message: format!(
                        "component '{name}' needs every page of a prefix, page {reached} is missing"
                    ),
                    hint: "give the slots of all pages after the lease's boundary".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Puts pages that the component does not hold into a node of the path; returns the node that holds
    /// them now, from which to go on upward.
    ///
    /// Where the node's run would get a gap, the node is split between the two runs (rule T-3).
    pub(crate) fn attach(
        &mut self,
        node: NodeId,
        component: usize,
        first_page: u32,
        slots: Run<i32>,
    ) -> NodeId {
        let holding = self.holding(node, component);
        let (first, end, last) = (holding.first, holding.end(), first_page + slots.len() as u32);
        let mut target = node;
        if !holding.is_empty() && first_page > end {
            self.split(node, end);
        } else if !holding.is_empty() && last < first {
            target = self.split(node, last);
        }
        let clock = self.clock;
        let holding = self.holding_mut(target, component);
        if holding.is_empty() {
            (holding.first, holding.slots) = (first_page, slots);
            holding.last_tick = clock; // it is about to be touched: so it need not pass all candidates before
        } else if first_page == holding.end() {
            holding.slots = Run::joined([&holding.slots, &slots]);
        } else {
            (holding.first, holding.slots) = (first_page, Run::joined([&slots, &holding.slots]));
        }
        target
    }
}

/// Makes those of runs in order that follow on each other one.
fn joined(runs: &[GivenRun]) -> Pieces {
    let groups = runs.chunk_by(|run, next| run.last() == next.first_page);
    let piece = |group: &[GivenRun]| {
        let slots = match group {
            [only] => only.slots.clone(),
            _ => group.iter().flat_map(|run| run.slots.iter().copied()).collect(),
        };
        Piece { first_page: group[0].first_page as u32, slots }
    };
    groups.map(piece).collect()
}
