"""A model that follows a script, on loopback: it calls one tool after the other, then says that it is done.

It speaks Anthropic Messages, OpenAI Responses and OpenAI Chat Completions, as streams, and keeps every request.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DONE = "all done"


class Model:
    """`with Model(steps) as model:` serves on `model.port`.

    A step is what a tool's name ends in and the arguments. `requests` are the bodies, `results` what the last one that was
    answered with DONE said of each step.
    """

    def __init__(self, steps):
        self.steps = steps
        self.requests = []
        self.results = None

    def __enter__(self):
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.answer("application/json", json.dumps({"data": [], "models": []}))

            do_HEAD = do_GET

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or "{}")
                path = self.path.split("?")[0]
                model.requests.append(body)
                dialect = next((d for end, d in DIALECTS.items() if path.endswith(end)), None)
                if dialect is None:
                    self.answer("application/json", json.dumps({"input_tokens": 1}))
                else:
                    self.answer("text/event-stream", "".join(dialect(model, body)))

            def answer(self, kind, text):
                data = text.encode()
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def next(self, results, names):
        """Returns the name of the next tool and its arguments, or nothing when the script is at its end."""
        if len(results) < len(self.steps):
            wanted, arguments = self.steps[len(results)]
            # Titles and summaries are asked for without tools.
            return next(((name, json.dumps(arguments)) for name in names if name.endswith(wanted)), None)
        self.results = results
        return None


def event(data, name=None):
    return (f"event: {name}\n" if name else "") + f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"


def messages(model, body):
    """Anthropic Messages."""
    results = [
        (block["content"], block.get("is_error", False))
        for message in body["messages"] if isinstance(message["content"], list)
        for block in message["content"] if block.get("type") == "tool_result"
    ]
    step = model.next(results, [tool["name"] for tool in body.get("tools", [])])
    if step:
        stop = "tool_use"
        block = {"type": "tool_use", "id": f"toolu_{len(results)}", "name": step[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": step[1]}
    else:
        stop = "end_turn"
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": DONE}
    usage = {"input_tokens": 1, "output_tokens": 1}
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": []}
    for data in [
        {"type": "message_start", "message": {**start, "stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]:
        yield event(data, data["type"])


def responses(model, body):
    """OpenAI Responses. A tool stands by itself or in a namespace."""
    results = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
    homes = {
        inner.get("name", ""): {} if inner is tool else {"namespace": tool["name"]}
        for tool in body.get("tools", []) for inner in tool.get("tools", [tool])
    }
    step = model.next(results, homes)
    if step:
        call = f"call_{len(results)}"
        item = {"type": "function_call", "id": f"fc_{call}", "call_id": call, "name": step[0], "arguments": step[1]}
        item |= homes[step[0]]
    else:
        item = {
            "type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": DONE}],
        }
    usage = {
        "input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None,
        "total_tokens": 2,
    }
    for data in [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}},
    ]:
        yield event(data, data["type"])


def completions(model, body):
    """OpenAI Chat Completions."""
    results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    step = model.next(results, [tool["function"]["name"] for tool in body.get("tools", [])])
    if step:
        finish = "tool_calls"
        function = {"name": step[0], "arguments": step[1]}
        call = {"index": 0, "id": f"call_{len(results)}", "type": "function", "function": function}
        delta = {"role": "assistant", "tool_calls": [call]}
    else:
        finish = "stop"
        delta = {"role": "assistant", "content": DONE}
    chunk = {"id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    for data, reason in [(delta, None), ({}, finish)]:
        yield event({**chunk, "choices": [{"index": 0, "delta": data, "finish_reason": reason}]})
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    yield event({**chunk, "choices": [], "usage": usage})
    yield event("[DONE]")


DIALECTS = {"/messages": messages, "/responses": responses, "/chat/completions": completions}
