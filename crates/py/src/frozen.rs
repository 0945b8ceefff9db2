//! Frozen dataclasses, made without their `__init__`.
//!
//! A frozen dataclass sets each field through a Python call to `object.__setattr__`, which for a `Match` costs
//! more than the match. Here the same is done by the function behind it. Besides `buffers.rs` the only file
//! with `unsafe` code.
#![allow(unsafe_code)]

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple, PyType};

/// A frozen dataclass with slots and without `__post_init__`, and the names of its fields.
pub(crate) struct Frozen {
    class: Py<PyType>,
    fields: Vec<Py<PyString>>,
}

impl Frozen {
    /// The class of a module, looked up once.
    pub(crate) fn of<'a>(
        cell: &'a PyOnceLock<Self>,
        py: Python<'_>,
        module: &str,
        name: &str,
    ) -> PyResult<&'a Self> {
        cell.get_or_try_init(py, || {
            let class = py.import(module)?.getattr(name)?.cast_into::<PyType>()?;
            let fields = class.getattr("__match_args__")?.cast_into::<PyTuple>()?;
            let slots = class.getattr("__slots__")?.cast_into::<PyTuple>()?;
            if class.hasattr("__post_init__")? || !fields.eq(slots)? {
                return Err(PyTypeError::new_err(format!("{name} is not a plain dataclass with slots")));
            }
            Ok(Self { class: class.unbind(), fields: fields.extract()? })
        })
    }

    /// A new object with these values for its fields, in their order.
    pub(crate) fn make<'py, const N: usize>(
        &self,
        py: Python<'py>,
        values: [Bound<'py, PyAny>; N],
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.fields.len() != N {
            return Err(PyTypeError::new_err(format!(
                "{} fields were given, {N} are wanted",
                self.fields.len()
            )));
        }
        let class = self.class.bind(py).as_type_ptr();
        // SAFETY: `class` is a live heap type without a `__new__` of its own, so this is what
        // `object.__new__` does with it: a new reference to an object with empty slots, or an exception.
        let object = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(class, 0)) }?;
        for (field, value) in self.fields.iter().zip(values) {
            // SAFETY: all three are live objects; this is `object.__setattr__`, which borrows them.
            let status =
                unsafe { ffi::PyObject_GenericSetAttr(object.as_ptr(), field.as_ptr(), value.as_ptr()) };
            if status != 0 {
                return Err(PyErr::fetch(py));
            }
        }
        Ok(object)
    }
}
