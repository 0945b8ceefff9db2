//! Sessions: their names, handles, hints and idle clocks (rules S-1, S-2, S-6).
//!
//! The table keeps two kinds of lists through its entries. One has all sessions by the time at which they
//! were last heard of: time never goes back, so the one that is idle longest is the first. The others have,
//! by node, the sessions whose frontier is the node's end. What they refer to is told in `references.rs`.

use std::fmt;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::arena::{Arena, Handle, Id};
use crate::error::{Error, Result};
use crate::node::NodeId;
use crate::tree::Tree;

/// Largest hint of a session.
pub const PRIORITY_MAX: u32 = (1 << 20) - 1;

/// What a caller tells about a session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hints {
    /// How much it matters that the session is fast, for policies that ask; at most `PRIORITY_MAX`.
    pub priority: u32,
    /// Seconds from a request's end until the next one, where the caller knows.
    pub expected_return_s: Option<f64>,
}

/// Where a session stands: at the end of a node. The boundary is the one that was registered last, and lies
/// deeper where pages have left since; the references start where it needs pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frontier {
    pub(crate) node: NodeId,
    pub(crate) boundary: u32,
}

/// Seconds as the readable core prints them: `nan`, `-1.0`, `1e+16`, `1e-05`.
struct Seconds(f64);

impl fmt::Display for Seconds {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:?}", self.0);
        match text.split_once('e') {
            Some((digits, power)) => {
                let power: i32 = power.parse().map_err(|_| fmt::Error)?;
                let sign = if power < 0 { '-' } else { '+' };
                write!(to, "{digits}e{sign}{:02}", power.abs())
            }
            None if self.0.is_nan() => to.write_str("nan"),
            None => to.write_str(&text),
        }
    }
}

/// Neighbours of an entry in a list.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    before: Option<Id>,
    after: Option<Id>,
}

/// An open session.
#[derive(Debug)]
pub(crate) struct Session {
    name: Arc<str>,
    pub(crate) hints: Hints,
    /// When it was opened, registered or forked into last.
    last_s: f64,
    pub(crate) frontier: Option<Frontier>,
    idle: Links,
    here: Links,
}

/// All open sessions, and the time.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) table: Arena<Session>,
    pub(crate) now_s: f64,
    names: HashMap<Arc<str>, Id>,
    oldest: Option<Id>,
    newest: Option<Id>,
    /// By node: the first session whose frontier is its end.
    ends: HashMap<NodeId, Id>,
    ttl_s: f64,
    sessions_max: usize,
}

impl Sessions {
    pub(crate) fn new(ttl_s: f64, sessions_max: usize) -> Result<Self> {
        if ttl_s.is_nan() || ttl_s <= 0.0 {
            return Err(Error::config(format!(
                "session_ttl_s is {}, it must be more than 0",
                Seconds(ttl_s)
            )));
        }
        if sessions_max < 1 {
            return Err(Error::config(format!("max_sessions is {sessions_max}, it must be at least 1")));
        }
        Ok(Self {
            table: Arena::new(),
            now_s: 0.0,
            names: HashMap::default(),
            oldest: None,
            newest: None,
            ends: HashMap::default(),
            ttl_s,
            sessions_max,
        })
    }

    /// Sessions whose frontier is the end of a node.
    pub(crate) fn at(&self, node: NodeId) -> impl Iterator<Item = Id> {
        let mut next = self.ends.get(&node).copied();
        std::iter::from_fn(move || {
            let here = next?;
            next = self.table[here].here.after;
            Some(here)
        })
    }

    /// S-1, S-2: names find their sessions, and those idle longest come first.
    pub(crate) fn check(&self) -> Result<()> {
        let broken = |rule, message: String| Err(Error::Integrity { rule, message });
        let is_named = |(id, session): (Id, &Session)| self.names.get(&session.name) == Some(&id);
        if self.names.len() != self.table.len() || !self.table.iter().all(is_named) {
            return broken("S-1", format!("names {:?} are not those of the sessions", self.names.keys()));
        }
        let order: Vec<f64> = std::iter::successors(self.oldest, |&id| self.table[id].idle.after)
            .map(|id| self.table[id].last_s)
            .collect();
        if order.len() != self.table.len() || !order.is_sorted() {
            return broken("S-2", format!("{} sessions were last heard of at {order:?}", self.table.len()));
        }
        Ok(())
    }

    fn add(&mut self, name: &str) -> Id {
        let name: Arc<str> = Arc::from(name);
        let id = self.table.insert(Session {
            name: Arc::clone(&name),
            hints: Hints::default(),
            last_s: self.now_s,
            frontier: None,
            idle: Links::default(),
            here: Links::default(),
        });
        self.names.insert(name, id);
        self.append(id);
        id
    }

    /// A session was heard of just now.
    fn renew(&mut self, id: Id) {
        self.unlink(id);
        self.append(id);
        self.table[id].last_s = self.now_s;
    }

    /// Forgets a session, which has no frontier any more, and returns its name.
    fn forget(&mut self, id: Id) -> Arc<str> {
        self.unlink(id);
        let session = self.table.remove(id);
        self.names.remove(&session.name);
        session.name
    }

    /// The session that is idle for longer than the time-to-live.
    fn expired(&self) -> Option<Id> {
        self.oldest.filter(|&id| self.now_s - self.table[id].last_s > self.ttl_s)
    }

    fn append(&mut self, id: Id) {
        let before = self.newest.replace(id);
        self.table[id].idle = Links { before, after: None };
        match before {
            Some(before) => self.table[before].idle.after = Some(id),
            None => self.oldest = Some(id),
        }
    }

    fn unlink(&mut self, id: Id) {
        let Links { before, after } = self.table[id].idle;
        match before {
            Some(before) => self.table[before].idle.after = after,
            None => self.oldest = after,
        }
        match after {
            Some(after) => self.table[after].idle.before = before,
            None => self.newest = before,
        }
    }

    /// Sets a session's frontier; returns the one before.
    pub(crate) fn place(&mut self, id: Id, to: Option<Frontier>) -> Option<Frontier> {
        let from = self.table[id].frontier;
        if let Some(from) = from {
            let Links { before, after } = self.table[id].here;
            match (before, after) {
                (Some(before), _) => self.table[before].here.after = after,
                (None, Some(after)) => drop(self.ends.insert(from.node, after)),
                (None, None) => drop(self.ends.remove(&from.node)),
            }
            if let Some(after) = after {
                self.table[after].here.before = before;
            }
        }
        self.table[id].frontier = to;
        self.table[id].here = Links::default();
        if let Some(to) = to {
            let after = self.ends.insert(to.node, id);
            self.table[id].here.after = after;
            if let Some(after) = after {
                self.table[after].here.before = Some(id);
            }
        }
        from
    }

    /// Moves the frontiers at a node that leaves to another one, or to nowhere.
    pub(crate) fn lift(&mut self, node: NodeId, to: Option<NodeId>) {
        if self.ends.is_empty() {
            return;
        }
        while let Some(&id) = self.ends.get(&node) {
            let boundary = self.table[id].frontier.map_or(0, |frontier| frontier.boundary);
            self.place(id, to.map(|node| Frontier { node, boundary }));
        }
    }
}

impl Tree {
    /// Tells the time and closes what was idle for longer than the time-to-live (rule S-2).
    ///
    /// A time that lies before the last one told is left out. Returns the names of the sessions closed, the one
    /// idle longest first. Cost: that of the sessions closed.
    ///
    /// # Errors
    /// The time is not a finite number.
    pub fn set_time(&mut self, now_s: f64) -> Result<Vec<Arc<str>>> {
        if !now_s.is_finite() {
            let message = format!("the time is {}, it must be a finite number of seconds", Seconds(now_s));
            return Err(Error::config(message));
        }
        self.sessions.now_s = self.sessions.now_s.max(now_s);
        self.policy.set_time(self.sessions.now_s);
        let mut closed = Vec::new();
        while let Some(id) = self.sessions.expired() {
            closed.push(self.close(id));
        }
        Ok(closed)
    }

    /// Opens a session, or renews the hints and the idle time of one that is open (rule S-1).
    ///
    /// When there are too many, the one idle longest is closed. The handle is never used again after the
    /// session is closed.
    ///
    /// # Errors
    /// A priority above `PRIORITY_MAX`, or seconds below 0 or not finite.
    pub fn open_session(&mut self, name: &str, hints: Hints) -> Result<Handle> {
        if hints.priority > PRIORITY_MAX {
            let message = format!("priority is {}, it must be from 0 to {PRIORITY_MAX}", hints.priority);
            return Err(Error::config(message));
        }
        if let Some(seconds) =
            hints.expected_return_s.filter(|&seconds| !(0.0..f64::INFINITY).contains(&seconds))
        {
            let message =
                format!("expected_return_s is {}, it must be 0 or more, and finite", Seconds(seconds));
            return Err(Error::config(message));
        }
        let id = match self.sessions.names.get(name) {
            Some(&id) => id,
            None => {
                if let Some(oldest) = self.sessions.oldest.filter(|_| self.sessions_are_full()) {
                    self.close(oldest);
                }
                self.sessions.add(name)
            }
        };
        self.sessions.renew(id);
        self.sessions.table[id].hints = hints;
        Ok(self.sessions.table.handle(id))
    }

    fn sessions_are_full(&self) -> bool {
        self.sessions.table.len() >= self.sessions.sessions_max
    }

    /// Moves a session's frontier to the boundary of a lease that is out (rules S-3, S-4).
    ///
    /// Returns `false` when the session was closed: who finishes late cannot open it again. Cost: O(nodes that
    /// either boundary needs and the other does not); for policies that ask for more than recency, all of them.
    /// Policies that age are told the length of the request's answer, where it is known.
    ///
    /// # Errors
    /// The lease was released.
    pub fn register(&mut self, session: Handle, lease: Handle, answer_tokens: Option<u32>) -> Result<bool> {
        let lease = &self.leases[self.lease_record(lease)?];
        let (node, boundary) = (lease.node, lease.boundary);
        let Some(id) = self.sessions.table.find(session) else { return Ok(false) };
        self.sessions.renew(id);
        if self.policy_ages {
            let from = self.sessions.table[id].frontier;
            self.tell_passage(session.to_bits(), from, Frontier { node, boundary }, answer_tokens);
        }
        self.move_frontier(id, (boundary > 0).then_some(Frontier { node, boundary }));
        Ok(true)
    }

    /// Opens the target with the source's hints and frontier; both go on apart (rule S-6).
    ///
    /// # Errors
    /// The source is not open.
    pub fn fork_session(&mut self, source: &str, target: &str) -> Result<Handle> {
        let Some(&id) = self.sessions.names.get(source) else {
            return Err(Error::Config {
                message: format!("no session is named '{source}'"),
                hint: "it was never opened, or it was closed".to_owned(),
            });
        };
        let Session { hints, frontier, .. } = self.sessions.table[id];
        let handle = self.open_session(target, hints)?;
        let id = self.sessions.table.find(handle).expect("it was opened just now");
        self.move_frontier(id, frontier);
        Ok(handle)
    }

    /// Closes a session, and returns whether it was open; its references go (rule S-1).
    ///
    /// Cost: O(nodes that its frontier needs).
    pub fn close_session(&mut self, name: &str) -> bool {
        let id = self.sessions.names.get(name).copied();
        id.map(|id| self.close(id)).is_some()
    }

    fn close(&mut self, id: Id) -> Arc<str> {
        self.move_frontier(id, None);
        self.policy.closed(self.sessions.table.handle(id).to_bits());
        self.sessions.forget(id)
    }
}

#[cfg(test)]
mod tests {
    use super::Seconds;

    #[test]
    fn seconds_are_printed_as_in_the_readable_core() {
        let texts =
            [f64::NAN, f64::NEG_INFINITY, -1.0, 0.5, 1e16, 1.5e-5, 1e-4].map(|s| Seconds(s).to_string());
        assert_eq!(texts, ["nan", "-inf", "-1.0", "0.5", "1e+16", "1.5e-05", "0.0001"]);
    }
}
