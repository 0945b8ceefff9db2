//! Arguments from Python: namespaces, handles, the values of an insertion.

use std::sync::Arc;

use graftline_core::{GivenRun, Handle, KnownPath, Namespace};
use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyDict;

/// The namespace given last: most callers give the same object again and again, and it never changes.
#[derive(Default)]
pub(crate) struct LastNamespace(Mutex<Option<(Py<PyAny>, Arc<Namespace>)>>);

impl LastNamespace {
    /// `namespace`, read once as long as the same object is given.
    pub(crate) fn read(&self, from: &Bound<'_, PyAny>) -> PyResult<Arc<Namespace>> {
        if let Some((object, namespace)) = &*self.0.lock()
            && object.is(from)
        {
            return Ok(Arc::clone(namespace));
        }
        let read = Arc::new(namespace(from)?);
        let before = self.0.lock().replace((from.clone().unbind(), Arc::clone(&read)));
        drop(before); // with the lock given back: it may be the end of a Python object
        Ok(read)
    }
}

/// A `graftline.key.Namespace`.
pub(crate) fn namespace(from: &Bound<'_, PyAny>) -> PyResult<Namespace> {
    let py = from.py();
    Ok(Namespace {
        model: from.getattr(intern!(py, "model"))?.extract()?,
        weight_epoch: from.getattr(intern!(py, "weight_epoch"))?.extract()?,
        adapter: from.getattr(intern!(py, "adapter"))?.extract()?,
        salt: from.getattr(intern!(py, "salt"))?.extract()?,
    })
}

/// A number of 64 bits. Python reads one without a sign in many more steps, and few need the last bit.
fn number(from: &Bound<'_, PyAny>) -> PyResult<u64> {
    match from.extract().map(i64::try_into) {
        Ok(Ok(number)) => Ok(number),
        _ => from.extract(),
    }
}

/// Handle of a lease.
pub(crate) fn lease_handle(lease: &Bound<'_, PyAny>) -> PyResult<Handle> {
    let handle = number(&lease.getattr(intern!(lease.py(), "handle"))?)?;
    Ok(Handle::from_bits(handle))
}

/// Namespace of a match for a lease or a claim at a boundary: only the first one has to know it.
pub(crate) fn match_namespace(found: &Bound<'_, PyAny>, is_at_start: bool) -> PyResult<Namespace> {
    match is_at_start {
        true => namespace(&found.getattr(intern!(found.py(), "namespace"))?),
        false => Ok(Namespace::default()),
    }
}

/// Boundary and node of a match.
pub(crate) fn match_place(found: &Bound<'_, PyAny>) -> PyResult<(u64, Handle)> {
    let py = found.py();
    let boundary_tokens = number(&found.getattr(intern!(py, "boundary_tokens"))?)?;
    let node = number(&found.getattr(intern!(py, "node"))?)?;
    Ok((boundary_tokens, Handle::from_bits(node)))
}

/// The known path of a match.
pub(crate) fn known_path(found: &Bound<'_, PyAny>) -> PyResult<KnownPath> {
    let py = found.py();
    let tokens = number(&found.getattr(intern!(py, "path_tokens"))?)?;
    let node = number(&found.getattr(intern!(py, "path_node"))?)?;
    Ok(KnownPath { tokens, node: Handle::from_bits(node) })
}

/// Values of an insertion: component name to runs of pages.
pub(crate) fn values(given: &Bound<'_, PyAny>) -> PyResult<Vec<(PyBackedStr, Vec<GivenRun>)>> {
    if let Ok(given) = given.cast::<PyDict>() {
        return given.iter().map(|(name, runs)| Ok((name.extract()?, runs_of(&runs)?))).collect();
    }
    let items = given.call_method0(intern!(given.py(), "items"))?;
    let pairs = items.try_iter()?.map(|item| {
        let (name, runs): (PyBackedStr, Bound<'_, PyAny>) = item?.extract()?;
        Ok((name, runs_of(&runs)?))
    });
    pairs.collect()
}

fn runs_of(runs: &Bound<'_, PyAny>) -> PyResult<Vec<GivenRun>> {
    let py = runs.py();
    let mut given = Vec::new(); // not collected: that asks Python for how many there are
    for run in runs.try_iter()? {
        let run = run?;
        let first_page = run.getattr(intern!(py, "first_page"))?.extract()?;
        let slots = crate::buffers::slots_of(&run.getattr(intern!(py, "slots"))?)?;
        given.push(GivenRun { first_page, slots });
    }
    Ok(given)
}
