"""An API server for external metrics, like KEDA's, from which HorizontalPodAutoscalers read a load.

An APIService with a Service of type ExternalName registers it with kube-apiserver's aggregator.
"""

from __future__ import annotations

import json
import ssl
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

from respread_sandbox import Sandbox
from respread_sandbox.api import ApiError
from tests.integration.workloads import wait_until

GROUP: Final = "external.metrics.k8s.io"
VERSION: Final = "v1beta1"
PATH: Final = f"/apis/{GROUP}/{VERSION}"
METRIC: Final = "load"
SERVICE: Final = {"name": "external-metrics", "namespace": "kube-system"}


class ExternalMetrics:
    """The API server and the load that it reports."""

    def __init__(self, sandbox: Sandbox, load: int) -> None:
        """Start to listen. The API is not registered yet."""
        self.load = load
        self._sandbox = sandbox
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate = sandbox.files.serving_certificate
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Self:
        """Serve, and wait until kube-apiserver forwards requests."""
        self._thread.start()
        port = self._server.server_address[1]
        ports = [{"port": port, "protocol": "TCP"}]
        service = {"metadata": SERVICE, "spec": {"type": "ExternalName", "externalName": "127.0.0.1", "ports": ports}}
        self._sandbox.apply(json.dumps({"apiVersion": "v1", "kind": "Service", **service}))
        spec = {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {**SERVICE, "port": port},
        }
        registered = {"metadata": {"name": f"{VERSION}.{GROUP}"}, "spec": spec}
        self._sandbox.apply(json.dumps({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", **registered}))
        wait_until(self._is_served, "external metrics to be served")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, path: str) -> dict[str, Any] | None:
        """Return the object at a path; None if there is none."""
        if path == PATH:
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{GROUP}/{VERSION}",
                "resources": [],
            }
        if not path.endswith(f"/{METRIC}"):
            return None
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        value = {"metricName": METRIC, "metricLabels": {}, "timestamp": now, "value": str(self.load)}
        listed = {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}}
        return {**listed, "items": [value]}

    def _is_served(self) -> bool:
        try:
            found = self._sandbox.api.get(f"{PATH}/namespaces/default/{METRIC}")
        except ApiError:
            return False
        return bool(found["items"])


def autoscaler(deployment: str, *, at_most: int) -> dict[str, Any]:
    """Return a HorizontalPodAutoscaler that gives a Deployment as many pods as the load says, at once."""
    by_load = {"metric": {"name": METRIC}, "target": {"type": "AverageValue", "averageValue": "1"}}
    at_once = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": at_most, "periodSeconds": 1}]}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": deployment},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
            "minReplicas": 1,
            "maxReplicas": at_most,
            "metrics": [{"type": "External", "external": by_load}],
            "behavior": {"scaleUp": at_once, "scaleDown": at_once},
        },
    }


def _handler(metrics: ExternalMetrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # http.server's name
            found = metrics.answer(self.path.partition("?")[0])
            body = json.dumps(found or {}).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler
