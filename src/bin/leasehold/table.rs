//! What is shown to people.

use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::{LeaseStatus, machine::Wall};

use super::life::{Eyes, Life, is_unreadable};
use super::wait::named;

const HEAD: [&str; 6] = ["KEY", "MODE", "TOKEN", "EXPIRES", "WAITING", "HOLDER"];

/// A line for each holder of each key, below a head.
pub(crate) fn table(listed: &[LeaseStatus], eyes: &Eyes) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    for status in listed {
        rows.extend(lines(status, eyes));
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(widths) {
            text.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(&row[5]);
        text.push('\n');
    }
    text
}

fn lines(status: &LeaseStatus, eyes: &Eyes) -> Vec<[String; 6]> {
    let waiting = status.queue.iter().filter(|waiter| eyes.waiter(waiter) != Life::Dead).count();
    let (key, waiting) = (printable(status.key.as_str()), waiting.to_string());
    if status.holders.is_empty() {
        let none = || "-".to_owned();
        return vec![[key, none(), none(), none(), waiting, "nobody yet".to_owned()]];
    }
    let line = |holder: &leasehold::HolderStatus| {
        let mode = holder.mode.name().to_owned();
        let token = holder.token.as_u64().to_string();
        let expires = match eyes.holder(holder) {
            Life::Dead => "dead".to_owned(),
            Life::Alive | Life::Silent => expiry(holder.expires_at),
        };
        [key.clone(), mode, token, expires, waiting.clone(), named(holder.holder, &holder.instance, &holder.info)]
    };
    status.holders.iter().map(line).collect()
}

/// When a lease runs out unless it is renewed, as far as clocks agree.
pub(crate) fn expiry(moment: Wall) -> String {
    if is_unreadable(moment) {
        return "unknown".to_owned();
    }
    let (moment, now) = (moment.as_ms(), wall_ms());
    if moment >= now { format!("in {} s", (moment - now) / 1000) } else { format!("{} s ago", (now - moment) / 1000) }
}

#[expect(clippy::disallowed_methods, reason = "for display only")]
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Text that others wrote must not command the terminal.
pub(crate) fn printable(text: &str) -> String {
    let escape = |letter: char| if commands(letter) { letter.escape_default().to_string() } else { letter.into() };
    text.chars().map(escape).collect()
}

/// Whether a terminal does something else than to show the letter: control it, break the line, or turn its direction, so that one
/// name looks like another.
pub(crate) fn commands(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
