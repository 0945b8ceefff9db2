//! Arrays across the border, without a copy of each element. The only file with `unsafe` code.
#![allow(unsafe_code)]

use graftline_core::Run;
use pyo3::buffer::PyBuffer;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Token ids that came as a buffer; kept alive and in place while this is.
pub(crate) struct Tokens(PyBuffer<u32>);

impl Tokens {
    /// Takes a contiguous buffer of u32 as it is; anything else goes through `graftline.key.as_tokens`,
    /// which converts and checks it.
    pub(crate) fn of(tokens: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(buffer) = PyBuffer::get(tokens)
            && buffer.dimensions() == 1
            && buffer.is_c_contiguous()
        {
            return Ok(Self(buffer));
        }
        static AS_TOKENS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let as_tokens = AS_TOKENS.import(tokens.py(), "graftline.key", "as_tokens")?;
        Ok(Self(PyBuffer::get(&as_tokens.call1((tokens,))?)?))
    }

    /// The token ids.
    pub(crate) fn as_slice(&self) -> &[u32] {
        match self.0.as_slice_ptr() {
            // SAFETY: the buffer is held by `self`, so its memory stays where it is; format, alignment and
            // length were checked when it was taken. Nobody may write to an array while an operation reads
            // it: `_core.pyi` says so, as for every function that lets other threads run meanwhile.
            Some(pointer) => unsafe { pointer.as_ref() },
            None => &[],
        }
    }
}

/// Slots of one run given to `insert`, as a copy: the only one, which the tree keeps.
pub(crate) fn slots_of(slots: &Bound<'_, PyAny>) -> PyResult<Run<i32>> {
    let py = slots.py();
    if let Ok(buffer) = PyBuffer::<i32>::get(slots) {
        return copied(py, &buffer);
    }
    let converted = slots.call_method1(intern!(py, "astype"), (int32(py)?,))?;
    copied(py, &PyBuffer::<i32>::get(&converted)?)
}

fn copied(py: Python<'_>, buffer: &PyBuffer<i32>) -> PyResult<Run<i32>> {
    if buffer.dimensions() == 1
        && buffer.is_c_contiguous()
        && let Some(pointer) = buffer.as_slice_ptr()
    {
        // SAFETY: the buffer is held, so its memory stays where it is; format, alignment and length were checked
        // when it was taken. The interpreter is held too, so nobody of Python writes to it meanwhile.
        return Ok(Run::from(unsafe { pointer.as_ref() }));
    }
    Ok(buffer.to_vec(py)?.into())
}

/// A new int32 array with the slots of runs, one after the other.
pub(crate) fn gathered<'py>(
    py: Python<'py>,
    pages: usize,
    parts: &[Run<i32>],
) -> PyResult<Bound<'py, PyAny>> {
    filled(py, pages, parts.iter().map(|part| &**part))
}

/// A new int32 array.
pub(crate) fn array<'py>(py: Python<'py>, slots: &[i32]) -> PyResult<Bound<'py, PyAny>> {
    filled(py, slots.len(), std::iter::once(slots))
}

/// A new uint32 array.
pub(crate) fn token_array<'py>(py: Python<'py>, tokens: &[u32]) -> PyResult<Bound<'py, PyAny>> {
    static UINT32: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let array = empty(py, tokens.len(), UINT32.import(py, "numpy", "uint32")?)?;
    PyBuffer::get(&array)?.copy_from_slice(py, tokens)?;
    Ok(array)
}

fn filled<'py, 'a>(
    py: Python<'py>,
    count: usize,
    parts: impl Iterator<Item = &'a [i32]>,
) -> PyResult<Bound<'py, PyAny>> {
    let array = empty(py, count, int32(py)?)?;
    let buffer = PyBuffer::<i32>::get(&array)?;
    if let Some(mut pointer) = buffer.as_slice_ptr() {
        // SAFETY: the array was made just now and nobody else knows it; the buffer keeps its memory.
        let mut rest = unsafe { pointer.as_mut() };
        for part in parts {
            let (here, after) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = after;
        }
        debug_assert!(rest.is_empty(), "the parts fill the array");
    }
    Ok(array)
}

fn empty<'py>(py: Python<'py>, count: usize, dtype: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    EMPTY.import(py, "numpy", "empty")?.call1((count, dtype))
}

fn int32(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static INT32: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = INT32.get_or_try_init(py, || {
        let numpy = py.import("numpy")?;
        numpy.getattr("dtype")?.call1((numpy.getattr("int32")?,)).map(Bound::unbind)
    });
    made.map(|dtype| dtype.bind(py))
}
