//! The values given to an insertion: checking them, and putting them into nodes.

use crate::error::{Error, Result};
use crate::node::NodeId;
use crate::plan::{GivenRun, Piece};
use crate::run::Run;
use crate::tree::Tree;

/// Runs by component, in order of their place.
pub(crate) type Values = Vec<Vec<Piece>>;

impl Tree {
    /// Runs by component index, in order of their place; rule N-2.
    ///
    /// Fails on an unknown component, a run outside `[start, end)`, or runs that overlap.
    pub(crate) fn check_values(
        &self,
        given: Vec<(String, Vec<GivenRun>)>,
        start: u32,
        end: u32,
    ) -> Result<Values> {
        let mut values: Values = vec![Vec::new(); self.components.len()];
        for (name, mut runs) in given {
            runs.retain(|run| !run.slots.is_empty());
            runs.sort_by_key(|run| run.first_page);
            let mut reached = i64::from(start);
            let mut ordered: Vec<Piece> = Vec::with_capacity(runs.len());
            for GivenRun { first_page, slots } in runs {
                let last = first_page.saturating_add(slots.len() as i64);
                if first_page < reached || last > i64::from(end) {
                    return Err(Error::config(format!(
                        "component '{name}': pages {first_page} to {last} overlap another run or lie outside the \
                         inserted pages {start} to {end}"
                    )));
                }
                reached = last;
                join(&mut ordered, Piece { first_page: first_page as u32, slots });
            }
            values[self.component(&name)?] = ordered;
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
        slots: &[i32],
    ) -> NodeId {
        let holding = self.holding(node, component);
        let (first, end, last) = (holding.first, holding.end(), first_page + slots.len() as u32);
        let mut target = node;
        if !holding.is_empty() && first_page > end {
            self.split(node, end);
        } else if !holding.is_empty() && last < first {
            target = self.split(node, last);
        }
        let holding = self.holding_mut(target, component);
        if holding.is_empty() {
            (holding.first, holding.slots) = (first_page, Run::from(slots));
        } else if first_page == holding.end() {
            holding.slots = Run::joined([&holding.slots, slots]);
        } else {
            (holding.first, holding.slots) = (first_page, Run::joined([slots, &holding.slots]));
        }
        target
    }
}

/// Adds a run; one that follows on the last is made one with it.
fn join(runs: &mut Vec<Piece>, run: Piece) {
    match runs.last_mut() {
        Some(last) if last.end_page() == run.first_page => last.slots.extend(run.slots),
        _ => runs.push(run),
    }
}
