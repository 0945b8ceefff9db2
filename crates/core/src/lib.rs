//! The fast tree core of graftline: bookkeeping of cached prefixes, without Python.
//!
//! It keeps the numbered rules of `docs/design.md`, as the readable core in `src/graftline/tree/` does,
//! and gives the same results and the same `dump()` text. One operation a file; the names are those of
//! the readable core. Nothing here performs I/O, holds tensors or reads a clock.
#![forbid(unsafe_code)]

mod arena;
mod below;
mod boundaries;
mod candidates;
mod check;
mod check_sessions;
mod children;
mod claim;
mod drop;
mod dump;
mod error;
mod events;
mod evict;
mod insert;
mod key;
mod lease;
mod liveness;
mod match_;
mod namespaces;
mod node;
mod places;
mod plan;
pub mod policy;
mod ranks;
mod references;
mod rule;
mod run;
mod sessions;
mod split;
mod tree;
mod usage;
mod values;

pub use arena::Handle;
pub use claim::KnownPath;
pub use error::{Error, Result};
pub use key::{Namespace, PageKey};
pub use plan::{
    Event, EventKind, Freed, GivenRun, HeldParts, Insertion, Lease, Match, Piece, Pieces, PoolStats, Reason,
    Tier, TreeStats, Vote,
};
pub use rule::Rule;
pub use run::Run;
pub use sessions::{Hints, PRIORITY_MAX};
pub use tree::{Component, Settings, Tree};
