//! The class `Tree`: one crossing an operation.
//!
//! Nothing of Python is called while the tree is locked. Short operations keep the interpreter, since giving
//! it up and taking it again costs more than they do; long ones give it up, and so does whoever has to wait.

use graftline_core as core;
use graftline_core::policy::make_policy;
use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::arguments::{self, LastNamespace};
use crate::buffers::Tokens;
use crate::errors::{config_error, raised};
use crate::plan::Names;

/// Tokens from which an operation counts as long: about ten microseconds of comparing.
const LONG_TOKENS: usize = 1 << 16;
/// Slots from which an eviction counts as long.
const LONG_SLOTS: u64 = 1 << 10;

/// The operations of `TreeCore`. Several threads may match; whoever changes the tree has it alone meanwhile.
#[pyclass(module = "graftline._core", frozen, subclass)]
pub(crate) struct Tree {
    tree: RwLock<core::Tree>,
    names: Py<PyTuple>,
    last_namespace: LastNamespace,
}

impl Tree {
    fn read<R: Send>(&self, py: Python<'_>, long: bool, look: impl Fn(&core::Tree) -> R + Sync) -> R {
        if !long && let Some(tree) = self.tree.try_read() {
            return look(&tree);
        }
        py.detach(|| look(&self.tree.read()))
    }

    fn write<R: Send>(
        &self,
        py: Python<'_>,
        long: bool,
        change: impl FnOnce(&mut core::Tree) -> R + Send,
    ) -> R {
        if !long && let Some(mut tree) = self.tree.try_write() {
            return change(&mut tree);
        }
        py.detach(|| change(&mut self.tree.write()))
    }

    fn names<'a, 'py>(&'a self, py: Python<'py>) -> Names<'a, 'py> {
        Names(self.names.bind(py))
    }
}

/// The rule of a kind; `tokens` is what a window looks back or a chunk is long.
fn rule_of(py: Python<'_>, kind: &str, tokens: u64) -> PyResult<core::Rule> {
    match kind {
        "full" => Ok(core::Rule::Full),
        "window" => Ok(core::Rule::Window { lookback_tokens: tokens }),
        "chunk" if tokens > 0 => Ok(core::Rule::Chunk { chunk_tokens: tokens }),
        "checkpoint" => Ok(core::Rule::Checkpoint),
        _ => Err(config_error(py, &format!("no reuse rule is '{kind}' with {tokens} tokens"))),
    }
}

fn tier_of(py: Python<'_>, tier: u8) -> PyResult<core::Tier> {
    let tiers = [core::Tier::Device, core::Tier::Host, core::Tier::Store];
    let found = tiers.into_iter().find(|&known| known as u8 == tier);
    found.ok_or_else(|| config_error(py, &format!("no tier has the number {tier}")))
}

#[pymethods]
impl Tree {
    #[new]
    #[pyo3(signature = (components, page_tokens, policy, record_events, tier=0, *, session_ttl_s=3600.0, max_sessions=100_000))]
    fn new(
        py: Python<'_>,
        components: Vec<(String, String, u64)>,
        page_tokens: u32,
        policy: &str,
        record_events: bool,
        tier: u8,
        session_ttl_s: f64,
        max_sessions: usize,
    ) -> PyResult<Self> {
        let names = PyTuple::new(py, components.iter().map(|(name, _, _)| name))?.unbind();
        let components: PyResult<Vec<core::Component>> = components
            .into_iter()
            .map(|(name, kind, tokens)| Ok(core::Component { name, rule: rule_of(py, &kind, tokens)? }))
            .collect();
        let (tier, policy) = (tier_of(py, tier)?, make_policy(policy).map_err(|error| raised(py, &error))?);
        let settings =
            core::Settings { page_tokens, policy, record_events, tier, session_ttl_s, max_sessions };
        let tree = core::Tree::new(components?, settings);
        let tree = RwLock::new(tree.map_err(|error| raised(py, &error))?);
        Ok(Self { tree, names, last_namespace: LastNamespace::default() })
    }

    #[pyo3(name = "match", signature = (namespace, tokens, limit_tokens=None))]
    fn match_<'py>(
        &self,
        py: Python<'py>,
        namespace: &Bound<'py, PyAny>,
        tokens: &Bound<'py, PyAny>,
        limit_tokens: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let key = Tokens::of(tokens)?;
        let limit = match limit_tokens.map(u64::try_from).transpose() {
            Ok(limit) => limit,
            Err(_) => {
                let limit = limit_tokens.unwrap_or_default();
                return Err(config_error(py, &format!("limit_tokens is {limit}, it must not be negative")));
            }
        };
        let tokens = key.as_slice();
        let wanted = self.last_namespace.read(namespace)?;
        let long = tokens.len() >= LONG_TOKENS;
        let found = self.read(py, long, |tree| tree.match_(&wanted, tokens, limit));
        self.names(py).found(namespace, &found)
    }

    fn lease<'py>(&self, py: Python<'py>, r#match: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (boundary_tokens, node) = arguments::match_place(r#match)?;
        let namespace = arguments::match_namespace(r#match, boundary_tokens == 0)?;
        let lease = self.write(py, false, |tree| tree.lease(&namespace, boundary_tokens, node));
        self.names(py).lease(lease.map_err(|error| raised(py, &error))?)
    }

    fn claim<'py>(
        &self,
        py: Python<'py>,
        r#match: &Bound<'py, PyAny>,
        boundary_tokens: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let namespace = arguments::match_namespace(r#match, boundary_tokens == 0)?;
        let path = arguments::known_path(r#match)?;
        let lease = self.write(py, false, |tree| tree.claim(&namespace, path, boundary_tokens));
        self.names(py).lease(lease.map_err(|error| raised(py, &error))?)
    }

    fn holdings<'py>(
        &self,
        py: Python<'py>,
        r#match: &Bound<'py, PyAny>,
        boundary_tokens: i64,
    ) -> PyResult<Bound<'py, PyDict>> {
        let path = arguments::known_path(r#match)?;
        let long = path.tokens >= LONG_TOKENS as u64;
        let runs = self.read(py, long, |tree| tree.holdings(path, boundary_tokens));
        self.names(py).holdings(&runs.map_err(|error| raised(py, &error))?)
    }

    fn release(&self, py: Python<'_>, lease: &Bound<'_, PyAny>) -> PyResult<()> {
        let handle = arguments::lease_handle(lease)?;
        self.write(py, false, |tree| tree.release(handle)).map_err(|error| raised(py, &error))
    }

    fn release_components(
        &self,
        py: Python<'_>,
        lease: &Bound<'_, PyAny>,
        names: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let handle = arguments::lease_handle(lease)?;
        let names: Vec<String> = names.try_iter()?.map(|name| name?.extract()).collect::<PyResult<_>>()?;
        let names = names.iter().map(String::as_str);
        self.write(py, false, |tree| tree.release_components(handle, names))
            .map_err(|error| raised(py, &error))
    }

    #[pyo3(signature = (lease, tokens, values, *, move_lease=false))]
    fn insert<'py>(
        &self,
        py: Python<'py>,
        lease: &Bound<'py, PyAny>,
        tokens: &Bound<'py, PyAny>,
        values: &Bound<'py, PyAny>,
        move_lease: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let key = Tokens::of(tokens)?;
        let (handle, tokens) = (arguments::lease_handle(lease)?, key.as_slice());
        let values = arguments::values(values)?;
        let long = tokens.len() >= LONG_TOKENS;
        let done = self.write(py, long, |tree| tree.insert(handle, tokens, values, move_lease));
        self.names(py).insertion(done.map_err(|error| raised(py, &error))?, lease)
    }

    #[pyo3(signature = (component, slots, namespace=None))]
    fn evict<'py>(
        &self,
        py: Python<'py>,
        component: &str,
        slots: i64,
        namespace: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Ok(wanted) = u64::try_from(slots) else {
            return Err(config_error(py, &format!("cannot evict {slots} slots")));
        };
        let namespace = namespace.map(|namespace| self.last_namespace.read(namespace)).transpose()?;
        let freed = self.write(py, wanted >= LONG_SLOTS, |tree| {
            let component = tree.component(component)?;
            Ok(match &namespace {
                Some(namespace) => tree.evict_within(component, wanted, namespace),
                None => tree.evict(component, wanted),
            })
        });
        self.names(py).freed(&freed.map_err(|error| raised(py, &error))?)
    }

    fn drop<'py>(
        &self,
        py: Python<'py>,
        lease: &Bound<'py, PyAny>,
        component: &str,
        boundary_tokens: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let handle = arguments::lease_handle(lease)?;
        let freed = self.write(py, false, |tree| {
            let component = tree.component(component)?;
            tree.drop_state(handle, component, boundary_tokens)
        });
        self.names(py).freed(&freed.map_err(|error| raised(py, &error))?)
    }

    fn held_pages(&self, py: Python<'_>, component: &str, namespace: &Bound<'_, PyAny>) -> PyResult<u64> {
        let namespace = self.last_namespace.read(namespace)?;
        let held = |tree: &core::Tree| Ok(tree.held_pages(tree.component(component)?, &namespace));
        self.read(py, false, held).map_err(|error| raised(py, &error))
    }

    fn clear<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let freed = self.write(py, true, core::Tree::clear);
        self.names(py).freed(&freed)
    }

    fn set_time<'py>(&self, py: Python<'py>, now_s: f64) -> PyResult<Bound<'py, PyTuple>> {
        let closed = self.write(py, false, |tree| tree.set_time(now_s));
        let closed = closed.map_err(|error| raised(py, &error))?;
        PyTuple::new(py, closed.iter().map(|name| &**name))
    }

    #[pyo3(signature = (name, *, priority=0, expected_return_s=None))]
    fn open_session(
        &self,
        py: Python<'_>,
        name: &str,
        priority: i64,
        expected_return_s: Option<f64>,
    ) -> PyResult<u64> {
        let Ok(priority) = u32::try_from(priority) else {
            let limit = core::PRIORITY_MAX;
            return Err(config_error(py, &format!("priority is {priority}, it must be from 0 to {limit}")));
        };
        let hints = core::Hints { priority, expected_return_s };
        let handle = self.write(py, false, |tree| tree.open_session(name, hints));
        handle.map(core::Handle::to_bits).map_err(|error| raised(py, &error))
    }

    #[pyo3(signature = (handle, lease, *, answer_tokens=None))]
    fn register(
        &self,
        py: Python<'_>,
        handle: u64,
        lease: &Bound<'_, PyAny>,
        answer_tokens: Option<i64>,
    ) -> PyResult<bool> {
        let Ok(answer) = answer_tokens.map(u32::try_from).transpose() else {
            let tokens = answer_tokens.unwrap_or_default();
            let message = format!("answer_tokens is {tokens}, it must be from 0 to {}", u32::MAX);
            return Err(config_error(py, &message));
        };
        let (session, lease) = (core::Handle::from_bits(handle), arguments::lease_handle(lease)?);
        let known = self.write(py, false, |tree| tree.register(session, lease, answer));
        known.map_err(|error| raised(py, &error))
    }

    fn fork_session(&self, py: Python<'_>, source_name: &str, target_name: &str) -> PyResult<u64> {
        let handle = self.write(py, false, |tree| tree.fork_session(source_name, target_name));
        handle.map(core::Handle::to_bits).map_err(|error| raised(py, &error))
    }

    fn close_session(&self, py: Python<'_>, name: &str) -> bool {
        self.write(py, false, |tree| tree.close_session(name))
    }

    fn take_events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let events = self.write(py, false, core::Tree::take_events);
        self.names(py).events(&events)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let stats = self.read(py, false, core::Tree::stats);
        self.names(py).stats(&stats)
    }

    fn dump(&self, py: Python<'_>) -> String {
        self.read(py, true, core::Tree::dump)
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.read(py, true, core::Tree::check).map_err(|error| raised(py, &error))
    }
}
