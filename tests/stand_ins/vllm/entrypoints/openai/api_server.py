"""Answers `python -m vllm.entrypoints.openai.api_server --model FOLDER --port N` as vLLM's server would, drawing each
token evenly from the whole vocabulary. It has a helper process, as vLLM has its engine, and tells both and what it
serves on its first line. With FAKE_VLLM=stubborn both ignore SIGTERM, with FAKE_VLLM=broken it ends before it answers.
"""

import argparse
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

IGNORE = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
SLEEP = "import time; time.sleep(600)"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        self.reply({"data": [{"id": self.server.name}]} if self.path == "/v1/models" else {})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.reply(chat(asked) if self.path.endswith("/chat/completions") else self.server.drawn(asked))

    def reply(self, answer):
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port, name, config, seed):
        super().__init__(("127.0.0.1", port), Handler)
        self.name, self.size, self.draw = name, config["vocab_size"], Random(seed)
        ends = config.get("eos_token_id")
        self.ends = set(ends if isinstance(ends, list) else [ends])

    def drawn(self, asked):
        choices = []
        for place in range(len(asked["prompt"])):
            tokens = []
            while len(tokens) < asked["max_tokens"] and not self.ends & {*tokens}:
                tokens.append(self.draw.randrange(self.size))
            logprobs = {"token_logprobs": [-math.log(self.size)] * len(tokens)}
            choices.append({"index": place, "token_ids": tokens, "logprobs": logprobs})
        return {"choices": choices}


def chat(asked):
    """A text that follows the schema, the same for the same messages."""
    draw = Random(json.dumps(asked["messages"]))
    text = json.dumps(instance(asked["response_format"]["json_schema"]["schema"], draw))
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    return {"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": usage}


def instance(schema, draw):
    """Something that the schema allows."""
    if "enum" in schema:
        return draw.choice(schema["enum"])
    if schema["type"] == "object":
        return {name: instance(one, draw) for name, one in schema["properties"].items()}
    if schema["type"] == "array":
        return [instance(schema["items"], draw)] * schema.get("minItems", 1)
    if schema["type"] in ("number", "integer"):
        return draw.randint(int(schema.get("minimum", 1)), int(schema.get("maximum", 10)))
    return "so"


def tensors(weights):
    """Names in a safetensors file."""
    size = int.from_bytes(weights[:8], "little")
    return json.loads(weights[8 : 8 + size]).keys() - {"__metadata__"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--served-model-name")
    parser.add_argument("--seed", type=int, default=0)
    given, _ = parser.parse_known_args()
    how = os.environ.get("FAKE_VLLM", "")
    if how == "broken":
        sys.exit("out of order")
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    helper = subprocess.Popen([sys.executable, "-c", IGNORE if how == "stubborn" else SLEEP])
    config = json.loads((given.model / "config.json").read_text())
    weights = (given.model / "model.safetensors").read_bytes()
    told = {
        "pids": [os.getpid(), helper.pid],
        "weights": hashlib.sha256(weights).hexdigest(),
        "names": sorted(tensors(weights)),
        "tokenizer": (given.model / "tokenizer.json").exists(),
    }
    print(json.dumps(told | {"words": sys.argv[1:]}), flush=True)
    Server(given.port, given.served_model_name or str(given.model), config, given.seed).serve_forever()


if __name__ == "__main__":
    main()
