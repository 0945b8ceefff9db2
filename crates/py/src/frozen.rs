//! Frozen dataclasses, made without their `__init__`.
//!
//! A frozen dataclass sets each field through a Python call to `object.__setattr__`, which for a `Match` costs
//! more than the match. Here the same is done by the function behind it, that of the slot's descriptor. Besides
//! `buffers.rs` the only file with `unsafe` code.
#![allow(unsafe_code)]

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple, PyType};

/// A frozen dataclass with slots and without `__post_init__`, and the descriptors of its fields.
pub(crate) struct Frozen {
    class: Py<PyType>,
    fields: Vec<Field>,
}

/// The descriptor of a slot, and the function that sets it.
struct Field {
    slot: Py<PyAny>,
    set: ffi::descrsetfunc,
}

impl Field {
    fn of(class: &Bound<'_, PyType>, name: &Bound<'_, PyAny>) -> PyResult<Self> {
        let slot = class.getattr(name.cast::<PyString>()?)?;
        // SAFETY: the type of a live object; the slot is read, and is what its name says or null.
        let set = unsafe { ffi::PyType_GetSlot(slot.get_type_ptr(), ffi::Py_tp_descr_set) };
        if set.is_null() {
            return Err(PyTypeError::new_err(format!("{slot} is not the descriptor of a slot")));
        }
        // SAFETY: `Py_tp_descr_set` is a function of this type, and this one is not null.
        let set = unsafe { std::mem::transmute::<*mut std::ffi::c_void, ffi::descrsetfunc>(set) };
        Ok(Self { slot: slot.unbind(), set })
    }
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
            let fields: PyResult<_> = fields.iter().map(|name| Field::of(&class, &name)).collect();
            Ok(Self { fields: fields?, class: class.unbind() })
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
        for (Field { slot, set }, value) in self.fields.iter().zip(values) {
            // SAFETY: all three are live objects; this is what `object.__setattr__` does once it has found the
            // descriptor of the slot, which checks the object's type and borrows them.
            let status = unsafe { set(slot.as_ptr(), object.as_ptr(), value.as_ptr()) };
            if status != 0 {
                return Err(PyErr::fetch(py));
            }
        }
        Ok(object)
    }
}
