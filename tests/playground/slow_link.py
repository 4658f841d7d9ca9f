"""A slow connection between the browser and a server: the page itself arrives in small pieces."""

import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

PIECE = 250
PAUSE_S = 0.02  # longer than a frame, so that the browser paints in between


@contextmanager
def slow_link(url: str) -> Iterator[str]:
    """The address of a proxy that hands out the server's page piece by piece, and all else as it comes."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._relay(urllib.request.Request(url + self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {"Content-Type": self.headers["Content-Type"]}
            self._relay(urllib.request.Request(url + self.path, body, headers))

        def _relay(self, request: urllib.request.Request) -> None:
            with urllib.request.urlopen(request) as answer:
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers["Content-Type"])
                self.end_headers()
                while piece := answer.read1(PIECE if self.path == "/" else 1 << 16):
                    self._pass_on(piece)

        def _pass_on(self, piece: bytes) -> None:
            self.wfile.write(piece)
            if self.path == "/":
                time.sleep(PAUSE_S)

        def log_message(self, *_: object) -> None:
            """Nothing: a test's output is its own."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True  # the live feed has no end

        def handle_error(self, request: object, client_address: object) -> None:
            """A page that is closed leaves its feed; that is no error here."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
