//! Insertions.

use graftline_core::{GivenRun, Insertion, Piece};

use crate::bytes::Bytes;
use crate::model::{Path, pages};
use crate::player::Player;

type Given = Vec<Vec<Option<i32>>>;

impl Player {
    pub(crate) fn insert(&mut self, bytes: &mut Bytes) {
        let Some(index) = bytes.pick(&self.model.leases) else { return };
        let (handle, begin) = (self.model.leases[index].handle, self.model.leases[index].path.clone());
        let path = self.longer(&begin, bytes);
        let (start, known) = (pages(&begin), self.model.known(&path));
        let given = self.given(&path, start, known, bytes);
        let move_lease = bytes.flag();
        let values = given.iter().enumerate().map(|(c, slots)| (format!("c{c}"), runs(start, slots, bytes)));
        let values = values.collect();
        let added = self.tokens(&path)[start * self.model.page_tokens as usize..].to_vec();
        let done = self.tree.insert(handle, &added, values, move_lease).expect("good values");
        assert_eq!(done.boundary_tokens, pages(&path) as u64 * u64::from(self.model.page_tokens));
        assert_eq!(done.new_pages as usize, pages(&path) - known.max(start));
        self.book(&path, start, &given, &done);
        if let Some(lease) = &done.lease {
            self.model.leases.swap_remove(index);
            self.released.push(handle);
            self.take(lease, path);
        }
        assert_eq!(done.lease.is_some(), move_lease);
    }

    fn longer(&self, begin: &Path, bytes: &mut Bytes) -> Path {
        let mut path = begin.clone();
        let kinds = [2, 3, 24][bytes.below(3)];
        for _ in 0..bytes.below(7) {
            path.push(bytes.below(kinds) as u8);
        }
        path
    }

    /// A slot for some pages of the path from `start` on; a prefix-closed component gives all that is new.
    fn given(&mut self, path: &Path, start: usize, known: usize, bytes: &mut Bytes) -> Given {
        let mut given = Given::new();
        for rule in self.model.rules.clone() {
            let mask = bytes.byte();
            let slot = |page: usize| {
                let wanted = mask >> (page - start) & 1 == 1 || (rule.prefix_closed() && page >= known);
                wanted.then(|| {
                    self.next_slot += 1;
                    self.next_slot
                })
            };
            given.push((start..pages(path)).map(slot).collect());
        }
        given
    }

    /// What was held before is a duplicate, the rest is adopted.
    fn book(&mut self, path: &Path, start: usize, given: &Given, done: &Insertion) {
        for (component, slots) in given.iter().enumerate() {
            let (mut adopted, mut duplicates) = (Vec::new(), Vec::new());
            for (page, slot) in (start..).zip(slots) {
                let Some(slot) = *slot else { continue };
                if self.model.slot(component, path, page).is_some() {
                    duplicates.push((page, slot));
                } else {
                    adopted.push((page, slot));
                    self.model.store(component, &path[..page + 2], slot);
                }
            }
            assert_eq!(told(&done.adopted[component]), adopted);
            assert_eq!(told(&done.duplicates[component]), duplicates);
        }
    }
}

fn told(pieces: &[Piece]) -> Vec<(usize, i32)> {
    pieces.iter().flat_map(|run| (run.first_page as usize..).zip(run.slots.iter().copied())).collect()
}

/// The slots as runs, pieced as the bytes say.
fn runs(start: usize, slots: &[Option<i32>], bytes: &mut Bytes) -> Vec<GivenRun> {
    let mut runs: Vec<(i64, Vec<i32>)> = Vec::new();
    let cuts = bytes.byte();
    for (index, slot) in slots.iter().enumerate() {
        let Some(slot) = *slot else { continue };
        let page = (start + index) as i64;
        match runs.last_mut() {
            Some((first, run)) if *first + run.len() as i64 == page && cuts >> (index % 8) & 1 == 0 => {
                run.push(slot);
            }
            _ => runs.push((page, vec![slot])),
        }
    }
    runs.into_iter().map(|(first_page, slots)| GivenRun { first_page, slots: slots.into() }).collect()
}
