// The official TypeScript client, over stdio. Argument: the program.

import { readFileSync, readdirSync, mkdtempSync, readlinkSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { isDeepStrictEqual, inspect } from "node:util";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { McpError } from "@modelcontextprotocol/sdk/types.js";

const binary = realpathSync(process.argv[2]);
const SOON_MS = 20_000;
const GONE_MS = 3_000;

type Structure = Record<string, unknown>;

function expect(what: string, expected: unknown, got: unknown) {
  if (!isDeepStrictEqual(expected, got)) {
    throw new Error(`${what}\n  expected: ${inspect(expected)}\n  got:      ${inspect(got)}`);
  }
}

function expectIn(what: string, part: string, whole: string) {
  if (!whole.includes(part)) throw new Error(`${what}\n  expected: ${inspect(part)} in it\n  got:      ${inspect(whole)}`);
}

async function until(what: string, holds: () => boolean, ms = SOON_MS) {
  const end = Date.now() + ms;
  while (!holds()) {
    if (Date.now() > end) throw new Error(`${what}: not so within ${ms / 1000} s`);
    await pause(10);
  }
}

/** Returns the processes for which `is` holds, given their folder in /proc. */
function processes(is: (folder: string) => boolean): string[] {
  return readdirSync("/proc").filter((name) => {
    try {
      return /^\d+$/.test(name) && is(`/proc/${name}`);
    } catch {
      return false;
    }
  });
}

const sleeps = (seconds: string) =>
  processes((folder) => readFileSync(`${folder}/cmdline`, "utf8") === `sleep\0${seconds}\0`);
const servers = (cwd: string) =>
  processes((folder) => readlinkSync(`${folder}/cwd`) === cwd && readlinkSync(`${folder}/exe`) === binary);

let markers = 0;
const marker = () => `3600.${process.pid}6${String(++markers).padStart(3, "0")}`;

const call = (client: Client, name: string, args: Structure) => client.callTool({ name, arguments: args });

type Result = Awaited<ReturnType<typeof call>>;

function text(result: Result): string {
  const content = result.content as { type: string; text: string }[];
  expect("the content", ["text"], content.map((block) => block.type));
  return content[0].text;
}

function structure(result: Result): Structure {
  expect("isError", [false, true], [result.isError, result.structuredContent !== undefined]);
  return result.structuredContent as Structure;
}

const checks: Record<string, (client: Client) => Promise<void>> = {
  async opening(client) {
    const { name, title } = client.getServerVersion() ?? {};
    expect("the server", { name: "ringfence", title: "Ringfence sandbox" }, { name, title });
    expect("the capabilities", { tools: {} }, client.getServerCapabilities());
    expectIn("the instructions", "sandbox", client.getInstructions() ?? "");
  },

  async listing(client) {
    const { tools } = await client.listTools();
    expect("the tools", ["run_command", "read_file", "write_file", "list_directory"], tools.map((tool) => tool.name));
    expect("the read-only ones", ["read_file", "list_directory"],
      tools.filter((tool) => tool.annotations?.readOnlyHint).map((tool) => tool.name));
    expect("the same, asked again", JSON.stringify(tools), JSON.stringify((await client.listTools()).tools));
  },

  async "the four tools"(client) {
    // The client holds each structure against the schema of the output, once it has listed the tools.
    await client.listTools();
    const written = await call(client, "write_file", { path: "a/b.txt", content: "one\ntwo\n" });
    expect("written", { path: "a/b.txt", bytes_written: 8 }, structure(written));
    const read = await call(client, "read_file", { path: "a/b.txt", offset: 2 });
    expect("read", ["two", "two"], [text(read), structure(read).content]);
    const listed = await call(client, "list_directory", { path: "a" });
    expectIn("listed", "b.txt", text(listed));
    expectIn("listed", "b.txt", JSON.stringify(structure(listed)));
    const ran = await call(client, "run_command", { command: "cat a/b.txt; exit 3" });
    expect("run, as text", "[stdout]\none\ntwo\n[exit code: 3]", text(ran));
    const { stdout, exit_code } = structure(ran);
    expect("run", ["one\ntwo", 3], [stdout, exit_code]);
  },

  async timeout(client) {
    const seconds = marker();
    const result = await call(client, "run_command", { command: `echo on; sleep ${seconds}`, timeout_seconds: 1 });
    const { timed_out, stdout } = structure(result);
    expect("the structure", [true, "on"], [timed_out, stdout]);
    expectIn("the text", "timed out after 1s", text(result));
    expect("what still runs", [], sleeps(seconds));
  },

  async "missing file"(client) {
    const result = await call(client, "read_file", { path: "no/such.txt" });
    expect("isError", [true, undefined], [result.isError, result.structuredContent]);
    expectIn("the text", "no/such.txt", text(result));
  },

  async "wrong type"(client) {
    const result = await call(client, "run_command", { command: true });
    expect("isError", true, result.isError);
    expectIn("the text", "`command` must be a string", text(result));
  },

  async "unknown tool"(client) {
    const error = await call(client, "reboot", {}).catch((error: unknown) => error);
    expect("the error", [true, -32602], [error instanceof McpError, (error as McpError).code]);
  },

  async progress(client) {
    const steps: number[] = [];
    const messages: string[] = [];
    const onprogress = (step: { progress: number; message?: string }) => {
      steps.push(step.progress);
      messages.push(step.message ?? "");
    };
    // Progress is what keeps a call alive beyond the client's own limit, where it is told so.
    const options = { onprogress, timeout: 2_500, resetTimeoutOnProgress: true };
    const params = { name: "run_command", arguments: { command: "for i in 1 2 3 4 5 6 7; do echo line $i; sleep 0.5; done" } };
    const result = await client.callTool(params, undefined, options);
    expect("the exit code", 0, structure(result).exit_code);
    expect("steps that rise", steps, [...new Set(steps)].sort((a, b) => a - b));
    // A step a second: three, and some more where the machine is busy.
    expect("a few steps", true, steps.length >= 2 && steps.length <= 6);
    expectIn("the last message", "line ", messages.at(-1) ?? "");
  },

  async cancellation(client) {
    const seconds = marker();
    await call(client, "run_command", { command: "echo kept > file" });
    const abort = new AbortController();
    const params = { name: "run_command", arguments: { command: `setsid sleep ${seconds} & trap '' TERM; sleep ${seconds}` } };
    const cancelled = client.callTool(params, undefined, { signal: abort.signal }).catch((error: unknown) => error);
    await until("the command runs", () => sleeps(seconds).length === 2);
    abort.abort("enough");
    expect("the call fails", true, (await cancelled) instanceof Error);
    await until("the command is gone", () => sleeps(seconds).length === 0, GONE_MS);
    expect("the sandbox afterwards", "kept", structure(await call(client, "run_command", { command: "cat file" })).stdout);
  },

  async "closing during a command"(client) {
    const seconds = marker();
    const ended = call(client, "run_command", { command: `setsid sleep ${seconds} & sleep ${seconds}` }).catch(() => {});
    await until("the command runs", () => sleeps(seconds).length === 2);
    await client.close();
    await ended;
    await until("the command is gone", () => sleeps(seconds).length === 0, GONE_MS);
  },
};

let passed = 0;
let failed = 0;
const begun = Date.now();
for (const [name, check] of Object.entries(checks)) {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "ringfence-typescript-")));
  let said = "";
  try {
    const client = new Client({ name: "ringfence-checks", version: "1.0.0" });
    const transport = new StdioClientTransport({
      command: binary, args: ["mcp"], cwd: folder, stderr: "pipe",
      env: { PATH: process.env.PATH ?? "", HOME: folder, XDG_CONFIG_HOME: folder },
    });
    transport.stderr?.on("data", (data) => (said += data));
    await client.connect(transport, { timeout: SOON_MS });
    try {
      await check(client);
    } finally {
      await client.close();
    }
    await until("the server is gone", () => servers(folder).length === 0, GONE_MS);
    passed += 1;
  } catch (error) {
    failed += 1;
    console.log(`FAILED typescript: ${name}\n  ${error instanceof McpError ? error.stack : (error as Error).message}`);
    for (const line of said.split("\n").filter(Boolean)) console.log(`  server: ${line}`);
  } finally {
    rmSync(folder, { recursive: true });
  }
}
console.log(`typescript: ${passed} passed, ${failed} failed in ${((Date.now() - begun) / 1000).toFixed(1)} s`);
process.exit(failed ? 1 : 0);
