//! Orders of eviction by name.

use super::{Cost, Gittins, Lfu, Lru, Policy, Priority, Session, Slru};
use crate::error::{Error, Result};

const DIGITS_MAX: usize = 18;

/// A new policy: `lru`, `lfu`, `lfu(ticks)`, `slru`, `slru(uses)`, `priority`, `cost`, `gittins`,
/// `session` or `session(base)`; the base of `session` is `lru` where none is told.
///
/// # Errors
/// Another text, or a number that the policy cannot take.
pub fn make_policy(text: &str) -> Result<Box<dyn Policy>> {
    let (name, argument) = parts(text.trim());
    if name == "session" {
        let base = argument.unwrap_or("lru");
        if parts(base.trim()).0 != "session" {
            return Ok(Box::new(Session::new(make_policy(base)?)));
        }
    }
    let policy: Box<dyn Policy> = match (name, argument, argument.and_then(number)) {
        ("lru", None, _) => Box::new(Lru),
        ("priority", None, _) => Box::new(Priority),
        ("cost", None, _) => Box::new(Cost::default()),
        ("gittins", None, _) => Box::new(Gittins::default()),
        ("lfu", None, _) => Box::new(Lfu::default()),
        ("slru", None, _) => Box::new(Slru::default()),
        ("lfu", _, Some(ticks)) => Box::new(Lfu::new(ticks)?),
        ("slru", _, Some(uses)) => Box::new(Slru::new(uses)?),
        _ => {
            return Err(Error::Config {
                message: format!("unknown order of eviction '{text}'"),
                hint: "choose lru, lfu, lfu(ticks), slru, slru(uses), priority, cost, gittins, \
                       session or session(one of these)"
                    .to_owned(),
            });
        }
    };
    Ok(policy)
}

/// The name, and what stands between its brackets.
fn parts(text: &str) -> (&str, Option<&str>) {
    match text.strip_suffix(')').and_then(|rest| rest.split_once('(')) {
        Some((name, argument)) => (name, Some(argument)),
        None => (text, None),
    }
}

fn number(text: &str) -> Option<u64> {
    let plain = text.len() <= DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::make_policy;

    #[test]
    fn texts_are_made_again_from_policies() {
        for text in
            ["lru", "lfu", "lfu(9)", "slru", "slru(3)", "priority", "cost", "gittins", "session(lfu(9))"]
        {
            assert_eq!(make_policy(text).expect("a known name").text(), text);
        }
        assert_eq!(make_policy(" session ").expect("a known name").text(), "session(lru)");
        assert_eq!(make_policy("session( cost )").expect("a known name").text(), "session(cost)");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "mru",
            "lru()",
            "lru(1)",
            "lfu(x)",
            "lfu(-1)",
            "lfu(+1)",
            "lfu(0)",
            "slru(0)",
            "session(session)",
            "session()",
            "lfu(1",
        ] {
            assert!(make_policy(text).is_err(), "{text}");
        }
    }
}
