//! Python binding of graftline's tree core: converts arguments and results, and knows nothing else.
//!
//! One class, `Tree`, with the operations of `graftline.tree.TreeCore`; results are the dataclasses of
//! `graftline.plan`. The docs of the Python side stand in `src/graftline/_core.pyi`.
#![deny(unsafe_code)]

mod arguments;
mod buffers;
mod errors;
mod frozen;
mod held;
mod plan;
mod tree;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::held::HeldMap;
    #[pymodule_export]
    use super::tree::Tree;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        let mapping = py.import("collections.abc")?.getattr("Mapping")?;
        mapping.call_method1("register", (py.get_type::<HeldMap>(),))?;
        if cfg!(debug_assertions) {
            let message = c"graftline._core is a debug build, many times slower than a release build";
            PyErr::warn(py, &py.get_type::<pyo3::exceptions::PyRuntimeWarning>(), message, 1)?;
        }
        Ok(())
    }
}
