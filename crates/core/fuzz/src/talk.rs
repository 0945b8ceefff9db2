//! Sessions beside a list of them, the one idle longest first.

use graftline_core::{Error, Handle, Hints, PRIORITY_MAX};

use crate::bytes::Bytes;
use crate::player::Player;

pub(crate) const TTL_S: f64 = 10.0;
pub(crate) const SESSIONS_MAX: usize = 3;
const NAMES: [&str; 5] = ["a", "b", "c", "d", ""];

/// What is known of the sessions that are open.
#[derive(Default)]
pub(crate) struct Talk {
    now_s: f64,
    open: Vec<(&'static str, Handle, f64)>,
    handles: Vec<Handle>,
}

impl Talk {
    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }

    fn handle(&self, name: &str) -> Option<Handle> {
        self.open.iter().find(|open| open.0 == name).map(|open| open.1)
    }

    fn close(&mut self, name: &str) -> bool {
        let before = self.open.len();
        self.open.retain(|open| open.0 != name);
        self.open.len() < before
    }

    /// Opened or heard of just now.
    fn renew(&mut self, name: &'static str, handle: Handle) {
        if !self.close(name) && self.open.len() == SESSIONS_MAX {
            self.open.remove(0);
        }
        self.open.push((name, handle, self.now_s));
    }
}

impl Player {
    pub(crate) fn talk(&mut self, bytes: &mut Bytes) {
        match bytes.below(8) {
            0 => self.tell_time(bytes),
            1 => self.open(bytes),
            2 => self.fork(bytes),
            3 => self.close(bytes),
            4 => self.talk_nonsense(bytes),
            _ => self.register(bytes),
        }
        assert_eq!(self.tree.stats().sessions, self.talk.count());
    }

    fn tell_time(&mut self, bytes: &mut Bytes) {
        let told_s = self.talk.now_s + bytes.below(8) as f64 - 2.0;
        self.talk.now_s = self.talk.now_s.max(told_s);
        let now_s = self.talk.now_s;
        let is_idle = |open: &&(&str, Handle, f64)| now_s - open.2 > TTL_S;
        let expected: Vec<&str> = self.talk.open.iter().take_while(is_idle).map(|open| open.0).collect();
        let closed = self.tree.set_time(told_s).expect("a finite time");
        assert!(closed.iter().map(AsRef::as_ref).eq(expected.iter().copied()));
        self.talk.open.drain(..closed.len());
    }

    fn open(&mut self, bytes: &mut Bytes) {
        let name = NAMES[bytes.below(NAMES.len())];
        let expected_return_s = bytes.flag().then(|| bytes.below(16) as f64);
        let hints = Hints { priority: bytes.below(4) as u32, expected_return_s };
        let handle = self.tree.open_session(name, hints).expect("good hints");
        self.note(name, handle);
    }

    /// A session that is open has the handle that it had; another gets a new one.
    fn note(&mut self, name: &'static str, handle: Handle) {
        match self.talk.handle(name) {
            Some(known) => assert_eq!(known, handle),
            None => assert!(!self.talk.handles.contains(&handle), "handles are never used twice"),
        }
        self.talk.handles.push(handle);
        self.talk.renew(name, handle);
    }

    fn fork(&mut self, bytes: &mut Bytes) {
        let (source, target) = (NAMES[bytes.below(NAMES.len())], NAMES[bytes.below(NAMES.len())]);
        let is_open = self.talk.handle(source).is_some();
        match self.tree.fork_session(source, target) {
            Ok(handle) => {
                assert!(is_open);
                self.note(target, handle);
            }
            Err(error) => assert!(!is_open && matches!(error, Error::Config { .. })),
        }
    }

    fn close(&mut self, bytes: &mut Bytes) {
        let name = NAMES[bytes.below(NAMES.len())];
        assert_eq!(self.tree.close_session(name), self.talk.close(name));
    }

    /// Of any session that there ever was, and any lease.
    fn register(&mut self, bytes: &mut Bytes) {
        let Some(index) = bytes.pick(&self.talk.handles) else { return };
        let session = self.talk.handles[index];
        if let (true, Some(index)) = (bytes.below(8) == 0, bytes.pick(&self.released)) {
            let refused = self.tree.register(session, self.released[index], None);
            assert!(matches!(refused, Err(Error::StaleHandle { .. })));
            return;
        }
        let Some(index) = bytes.pick(&self.model.leases) else { return };
        let lease = self.model.leases[index].handle;
        let answer_tokens = (session.to_bits() % 3 > 0).then_some(index as u32);
        let done = self.tree.register(session, lease, answer_tokens).expect("a lease that is out");
        let open = self.talk.open.iter().find(|open| open.1 == session).map(|open| open.0);
        assert_eq!(done, open.is_some(), "who finishes late cannot open a session again");
        if let Some(name) = open {
            self.talk.renew(name, session);
        }
    }

    fn talk_nonsense(&mut self, bytes: &mut Bytes) {
        let before = self.tree.dump();
        let time = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY][bytes.below(3)];
        assert!(matches!(self.tree.set_time(time), Err(Error::Config { .. })));
        let seconds = [f64::NAN, f64::INFINITY, -1.0][bytes.below(3)];
        let hints = Hints { priority: 0, expected_return_s: Some(seconds) };
        assert!(matches!(self.tree.open_session("a", hints), Err(Error::Config { .. })));
        let hints = Hints { priority: PRIORITY_MAX + 1, expected_return_s: None };
        assert!(matches!(self.tree.open_session("a", hints), Err(Error::Config { .. })));
        assert_eq!(self.tree.dump(), before);
    }
}
