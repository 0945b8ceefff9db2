//! Arrays across the border, without a copy of each element. Besides `frozen.rs` the only file with
//! `unsafe` code.
#![allow(unsafe_code)]

use std::borrow::Cow;

use graftline_core::Run;
use numpy::{Element, PyArray1, PyArrayMethods, dtype};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::errors::config_error;

/// A contiguous array of token ids; it is kept alive while this is.
pub(crate) struct Tokens<'a, 'py>(Cow<'a, Bound<'py, PyArray1<u32>>>);

impl<'a, 'py> Tokens<'a, 'py> {
    /// Takes a contiguous array of u32 as it is; anything else goes through `graftline.key.as_tokens`, which
    /// converts and checks it, and copies no buffer of u32.
    pub(crate) fn of(tokens: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = tokens.cast()
            && slice(array).is_some()
        {
            return Ok(Self(Cow::Borrowed(array)));
        }
        static AS_TOKENS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let as_tokens = AS_TOKENS.import(tokens.py(), "graftline.key", "as_tokens")?;
        let array = as_tokens.call1((tokens,))?.cast_into()?;
        if slice(&array).is_none() {
            return Ok(Self(Cow::Owned(array.call_method0("copy")?.cast_into()?))); // not aligned
        }
        Ok(Self(Cow::Owned(array)))
    }

    /// The token ids. Nobody may write to them while an operation reads them: `_core.pyi` says so, as for every
    /// function that lets other threads run meanwhile.
    pub(crate) fn as_slice(&self) -> &[u32] {
        slice(&self.0).expect("`of` looked before")
    }
}

/// Slots of one run given to `insert`, as a copy: the only one, which the tree keeps.
pub(crate) fn slots_of(slots: &Bound<'_, PyAny>) -> PyResult<Run<i32>> {
    if let Ok(array) = slots.cast()
        && let Some(values) = slice(array)
    {
        return Ok(Run::from(values));
    }
    let py = slots.py();
    let converted = slots.call_method1(intern!(py, "astype"), (dtype::<i32>(py),))?;
    match converted.cast().ok().and_then(slice) {
        Some(values) => Ok(Run::from(values)),
        None => {
            let shape = converted.getattr("shape")?;
            Err(config_error(py, &format!("slots must be one-dimensional, got shape {shape}")))
        }
    }
}

/// The values of an array that lie one after the other; `None` for one with gaps or not aligned.
fn slice<'a, T: Element>(array: &'a Bound<'_, PyArray1<T>>) -> Option<&'a [T]> {
    // SAFETY: the array is held, so its memory stays where it is. Whoever calls this either copies the values
    // while it has the interpreter, or says that nobody may write to them.
    unsafe { array.as_slice() }.ok()
}

/// A new int32 array with the slots of runs, one after the other.
pub(crate) fn gathered<'py>(
    py: Python<'py>,
    pages: usize,
    parts: &[Run<i32>],
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: all of it is written before anyone sees it: the parts fill the array.
    let array = unsafe { PyArray1::<i32>::new(py, pages, false) };
    // SAFETY: it was made just now and nobody else knows it.
    let mut rest = unsafe { array.as_slice_mut() }?;
    for part in parts {
        let (here, after) = rest.split_at_mut(part.len());
        here.copy_from_slice(part);
        rest = after;
    }
    assert!(rest.is_empty(), "the parts fill the array");
    Ok(array.into_any())
}

/// A new array.
pub(crate) fn array<'py, T: Element + Copy>(py: Python<'py>, values: &[T]) -> Bound<'py, PyAny> {
    PyArray1::from_slice(py, values).into_any()
}
