//! What identifies a cached prefix outside of the tree: namespaces and the hash chain (rules K-3, K-4).

use std::fmt;

use sha2::{Digest, Sha256};

const KEY_FORMAT: &[u8] = b"graftline/key/1";

/// Chained SHA-256 key of one page, never cut.
pub type PageKey = [u8; 32];

/// What two prefixes of equal tokens must share before one may reuse the other's values (rule K-3).
///
/// Ordered by its fields, as `dump` reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace {
    /// Fingerprint of the model: weights, config, dtype.
    pub model: String,
    /// Grows with every change of the weights at run time.
    pub weight_epoch: i64,
    /// Identity of an adapter; empty for none.
    pub adapter: String,
    /// Isolates tenants; empty for none.
    pub salt: String,
}

impl Namespace {
    /// Start of the hash chain: every field framed by its name, type and length.
    #[must_use]
    pub fn seed(&self) -> PageKey {
        let epoch = self.weight_epoch.to_string();
        let mut digest = Sha256::new_with_prefix(KEY_FORMAT);
        for (name, kind, data) in [
            ("model", "str", &self.model),
            ("weight_epoch", "int", &epoch),
            ("adapter", "str", &self.adapter),
            ("salt", "str", &self.salt),
        ] {
            digest.update(format!("{name}:{kind}:{}:", data.len()));
            digest.update(data);
        }
        digest.finalize().into()
    }
}

/// The text that Python's `repr` gives, so that dumps of both cores are equal.
impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Namespace(model=")?;
        write_quoted(f, &self.model)?;
        write!(f, ", weight_epoch={}, adapter=", self.weight_epoch)?;
        write_quoted(f, &self.adapter)?;
        f.write_str(", salt=")?;
        write_quoted(f, &self.salt)?;
        f.write_str(")")
    }
}

/// A string in quotes with Python's escapes.
fn write_quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    write!(f, "{quote}")?;
    for c in text.chars() {
        match c {
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            '\\' => f.write_str("\\\\")?,
            _ if c == quote => write!(f, "\\{c}")?,
            _ if is_printable(c) => write!(f, "{c}")?,
            _ if u32::from(c) < 0x100 => write!(f, "\\x{:02x}", u32::from(c))?,
            _ if u32::from(c) < 0x1_0000 => write!(f, "\\u{:04x}", u32::from(c))?,
            _ => write!(f, "\\U{:08x}", u32::from(c))?,
        }
    }
    write!(f, "{quote}")
}

/// Whether a character stands for itself: asked of Rust's own tables, which know the same categories as
/// Python's. Behind a letter, `escape_debug` leaves combining marks alone, as Python does.
fn is_printable(c: char) -> bool {
    let mut text = [0; 5];
    text[0] = b'a';
    let length = c.encode_utf8(&mut text[1..]).len();
    let text = str::from_utf8(&text[..=length]).expect("a letter and a character");
    matches!(c, '\'' | '"') || text.escape_debug().nth(1) == Some(c)
}

/// Keys of consecutive pages that follow on `parent` (rule K-4).
pub(crate) fn page_keys(parent: PageKey, tokens: &[u32], page_tokens: usize) -> Vec<PageKey> {
    let mut keys = Vec::with_capacity(tokens.len() / page_tokens);
    let mut before = parent;
    let mut data = Vec::with_capacity(page_tokens * 4);
    for page in tokens.chunks_exact(page_tokens) {
        data.clear();
        data.extend(page.iter().flat_map(|token| token.to_le_bytes()));
        before = Sha256::new_with_prefix(before).chain_update(&data).finalize().into();
        keys.push(before);
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(key: &PageKey) -> String {
        key.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn seeds_and_pages_are_those_of_the_python_core() {
        let empty = Namespace::default();
        assert_eq!(hex(&empty.seed()), SEED_EMPTY);
        let named =
            Namespace { model: "m".into(), weight_epoch: -3, adapter: "a\u{e9}".into(), salt: "s".into() };
        assert_eq!(hex(&named.seed()), SEED_NAMED);
        let keys = page_keys(empty.seed(), &[1, 2, 3, u32::MAX], 2);
        assert_eq!(keys.iter().map(hex).collect::<Vec<_>>(), [PAGE_0, PAGE_1]);
    }

    #[test]
    fn text_is_that_of_repr() {
        let text = |salt: &str| Namespace { salt: salt.into(), ..Namespace::default() }.to_string();
        assert_eq!(text("a"), "Namespace(model='', weight_epoch=0, adapter='', salt='a')");
        assert!(text("it's").ends_with("salt=\"it's\")"));
        assert!(text("'\"").ends_with(r#"salt='\'"')"#));
        assert!(
            text("\0\n\u{e9}\u{a0}\u{200b}\u{e000}\u{1f600}\u{10ffff}e\u{301}")
                .ends_with("salt='\\x00\\n\u{e9}\\xa0\\u200b\\ue000\u{1f600}\\U0010ffffe\u{301}')")
        );
    }

    const SEED_EMPTY: &str = "cbffc75cfa969c0733ad3ccee2c352cb9fb6ff28bffcc1f0511974a5457ed65c";
    const SEED_NAMED: &str = "7bf9c286ce9aef809a8c5c2b8ca79226d53616d2826e153f5f8bc74ae9a71543";
    const PAGE_0: &str = "c69403670d848c69622acb9b157773e7770b83bee60704eb9f60447157085f18";
    const PAGE_1: &str = "fe169b66c97db99c5c4643e0433a0f639b0af3f981991e22f74361282958f252";
}
