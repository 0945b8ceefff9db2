//! Drives every operation of the tree core from bytes; a model tells what must come of each.

mod bytes;
mod grow;
mod model;
mod player;
mod stale;
mod talk;

use bytes::Bytes;
use player::Player;

const OPERATIONS_MAX: usize = 200;
const EVERY: usize = 4;

/// One run: the first bytes choose components, page and policy, the rest are operations.
///
/// # Panics
/// The tree and the model differ, or the tree contradicts itself.
pub fn play(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut player = Player::new(&mut bytes);
    for number in 1..=OPERATIONS_MAX {
        if !bytes.any() {
            break;
        }
        player.step(&mut bytes);
        if number % EVERY == 0 {
            player.check();
        }
    }
    player.finish();
}
