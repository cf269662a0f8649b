//! A tool call through `ringfence mcp` on standard input and output.

use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::bench::{Bench, shell};
use crate::rounds::{Rounds, milliseconds};
use crate::table::{Drawn, Row, Table, Target};

/// The version of the protocol that is spoken.
const PROTOCOL: &str = "2025-11-25";

pub(super) fn over_stdio(bench: &Bench) -> Result<Table> {
    let mut table = Table {
        title: "A tool call through MCP",
        drawn: Drawn::Below,
        unit: "ms",
        rows: Vec::new(),
        notes: Vec::new(),
    };
    if !has_server(&bench.binary) {
        table.notes.push("Not measured: this `ringfence` has no command `mcp`.".to_owned());
        return Ok(table);
    }
    let sandbox = bench.create()?.0;
    let server = RefCell::new(Server::start(&bench.binary)?);
    let (bare, call) = (Cell::new(0.0), Cell::new(0.0));
    let mut rounds = Rounds::default();
    rounds.add(Row::ours("`run_command`, the shell text `true`, in process"), || {
        bare.set(bench.run(&sandbox, shell("true")?)?);
        Ok(bare.get())
    });
    rounds.add(Row::ours("the tool `run_command` with the same text").drawn("tool call through MCP"), || {
        call.set(milliseconds(server.borrow_mut().call("true")?));
        Ok(call.get())
    });
    rounds
        .add(Row::ours("what the tool call adds, round by round").target(Target::AtMost(1.0, None)), || {
            Ok(call.get() - bare.get())
        });
    table.rows = rounds.run(bench.rounds(200))?;
    bench.destroy(&sandbox)?;
    Ok(table)
}

fn has_server(binary: &Path) -> bool {
    let mut help = Command::new(binary);
    help.args(["mcp", "--help"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    help.status().is_ok_and(|status| status.success())
}

/// A running server, and both ends of the conversation.
#[derive(Debug)]
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    requests: u64,
}

impl Server {
    fn start(binary: &Path) -> Result<Self> {
        let mut child = Command::new(binary)
            .arg("mcp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("start `ringfence mcp`")?;
        let input = child.stdin.take().context("the server's input")?;
        let output = BufReader::new(child.stdout.take().context("the server's output")?);
        let mut server = Self { child, input, output, requests: 0 };
        let client = json!({"name": "ringfence-bench", "version": env!("CARGO_PKG_VERSION")});
        let hello = json!({"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client});
        server.ask("initialize", &hello)?;
        server.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(server)
    }

    /// Calls the tool, which has to succeed.
    fn call(&mut self, command: &str) -> Result<Duration> {
        let call = json!({"name": "run_command", "arguments": {"command": command}});
        let begun = Instant::now();
        let result = self.ask("tools/call", &call)?;
        let took = begun.elapsed();
        if result["isError"].as_bool().unwrap_or(false) {
            bail!("the tool call failed: {result}");
        }
        Ok(took)
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.requests += 1;
        let id = self.requests;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line)? == 0 {
                bail!("the server ended");
            }
            let mut message: Value = serde_json::from_str(&line)?;
            // Whatever else it says meanwhile are notifications.
            if message["id"] == json!(id) {
                if message["result"].is_null() {
                    bail!("{method} failed: {line}");
                }
                return Ok(message["result"].take());
            }
        }
    }

    fn say(&mut self, message: &Value) -> Result<()> {
        let line = format!("{message}\n");
        Ok(self.input.write_all(line.as_bytes())?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its sandbox ends with it, however it ends.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
