//! `ringfence ps --watch`.

use std::time::{Duration, SystemTime};

use ringfence::Attachable;
use rustix::termios::{isatty, tcgetwinsize};

use super::{find, text};
use crate::args::PsArgs;
use crate::console;
use crate::failure::Result;
use crate::signals::Signals;

/// How long a view stands.
const INTERVAL: Duration = Duration::from_secs(1);

/// Shows the sandboxes until a signal comes or nobody reads any more.
pub(super) async fn run(args: &PsArgs, attachable: &dyn Attachable) -> Result<u8> {
    let signals = Signals::new()?;
    let terminal = isatty(rustix::stdio::stdout());
    if terminal && let Err(why) = console::stdout(b"\x1b[2J", None) {
        return why.status();
    }
    let mut tick = tokio::time::interval(INTERVAL);
    loop {
        let found = tokio::select! {
            biased;
            signal = signals.next() => return Ok(signal.status()),
            found = async {
                tick.tick().await;
                find(attachable, &args.labels).await
            } => found?,
        };
        let mut text = text(&found.sandboxes, args.quiet, SystemTime::now());
        for (handle, fault) in &found.silent {
            text.push_str(&console::printable(&format!("{handle}: {fault}")));
            text.push('\n');
        }
        let view = if terminal { redrawn(&text, size()) } else { format!("{text}\n") };
        if let Err(why) = console::stdout(view.as_bytes(), None) {
            return why.status();
        }
    }
}

/// Rows and columns; `None` where the terminal does not say.
fn size() -> Option<(usize, usize)> {
    let size = tcgetwinsize(rustix::stdio::stdout()).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row.into(), size.ws_col.into()))
}

/// Writes over what stands there, line by line, so that nothing flickers. A line that would go on in the next one, or a view that
/// would scroll, could not be written over.
fn redrawn(text: &str, size: Option<(usize, usize)>) -> String {
    let (rows, columns) = size.unwrap_or((24, 80));
    let total = text.lines().count();
    // The last row is kept for the cursor.
    let room = rows.saturating_sub(1);
    let shown = if total > room { room.saturating_sub(1) } else { total };
    let mut view = "\x1b[H".to_owned();
    for line in text.lines().take(shown) {
        view.extend(line.chars().take(columns));
        view.push_str("\x1b[K\n");
    }
    if total > room {
        view.push_str(&format!("... {} more\x1b[K\n", total - shown));
    }
    view.push_str("\x1b[J");
    view
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_fits_its_terminal() {
        assert_eq!(redrawn("ab\nc\n", Some((4, 9))), "\x1b[Hab\x1b[K\nc\x1b[K\n\x1b[J");
        assert_eq!(redrawn("abc\n", Some((4, 2))), "\x1b[Hab\x1b[K\n\x1b[J");
        let four = "1\n2\n3\n4\n";
        assert_eq!(redrawn(four, Some((4, 9))), "\x1b[H1\x1b[K\n2\x1b[K\n... 2 more\x1b[K\n\x1b[J");
        assert_eq!(redrawn(four, Some((5, 9))).matches('\n').count(), 4);
    }
}
