"""Finding the API server as kubectl does, and a client for it.

The official client's loader knows every form that credentials take in a kubeconfig; pykube-ng makes the requests.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pykube
import yaml
from kubernetes import client, config
from kubernetes.config.kube_config import KubeConfigMerger
from pykube.http import KubernetesHTTPAdapter
from requests import PreparedRequest
from urllib3.util import Retry

from respread.kube.access import DEFAULT_KUBECONFIG, AccessError

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_RETRIED_STATUSES: Final = (429, 500, 502, 503, 504)
_ELSEWHERE: Final = (
    "Name a kubeconfig by --kubeconfig or KUBECONFIG, look at a file by --snapshot, or start a cluster to try things "
    "with by `respread sandbox up`."
)

# The client's own functions carry no types.
_load_kube_config: Callable[..., None] = config.load_kube_config
_load_in_cluster: Callable[..., None] = config.load_incluster_config
_merge: Callable[[str], Any] = KubeConfigMerger


class Connection(msgspec.Struct, frozen=True):
    """A client for one API server."""

    client: pykube.HTTPClient
    server: str
    name: str
    """How to call the cluster in a sentence: `context prod`."""
    namespace: str
    """The context's."""

    def close(self) -> None:
        """Close what is open."""
        self.client.session.close()


def connect(kubeconfig: str | None = None, context: str | None = None) -> Connection:
    """Return a client for the API server; no request is made yet.

    Args:
        kubeconfig: a file, or several joined as in `KUBECONFIG`.
        context: one of its contexts; by default its current one.

    Raises:
        AccessError: there is none, or its credentials can't be had.
    """
    configuration = client.Configuration(proxy="")  # not None: requests reads the environment's proxies itself
    files = kubeconfig or os.environ.get("KUBECONFIG") or None
    try:
        if files is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            _load_in_cluster(client_configuration=configuration)
            return _connection(configuration, "this cluster", _NAMESPACE_FILE.read_text(encoding="utf-8").strip())
        files = files or DEFAULT_KUBECONFIG
        name, namespace = _chosen_context(files, context)
        _load_kube_config(config_file=files, context=name, client_configuration=configuration, persist_config=False)
        return _connection(configuration, f"context {name}", namespace)
    except (config.ConfigException, pykube.exceptions.PyKubeError, OSError, ValueError, TypeError, KeyError) as error:
        where = "the pod's ServiceAccount" if files is None else f"the kubeconfig {files}"
        raise AccessError(f"no cluster can be reached through {where}: {_said(error)}. {_ELSEWHERE}") from error


def _chosen_context(files: str, context: str | None) -> tuple[str, str]:
    """Return the name of the context to use, and its namespace."""
    try:
        merged = _merge(files).config
    except (yaml.YAMLError, AttributeError, TypeError, UnicodeDecodeError) as error:
        raise AccessError(f"{files} is not a kubeconfig: {_said(error)}") from error
    if merged is None:
        raise AccessError(f"there is no kubeconfig: {files} does not exist. {_ELSEWHERE}")
    contexts: dict[str, Mapping[str, Any]] = {
        node.value["name"]: node.value.get("context") or {} for node in merged.value["contexts"]
    }
    chosen = context or merged.value.get("current-context")
    there_are = f"it has {', '.join(sorted(contexts))}" if contexts else "it has none"
    if not chosen:
        raise AccessError(f"the kubeconfig {files} has no current context: choose one by --context; {there_are}.")
    if chosen not in contexts:
        raise AccessError(f"there is no context {chosen!r} in the kubeconfig {files}; {there_are}.")
    return chosen, contexts[chosen].get("namespace") or "default"


def _connection(configuration: client.Configuration, name: str, namespace: str) -> Connection:
    server = str(configuration.host).rstrip("/")
    cluster: dict[str, Any] = {"server": server}
    if not configuration.verify_ssl:
        cluster["insecure-skip-tls-verify"] = True
    elif configuration.ssl_ca_cert:
        cluster["certificate-authority"] = str(Path(configuration.ssl_ca_cert).resolve())
    if configuration.tls_server_name:
        cluster["tls-server-name"] = configuration.tls_server_name
    user = {}
    if configuration.cert_file and configuration.key_file:
        user["client-certificate"] = str(Path(configuration.cert_file).resolve())
        user["client-key"] = str(Path(configuration.key_file).resolve())
    kubeconfig = pykube.KubeConfig(
        {
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
            "current-context": "context",
        }
    )
    retry = Retry(
        total=None,
        connect=0,
        read=1,
        other=0,
        status=4,
        status_forcelist=_RETRIED_STATUSES,
        backoff_factor=0.5,
        raise_on_status=False,
    )
    http = pykube.HTTPClient(kubeconfig, http_adapter=KubernetesHTTPAdapter(kubeconfig, max_retries=retry))
    http.session.auth = _Authorization(configuration)
    http.session.headers["User-Agent"] = "respread"
    if configuration.proxy:
        http.session.proxies = {"http": configuration.proxy, "https": configuration.proxy}
    return Connection(http, server, name, namespace)


class _Authorization:
    """Says who we are with the credentials as they are at each request; a user's .netrc is not for an API server."""

    def __init__(self, configuration: client.Configuration) -> None:
        self._configuration = configuration

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        value: str | None = self._configuration.get_api_key_with_prefix("BearerToken")
        if value:
            scheme, _, credentials = value.strip().partition(" ")
            # The client writes the scheme of a pod's token in lower case.
            request.headers["Authorization"] = f"{scheme.capitalize()} {credentials.strip()}"
        return request


def _said(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"a certificate in it is of no use ({error})"
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
