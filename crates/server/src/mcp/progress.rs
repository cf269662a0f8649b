//! Tells the client how a long call gets on.

use std::convert::Infallible;
use std::time::Duration;

use ringfence::clip::format_size;
use ringfence::toolset::Watch;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// How often progress is told. The first time after one interval: most calls are over by then.
const INTERVAL: Duration = Duration::from_secs(1);

/// Tells the client again and again what `watch` shows, until it is dropped.
///
/// `progress` is the seconds since the call arrived, which rise strictly as the protocol demands. There is no total: nobody knows
/// how long a command takes, and its timeout is no promise.
pub(super) async fn report(peer: &Peer<RoleServer>, token: ProgressToken, watch: &Watch) -> Infallible {
    let arrived = Instant::now();
    let mut ticks = interval_at(arrived + INTERVAL, INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let elapsed = arrived.elapsed();
        let mut progress = ProgressNotificationParam::new(token.clone(), elapsed.as_secs_f64());
        progress.message = Some(message(elapsed, watch));
        if let Err(error) = peer.notify_progress(progress).await {
            // The client is gone, and its going ends the call in a moment.
            tracing::debug!("progress not told: {error}");
            return std::future::pending().await;
        }
    }
}

fn message(elapsed: Duration, watch: &Watch) -> String {
    let glimpse = watch.glimpse();
    let seconds = elapsed.as_secs();
    if !glimpse.started {
        return format!("{seconds} s, waiting for the sandbox, or for an earlier call to end");
    }
    let size = format_size(glimpse.output_bytes);
    match glimpse.last_line {
        Some(line) => format!("{seconds} s, {size} of output: {line}"),
        None => format!("{seconds} s, no output so far"),
    }
}
