//! The fuzzer's bytes as choices.

/// Reads choices off the front; zeros when nothing is left.
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    /// Whether something is left.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// A number below `end`, which is at most 256 and not 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// A yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// One of a list, by its index; `None` of an empty one.
    pub fn pick<T>(&mut self, of: &[T]) -> Option<usize> {
        let byte = usize::from(self.byte());
        byte.checked_rem(of.len())
    }
}
