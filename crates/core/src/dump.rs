//! The tree as text: equal trees give equal texts, whatever core made them (rule D-1).

use std::fmt::Write;

use crate::node::{Holding, NodeId};
use crate::places::Places;
use crate::tree::Tree;

impl Tree {
    /// One line a node, children by their first page, namespaces in the order of their fields.
    #[must_use]
    pub fn dump(&self) -> String {
        let mut text = String::new();
        let mut roots: Vec<_> = self.roots.iter().collect();
        roots.sort_unstable();
        for (namespace, &root) in roots {
            line(&mut text, format_args!("{namespace}"));
            let mut pending = vec![(root, 0)];
            while let Some((id, depth)) = pending.pop() {
                let node = &self.nodes[id];
                if node.parent.is_some() || node.leases != 0 {
                    line(&mut text, format_args!("{:1$}{2}", "", 2 * (depth + 1), self.node_text(id)));
                }
                let mut children: Vec<NodeId> = self.children_of(id).collect();
                children.sort_unstable_by(|&a, &b| self.nodes[b].tokens.cmp(&self.nodes[a].tokens));
                let below = depth + usize::from(node.parent.is_some());
                pending.extend(children.into_iter().map(|child| (child, below)));
            }
        }
        text
    }

    /// Place, tokens' checksum, agreed boundaries and holdings of one node.
    fn node_text(&self, id: NodeId) -> String {
        let node = &self.nodes[id];
        let bytes: Vec<u8> = node.tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        let mut text = format!("{}..{} #{:08x}", node.start, node.end(), crc32fast::hash(&bytes));
        if node.shallowest != 0 {
            append(&mut text, format_args!(" valid {}..{}", node.shallowest, node.deepest));
        }
        if node.leases != 0 {
            append(&mut text, format_args!(" leases {}", node.leases));
        }
        let sessions = self.sessions.at(id).count();
        if sessions != 0 {
            append(&mut text, format_args!(" sessions {sessions}"));
        }
        for (component, spec) in self.components.iter().enumerate() {
            holding_text(&mut text, &spec.name, self.holding(id, component));
            if let Some(references) = self.references(id, component) {
                append(&mut text, format_args!(" | {} references {}", spec.name, places_text(references)));
            }
        }
        text
    }
}

/// Run, slots, locks and last use of one holding; nothing when there is nothing to tell.
fn holding_text(text: &mut String, name: &str, holding: &Holding) {
    if !holding.is_empty() {
        let slots: Vec<String> = holding.slots.iter().map(i32::to_string).collect();
        let (first, end, slots) = (holding.first, holding.end(), slots.join(" "));
        append(text, format_args!(" | {name} {first}..{end} [{slots}] @{}", holding.last_tick));
    }
    if !holding.locks.is_empty() {
        append(text, format_args!(" | {name} locks {}", places_text(&holding.locks)));
    }
}

/// What counts from a page on: `2x1 5x3` is 1 from page 2 on, 3 from page 5 on.
fn places_text(places: &Places) -> String {
    let places: Vec<String> = places.iter().map(|(page, count)| format!("{page}x{count}")).collect();
    places.join(" ")
}

fn append(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("text takes everything");
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    append(text, what);
    text.push('\n');
}
