//! Errors of the core as the exceptions of `graftline.errors`.

use graftline_core::Error;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The exception that an error of the core stands for.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let built = match error {
        Error::Config { message, hint } => build(py, "ConfigError", (message,), hint),
        Error::StaleHandle { message, hint } => build(py, "StaleHandleError", (message,), hint),
        Error::Integrity { rule, message } => build(py, "IntegrityError", (rule, message), ""),
        other => build(py, "GraftlineError", (other.to_string(),), ""),
    };
    built.unwrap_or_else(|error| error)
}

/// A `ConfigError` without a hint.
pub(crate) fn config_error(py: Python<'_>, message: &str) -> PyErr {
    build(py, "ConfigError", (message,), "").unwrap_or_else(|error| error)
}

fn build<'py, A>(py: Python<'py>, class: &str, arguments: A, hint: &str) -> PyResult<PyErr>
where
    A: pyo3::call::PyCallArgs<'py>,
{
    let keywords = PyDict::new(py);
    if !hint.is_empty() {
        keywords.set_item("hint", hint)?;
    }
    let class = py.import("graftline.errors")?.getattr(class)?;
    Ok(PyErr::from_value(class.call(arguments, Some(&keywords))?))
}
