//! What must be refused without a change: bad values, handles of the past.

use graftline_core::policy::make_policy;
use graftline_core::{Error, GivenRun, KnownPath};

use crate::bytes::Bytes;
use crate::model::pages;
use crate::player::{Player, space};

impl Player {
    pub(crate) fn misuse(&mut self, bytes: &mut Bytes) {
        let before = self.tree.dump();
        match bytes.below(3) {
            0 => self.use_released(bytes),
            1 => self.offer_bad_values(bytes),
            _ => self.name_the_unknown(bytes),
        }
        assert_eq!(self.tree.dump(), before, "a refused operation changes nothing");
    }

    fn use_released(&mut self, bytes: &mut Bytes) {
        let Some(index) = bytes.pick(&self.released) else { return };
        let handle = self.released[index];
        assert!(matches!(self.tree.release(handle), Err(Error::StaleHandle { .. })));
        assert!(matches!(self.tree.release_components(handle, ["c0"]), Err(Error::StaleHandle { .. })));
        assert!(matches!(self.tree.drop_state(handle, 0, 1), Err(Error::StaleHandle { .. })));
        let grown = self.tree.insert(handle, &[1, 2, 3, 4, 5], Vec::<(String, _)>::new(), false);
        assert!(matches!(grown, Err(Error::StaleHandle { .. })));
    }

    fn offer_bad_values(&mut self, bytes: &mut Bytes) {
        let Some(index) = bytes.pick(&self.model.leases) else { return };
        let (handle, start) = (self.model.leases[index].handle, pages(&self.model.leases[index].path));
        let page = self.model.page_tokens as usize;
        let (start, added) = (start as i64, vec![9; 2 * page]);
        let run = |first_page: i64, count: i32| GivenRun { first_page, slots: (0..count).collect() };
        let far = i64::from(bytes.byte());
        let runs = match bytes.below(5) {
            0 => vec![run(start - 1, 1)],
            1 => vec![run(start + 1, 2)],
            2 => vec![run(start, 2), run(start + 1, 1)],
            3 => vec![run(i64::MAX - far, 2)],
            _ => vec![run(i64::MIN + far, 2)],
        };
        let values = vec![("c0".to_owned(), runs)];
        assert!(matches!(self.tree.insert(handle, &added, values, bytes.flag()), Err(Error::Config { .. })));
    }

    fn name_the_unknown(&mut self, bytes: &mut Bytes) {
        assert!(matches!(self.tree.component("nobody"), Err(Error::Config { .. })));
        let text = String::from_utf8_lossy(&bytes.0[..bytes.0.len().min(16)]);
        assert!(matches!(make_policy(&text), Ok(_) | Err(Error::Config { .. })));
        let Some(index) = bytes.pick(&self.model.leases) else { return };
        let handle = self.model.leases[index].handle;
        assert!(matches!(self.tree.release_components(handle, ["nobody"]), Err(Error::Config { .. })));
        let values = vec![("nobody".to_owned(), Vec::new())];
        assert!(matches!(self.tree.insert(handle, &[], values, bytes.flag()), Err(Error::Config { .. })));
    }

    /// A match of any age: refused, or its boundary is valid now.
    pub(crate) fn use_old_match(&mut self, bytes: &mut Bytes) {
        let Some(index) = bytes.pick(&self.matches) else { return };
        let (path, found) = self.matches.swap_remove(index);
        let page = u64::from(self.model.page_tokens);
        let (boundary, known) = (found.boundary_tokens / page, found.path_tokens / page);
        match self.tree.lease(&space(path[0]), found.boundary_tokens, found.node) {
            Ok(lease) => {
                let path = path[..=boundary as usize].to_vec();
                assert!(self.model.agreed_at(&path, boundary as usize), "a lease is at a valid boundary");
                self.take(&lease, path);
            }
            Err(error) => assert!(matches!(error, Error::StaleHandle { .. })),
        }
        let (place, end) = (KnownPath::from(&found), bytes.below(known as usize + 1));
        match self.tree.claim(&space(path[0]), place, end as i64 * page as i64) {
            Ok(lease) => {
                assert!(self.model.known(&path[..=end]) == end, "a claim is on a known path");
                self.take(&lease, path[..=end].to_vec());
            }
            Err(error) => assert!(matches!(error, Error::StaleHandle { .. })),
        }
    }
}
