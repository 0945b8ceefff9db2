//! Errors of the tree core; the binding maps each to the class of that name in `graftline.errors`.

/// What went wrong. Messages are lower case, without a full stop, and name the offending value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting or an argument that can never work.
    #[error("{message}")]
    Config {
        /// What is wrong.
        message: String,
        /// What to do next; empty when there is nothing to add.
        hint: String,
    },
    /// A match or lease names something that is not there any more.
    #[error("{message}")]
    StaleHandle {
        /// What is gone.
        message: String,
        /// What to do next.
        hint: &'static str,
    },
    /// The bookkeeping contradicts itself: a fault of graftline, never of the caller.
    #[error("{rule}: {message}")]
    Integrity {
        /// Number of the broken rule in `docs/design.md`.
        rule: &'static str,
        /// What was found.
        message: String,
    },
}

/// A result of the tree core.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn config(message: String) -> Self {
        Self::Config { message, hint: String::new() }
    }

    pub(crate) fn stale(message: String, hint: &'static str) -> Self {
        Self::StaleHandle { message, hint }
    }
}
