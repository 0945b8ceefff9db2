//! The table of open sessions: names, handles, idle clocks (rules S-1, S-2).
//!
//! Sessions stand in a list by the time at which they were last heard of, since time never goes back: the one
//! that is idle longest is the first. What a session references in the tree is told in `references.rs`.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::arena::{Arena, Handle, Id};
use crate::node::NodeId;

/// An open session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) name: Arc<str>,
    pub(crate) hints: Hints,
    /// When it was last heard of.
    pub(crate) last_s: f64,
    pub(crate) frontier: Option<Frontier>,
    /// Neighbours in the order of `last_s`.
    older: Option<Id>,
    newer: Option<Id>,
}

/// What a caller tells about a session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hints {
    /// How much more its values are worth than those of others; 0 for ordinary ones.
    pub priority: i64,
    /// When it is expected to go on.
    pub expected_return_s: Option<f64>,
}

/// Where a session stands: what the boundary needed was referenced, up to the end of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frontier {
    pub(crate) node: NodeId,
    pub(crate) boundary: u32,
}

/// All open sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) table: Arena<Session>,
    names: HashMap<Arc<str>, Id>,
    oldest: Option<Id>,
    newest: Option<Id>,
    pub(crate) now_s: f64,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Self { table: Arena::new(), names: HashMap::default(), oldest: None, newest: None, now_s: 0.0 }
    }

    pub(crate) fn named(&self, name: &str) -> Option<Id> {
        self.names.get(name).copied()
    }

    /// The session that is idle longest.
    pub(crate) fn oldest(&self) -> Option<Id> {
        self.oldest
    }

    pub(crate) fn open(&mut self, name: &str) -> Id {
        let name: Arc<str> = Arc::from(name);
        let session = Session {
            name: Arc::clone(&name),
            hints: Hints::default(),
            last_s: self.now_s,
            frontier: None,
            older: None,
            newer: None,
        };
        let id = self.table.insert(session);
        self.names.insert(name, id);
        self.append(id);
        id
    }

    pub(crate) fn handle(&self, id: Id) -> Handle {
        self.table.handle(id)
    }

    /// A session was heard of.
    pub(crate) fn renew(&mut self, id: Id) {
        self.unlink(id);
        self.append(id);
        self.table[id].last_s = self.now_s;
    }

    pub(crate) fn remove(&mut self, id: Id) -> Session {
        self.unlink(id);
        let session = self.table.remove(id);
        self.names.remove(&session.name);
        session
    }

    fn append(&mut self, id: Id) {
        let older = self.newest.replace(id);
        (self.table[id].older, self.table[id].newer) = (older, None);
        match older {
            Some(older) => self.table[older].newer = Some(id),
            None => self.oldest = Some(id),
        }
    }

    fn unlink(&mut self, id: Id) {
        let (older, newer) = (self.table[id].older, self.table[id].newer);
        match older {
            Some(older) => self.table[older].newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => self.table[newer].older = older,
            None => self.newest = older,
        }
    }
}
