use super::support::{Box, Said};

#[tokio::test]
async fn bk_10_a_command_runs_and_its_failure_is_a_result() {
    let sandbox = Box::new().await;
    assert_eq!(sandbox.run("echo hello").await, Said::ok("hello\n"));
    let failed = sandbox.run("echo bad >&2; exit 3").await;
    assert_eq!(failed.ending, ringfence_core::Ending::Exited(3));
    assert_eq!(failed.stderr, "bad\n");
}
