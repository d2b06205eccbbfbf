"""A validating webhook for evictions, as clusters have them: it denies them with any code, fails or does not answer."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from respread_sandbox import Sandbox

NAME = "guard.example.com"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
TIMEOUT_SECONDS = 1
NO_ANSWER = 0
"""Instead of a code: the webhook reads the request and does not answer."""


@contextmanager
def admission_webhook(sandbox: Sandbox, folder: Path, namespace: str, denials: dict[str, int]) -> Iterator[None]:
    """Register a webhook, with failurePolicy Fail, while the context lasts.

    Args:
        sandbox: the control plane.
        folder: for its certificate.
        namespace: whose evictions it is asked about.
        denials: the code with which it denies the eviction of a pod, by the pod's name. It allows others.
    """
    certificate, key = folder / "webhook.crt", folder / "webhook.key"
    made = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-subj",
        "/CN=webhook",
    ]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *made], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Answer an AdmissionReview."""
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            code = denials.get(review["request"]["name"])
            if code == NO_ANSWER:
                ended.wait()
                return
            response: dict[str, Any] = {"uid": review["request"]["uid"], "allowed": code is None}
            if code is not None:
                response["status"] = {"code": code, "message": "the webhook moves this pod itself"}
            body = json.dumps({**review, "response": response}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        configuration = _configuration(namespace, server.server_address[1], certificate.read_bytes())
        sandbox.api.request("POST", CONFIGURATIONS, configuration)
        try:
            yield
        finally:
            ended.set()
            sandbox.api.request("DELETE", f"{CONFIGURATIONS}/{NAME}")
            server.shutdown()


def _configuration(namespace: str, port: int, authority: bytes) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
    bundle = base64.b64encode(authority).decode()
    webhook = {
        "name": NAME,
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": bundle},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": TIMEOUT_SECONDS,
    }
    return {"metadata": {"name": NAME}, "webhooks": [webhook]}
