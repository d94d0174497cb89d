"""Stands in for `vllm serve`: an HTTP server whose engine lives in a child process."""

import argparse
import json
import multiprocessing
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def core(sizes, asked, answered):
    """The engine core: runs batches of the sizes that it is asked for."""
    from vllm import LLM, SamplingParams

    engine = LLM("tiny", compilation_config={"cudagraph_capture_sizes": sizes})
    answered.put("ready")
    while (tokens := asked.get()) is not None:
        batch = [tokens]
        while not asked.empty():
            batch.append(asked.get())
        engine.generate([{"prompt_token_ids": [1] * 16}] * len(batch), SamplingParams(max(batch)))
        for _ in batch:
            answered.put("done")


def main():
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--cudagraph-capture-sizes", type=int, nargs="+", default=[1, 2, 4, 8])
    given, _ = parser.parse_known_args()
    context = multiprocessing.get_context("spawn")
    asked, answered = context.Queue(), context.Queue()
    context.Process(target=core, args=(given.cudagraph_capture_sizes, asked, answered), daemon=True).start()
    answered.get()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer({})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.put(body["max_tokens"])
            answered.get()
            self.answer({"choices": [{"text": ""}]})

        def answer(self, body):
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *about):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", given.port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
