//! Results of the core as the dataclasses of `graftline.plan`.

use std::sync::Arc;

use graftline_core as core;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::buffers::{array, token_array};
use crate::held::HeldMap;

/// A class of a Python module, looked up once.
macro_rules! class {
    ($py:expr, $module:literal, $name:literal) => {{
        static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        CLASS.import($py, $module, $name)
    }};
}

type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// Names of the components, as Python strings made once.
pub(crate) struct Names<'a, 'py>(pub(crate) &'a Bound<'py, PyTuple>);

impl<'py> Names<'_, 'py> {
    fn at(&self, component: usize) -> Object<'py> {
        self.0.get_item(component)
    }

    pub(crate) fn found(&self, namespace: &Bound<'py, PyAny>, found: &core::Match) -> Object<'py> {
        let py = self.0.py();
        let class = class!(py, "graftline.plan", "Match")?;
        let votes: PyResult<Vec<_>> =
            found.votes.iter().enumerate().map(|(index, vote)| self.vote(index, vote)).collect();
        let limited_by = match found.limited_by {
            Some(component) => self.at(component)?,
            None => pyo3::intern!(py, "").clone().into_any(),
        };
        class.call1((
            namespace,
            found.boundary_tokens,
            found.path_tokens,
            PyTuple::new(py, votes?)?,
            limited_by,
            found.lost_tokens,
            found.reason,
            found.branch_tokens,
            found.node.to_bits(),
        ))
    }

    fn vote(&self, component: usize, vote: &core::Vote) -> Object<'py> {
        let class = class!(self.0.py(), "graftline.plan", "Vote")?;
        class.call1((self.at(component)?, vote.boundary_tokens, vote.without_tokens))
    }

    pub(crate) fn lease(&self, lease: core::Lease) -> Object<'py> {
        let py = self.0.py();
        let class = class!(py, "graftline.plan", "Lease")?;
        let held = HeldMap::new(self.0.clone().unbind(), lease.held);
        class.call1((lease.handle.to_bits(), lease.boundary_tokens, held))
    }

    /// The lease given stays the result's where it did not move.
    pub(crate) fn insertion(&self, done: core::Insertion, given: &Bound<'py, PyAny>) -> Object<'py> {
        let class = class!(self.0.py(), "graftline.plan", "Insertion")?;
        let lease = match done.lease {
            Some(lease) => self.lease(lease)?,
            None => given.clone(),
        };
        let (adopted, duplicates) = (self.pieces(&done.adopted)?, self.pieces(&done.duplicates)?);
        class.call1((done.boundary_tokens, done.new_pages, adopted, duplicates, lease))
    }

    /// Pages by the component's name, components without any left out.
    fn pieces(&self, pieces: &[Vec<core::Piece>]) -> PyResult<Bound<'py, PyDict>> {
        let py = self.0.py();
        let named = PyDict::new(py);
        for (component, runs) in pieces.iter().enumerate().filter(|(_, runs)| !runs.is_empty()) {
            let runs: PyResult<Vec<_>> =
                runs.iter().map(|run| held(py, run.first_page, array(py, &run.slots)?)).collect();
            named.set_item(self.at(component)?, PyTuple::new(py, runs?)?)?;
        }
        Ok(named)
    }

    pub(crate) fn freed(&self, freed: &core::Freed) -> Object<'py> {
        let py = self.0.py();
        let (slots, dead_pages) = (PyDict::new(py), PyDict::new(py));
        for (component, left) in freed.slots.iter().enumerate().filter(|(_, left)| !left.is_empty()) {
            slots.set_item(self.at(component)?, array(py, left)?)?;
        }
        for (component, &dead) in freed.dead_pages.iter().enumerate().filter(|&(_, &dead)| dead != 0) {
            dead_pages.set_item(self.at(component)?, dead)?;
        }
        class!(py, "graftline.plan", "Freed")?.call1((slots, dead_pages))
    }

    pub(crate) fn stats(&self, stats: &core::TreeStats) -> Object<'py> {
        let py = self.0.py();
        let class = class!(py, "graftline.plan", "PoolStats")?;
        let pool = |(component, pool): (usize, &core::PoolStats)| {
            let (held, leased, dead) = (pool.held_pages, pool.leased_pages, pool.dead_pages);
            class.call1((self.at(component)?, tier(py, pool.tier)?, held, leased, dead))
        };
        let pools: PyResult<Vec<_>> = stats.pools.iter().enumerate().map(pool).collect();
        let class = class!(py, "graftline.plan", "TreeStats")?;
        class.call1((stats.nodes, stats.leases, stats.path_pages, PyTuple::new(py, pools?)?))
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
        let keys = event.page_keys.iter().map(|key| PyBytes::new(py, key));
        class!(py, "graftline.plan", "Event")?.call1((
            kind,
            self.at(event.component)?,
            tier(py, event.tier)?,
            namespace,
            event.first_page,
            PyTuple::new(py, keys.collect::<Vec<_>>())?,
            PyBytes::new(py, &event.parent_key),
            token_array(py, &event.tokens)?,
            event.reason.map_or("", core::Reason::as_str),
        ))
    }

    fn namespace(&self, namespace: &core::Namespace) -> Object<'py> {
        let core::Namespace { model, weight_epoch, adapter, salt } = namespace;
        let class = class!(self.0.py(), "graftline.key", "Namespace")?;
        class.call1((model, *weight_epoch, adapter, salt))
    }
}

/// A `Held`; the array becomes its own.
pub(crate) fn held<'py>(py: Python<'py>, first_page: u32, slots: Bound<'py, PyAny>) -> Object<'py> {
    class!(py, "graftline.plan", "Held")?.call1((first_page, slots))
}

fn tier(py: Python<'_>, tier: core::Tier) -> Object<'_> {
    class!(py, "graftline.plan", "Tier")?.call1((tier as u8,))
}
