//! Results of the core as the dataclasses of `graftline.plan`.

use std::sync::Arc;

use graftline_core as core;
use pyo3::IntoPyObjectExt;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::buffers::{array, gathered};
use crate::frozen::Frozen;
use crate::held::{HeldMap, Pages};

type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// Makes an object of a frozen dataclass: `make!(py, "Vote", name, boundary, without)`.
macro_rules! make {
    ($py:expr, $class:literal, $($value:expr),+ $(,)?) => {{
        static CLASS: PyOnceLock<Frozen> = PyOnceLock::new();
        let class = Frozen::of(&CLASS, $py, "graftline.plan", $class)?;
        class.make($py, [$(any($py, $value)?),+])
    }};
}

/// A value as a Python object.
fn any<'py, T: IntoPyObject<'py>>(py: Python<'py>, value: T) -> Object<'py> {
    value.into_bound_py_any(py)
}

/// Names of the components, as Python strings made once.
pub(crate) struct Names<'a, 'py>(pub(crate) &'a Bound<'py, PyTuple>);

impl<'py> Names<'_, 'py> {
    fn at(&self, component: usize) -> Object<'py> {
        self.0.get_item(component)
    }

    pub(crate) fn found(&self, namespace: &Bound<'py, PyAny>, found: &core::Match) -> Object<'py> {
        let py = self.0.py();
        let vote = |(component, vote): (usize, &core::Vote)| {
            make!(py, "Vote", self.at(component)?, vote.boundary_tokens, vote.without_tokens)
        };
        let votes: PyResult<Vec<_>> = found.votes.iter().enumerate().map(vote).collect();
        let nothing = intern!(py, "").as_any();
        let limited_by = match found.limited_by {
            Some(component) => self.at(component)?,
            None => nothing.clone(),
        };
        let reason = if found.reason.is_empty() { nothing.clone() } else { any(py, found.reason)? };
        make!(
            py,
            "Match",
            namespace,
            found.boundary_tokens,
            found.path_tokens,
            PyTuple::new(py, votes?)?,
            limited_by,
            found.lost_tokens,
            reason,
            found.branch_tokens,
            found.node.to_bits(),
            found.path_node.to_bits(),
        )
    }

    pub(crate) fn lease(&self, lease: core::Lease) -> Object<'py> {
        let py = self.0.py();
        let held = HeldMap::new(self.0.clone().unbind(), lease.held.into_iter().map(Pages::Held));
        make!(py, "Lease", lease.handle.to_bits(), lease.boundary_tokens, held)
    }

    /// The lease given stays the result's where it did not move.
    pub(crate) fn insertion(&self, done: core::Insertion, given: &Bound<'py, PyAny>) -> Object<'py> {
        let lease = match done.lease {
            Some(lease) => self.lease(lease)?,
            None => given.clone(),
        };
        let (adopted, duplicates) = (self.pieces(done.adopted)?, self.pieces(done.duplicates)?);
        make!(self.0.py(), "Insertion", done.boundary_tokens, done.new_pages, adopted, duplicates, lease)
    }

    /// Pages by the component's name, components without any left out.
    fn pieces(&self, mut pieces: Vec<core::Pieces>) -> Object<'py> {
        let py = self.0.py();
        let named = pieces.iter().enumerate().filter(|(_, runs)| !runs.is_empty());
        let named: PyResult<Vec<_>> = named.map(|(component, _)| self.at(component)).collect();
        let named = named?;
        if named.is_empty() {
            return any(py, PyDict::new(py));
        }
        pieces.retain(|runs| !runs.is_empty());
        let names = if named.len() == self.0.len() { self.0.clone() } else { PyTuple::new(py, named)? };
        any(py, HeldMap::new(names.unbind(), pieces.into_iter().map(Pages::Runs)))
    }

    /// Pages by the component's name, every component.
    pub(crate) fn holdings(&self, runs: &[Vec<core::HeldParts>]) -> PyResult<Bound<'py, PyDict>> {
        let py = self.0.py();
        let named = PyDict::new(py);
        for (component, runs) in runs.iter().enumerate() {
            let runs = runs
                .iter()
                .map(|run| held(py, run.first_page, gathered(py, run.pages as usize, &run.parts)?));
            named.set_item(self.at(component)?, PyTuple::new(py, runs.collect::<PyResult<Vec<_>>>()?)?)?;
        }
        Ok(named)
    }

    pub(crate) fn freed(&self, freed: &core::Freed) -> Object<'py> {
        let py = self.0.py();
        let (slots, dead_pages) = (PyDict::new(py), PyDict::new(py));
        for (component, left) in freed.slots.iter().enumerate().filter(|(_, left)| !left.is_empty()) {
            slots.set_item(self.at(component)?, array(py, left))?;
        }
        for (component, &dead) in freed.dead_pages.iter().enumerate().filter(|&(_, &dead)| dead != 0) {
            dead_pages.set_item(self.at(component)?, dead)?;
        }
        make!(py, "Freed", slots, dead_pages)
    }

    pub(crate) fn stats(&self, stats: &core::TreeStats) -> Object<'py> {
        let py = self.0.py();
        let pool = |(component, pool): (usize, &core::PoolStats)| {
            let (held, leased, dead) = (pool.held_pages, pool.leased_pages, pool.dead_pages);
            make!(py, "PoolStats", self.at(component)?, tier(py, pool.tier)?, held, leased, dead)
        };
        let pools: PyResult<Vec<_>> = stats.pools.iter().enumerate().map(pool).collect();
        let pools = PyTuple::new(py, pools?)?;
        make!(py, "TreeStats", stats.nodes, stats.leases, stats.path_pages, pools, stats.sessions)
    }

    pub(crate) fn events(&self, events: &[core::Event]) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(self.0.py());
        let mut before: Option<(&Arc<core::Namespace>, Bound<'py, PyAny>)> = None;
        for event in events {
            let namespace = match before.take() {
                Some((core, object)) if Arc::ptr_eq(core, &event.namespace) => object,
                _ => self.namespace(&event.namespace)?,
            };
            list.append(self.event(event, &namespace)?)?;
            before = Some((&event.namespace, namespace));
        }
        Ok(list)
    }

    fn event(&self, event: &core::Event, namespace: &Bound<'py, PyAny>) -> Object<'py> {
        let py = self.0.py();
        let kind = match event.kind {
            core::EventKind::Stored => "stored",
            core::EventKind::Removed => "removed",
        };
        let keys: Vec<_> = event.page_keys.iter().map(|key| PyBytes::new(py, key)).collect();
        make!(
            py,
            "Event",
            kind,
            self.at(event.component)?,
            tier(py, event.tier)?,
            namespace,
            event.first_page,
            PyTuple::new(py, keys)?,
            PyBytes::new(py, &event.parent_key),
            array(py, &event.tokens),
            event.reason.map_or("", core::Reason::as_str),
        )
    }

    fn namespace(&self, namespace: &core::Namespace) -> Object<'py> {
        static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let core::Namespace { model, weight_epoch, adapter, salt } = namespace;
        let class = CLASS.import(self.0.py(), "graftline.key", "Namespace")?;
        class.call1((model, *weight_epoch, adapter, salt))
    }
}

/// A tuple of `Held`.
pub(crate) fn tuple<'py>(py: Python<'py>, runs: &[core::Piece]) -> PyResult<Bound<'py, PyTuple>> {
    let runs = runs.iter().map(|run| held(py, run.first_page, array(py, &run.slots)));
    PyTuple::new(py, runs.collect::<PyResult<Vec<_>>>()?)
}

/// A `Held`; the array becomes its own.
pub(crate) fn held<'py>(py: Python<'py>, first_page: u32, slots: Bound<'py, PyAny>) -> Object<'py> {
    make!(py, "Held", first_page, slots)
}

fn tier(py: Python<'_>, tier: core::Tier) -> Object<'_> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    CLASS.import(py, "graftline.plan", "Tier")?.call1((tier as u8,))
}
