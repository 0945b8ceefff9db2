//! Pages that a lease protects or an insertion was given, gathered when they are asked for.
//!
//! At page size 1 a lease of a long conversation holds as many slots as tokens. Not every owner of a lease
//! reads them all, so a result keeps shares of the tree's runs, which never change, and the array is made at
//! the first look.

use graftline_core::{HeldParts, Pieces};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyIterator, PyTuple};

use crate::buffers::gathered;
use crate::plan::{held, tuple};

/// A mapping of component names to `graftline.plan.Held`, or to tuples of them, in the order of the components.
#[pyclass(module = "graftline._core", frozen, mapping)]
pub(crate) struct HeldMap {
    names: Py<PyTuple>,
    values: Vec<Value>,
}

/// What is told of one component, and the object that tells it, once it was asked for.
struct Value {
    pages: Pages,
    made: PyOnceLock<Py<PyAny>>,
}

pub(crate) enum Pages {
    /// One run.
    Held(HeldParts),
    /// Any number of them.
    Runs(Pieces),
}

impl HeldMap {
    /// `names` are as many as `pages`.
    pub(crate) fn new(names: Py<PyTuple>, pages: impl Iterator<Item = Pages>) -> Self {
        let values = pages.map(|pages| Value { pages, made: PyOnceLock::new() }).collect();
        Self { names, values }
    }

    fn place(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        for (index, other) in self.names.bind(py).iter().enumerate() {
            if other.eq(name)? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    fn at<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        let Value { pages, made } = &self.values[index];
        let made = made.get_or_try_init(py, || match pages {
            Pages::Held(HeldParts { first_page, pages, parts }) => {
                held(py, *first_page, gathered(py, *pages as usize, parts)?).map(Bound::unbind)
            }
            Pages::Runs(runs) => Ok(tuple(py, runs)?.into_any().unbind()),
        })?;
        Ok(made.bind(py).clone())
    }
}

#[pymethods]
impl HeldMap {
    fn __getitem__<'py>(&self, py: Python<'py>, name: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self.place(py, name)? {
            Some(index) => self.at(py, index),
            None => Err(PyKeyError::new_err(name.clone().unbind())),
        }
    }

    #[pyo3(signature = (name, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.place(py, name)? {
            Some(index) => self.at(py, index).map(Some),
            None => Ok(default),
        }
    }

    fn __len__(&self) -> usize {
        self.values.len()
    }

    fn __contains__(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.place(py, name)?.is_some())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.names.bind(py).try_iter()
    }

    fn keys(&self, py: Python<'_>) -> Py<PyTuple> {
        self.names.clone_ref(py)
    }

    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let all: PyResult<Vec<_>> = (0..self.values.len()).map(|index| self.at(py, index)).collect();
        PyTuple::new(py, all?)
    }

    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let names = self.names.bind(py);
        let pair = |index| Ok((names.get_item(index)?, self.at(py, index)?));
        let all: PyResult<Vec<_>> = (0..self.values.len()).map(pair).collect();
        PyTuple::new(py, all?)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let pairs: PyResult<Vec<String>> = (0..self.values.len())
            .map(|index| {
                let (name, held) = (self.names.bind(py).get_item(index)?, self.at(py, index)?);
                Ok(format!("{}: {}", name.repr()?, held.repr()?))
            })
            .collect();
        Ok(format!("{{{}}}", pairs?.join(", ")))
    }
}
