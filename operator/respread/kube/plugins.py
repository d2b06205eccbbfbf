"""Credentials that come from exec plugins and auth providers, by the official client, which knows all of them.

It is imported here alone within the operator, and this module only where a kubeconfig's user needs it: see
`kubeconfig_files`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubernetes import client, config
from kubernetes.config.kube_config import KubeConfigMerger

from respread.kube.credentials import CredentialsError, Endpoint, Pem

# The client's own functions carry no types.
_load_kube_config: Callable[..., None] = config.load_kube_config
_list_contexts: Callable[..., tuple[list[dict[str, Any]], dict[str, Any]]] = config.list_kube_config_contexts
_merge_kubeconfigs: Callable[..., Any] = KubeConfigMerger


class PluginIdentity:
    """What a plugin said last; it is run again once that has expired."""

    __slots__ = ("_configuration",)

    is_current: Final = False
    """The client does not tell without asking the plugin."""

    def __init__(self, configuration: client.Configuration) -> None:
        self._configuration = configuration

    def authorization(self) -> str | None:
        """Return the value; None where the plugin gave a certificate.

        Raises:
            CredentialsError: the client could not get any.
        """
        try:
            value: str | None = self._configuration.get_api_key_with_prefix("BearerToken")
        except Exception as error:  # the client lets through whatever a plugin makes it trip over
            raise CredentialsError(str(error) or type(error).__name__) from error
        if not value:
            return None
        scheme, _, credentials = value.strip().partition(" ")
        return f"{scheme.capitalize()} {credentials.strip()}"


def find_by_plugin(files: str, context: str | None) -> tuple[Endpoint, PluginIdentity]:
    """Return the API server of a context, and the plugin that says who we are; it is run.

    Args:
        files: a kubeconfig, or several joined as in `KUBECONFIG`.
        context: the context's name; None for the current one.

    Raises:
        CredentialsError: the plugin gave no credentials.
        Exception: whatever the client trips over in a file.
    """
    configuration = client.Configuration(
        proxy=""
    )  # not None: that would take the environment's, without its exceptions
    _load_kube_config(config_file=files, context=context, client_configuration=configuration)
    contexts, current = _list_contexts(config_file=files)
    chosen = current if context is None else next(each for each in contexts if each["name"] == context)
    user = chosen["context"].get("user") or ""
    identity = PluginIdentity(configuration)
    # The client logs the failure of a plugin and goes on as nobody.
    if not configuration.cert_file and _has_plugin(files, user) and not identity.authorization():
        raise CredentialsError(
            f"the exec plugin of the user {user} gave no credentials; it may have said why, see above"
        )
    endpoint = Endpoint(
        server=str(configuration.host).rstrip("/"),
        namespace=chosen["context"].get("namespace") or "default",
        certificate_authority=Pem(path=configuration.ssl_ca_cert or None),
        client_certificate=Pem(path=configuration.cert_file or None),
        client_key=Pem(path=configuration.key_file or None),
        verified=bool(configuration.verify_ssl),
        server_name=configuration.tls_server_name or None,
        proxy=configuration.proxy or None,
    )
    return endpoint, identity


def _has_plugin(files: str, user: str) -> bool:
    users = _merge_kubeconfigs(files).config["users"]
    found = users.get_with_name(user, safe=True)
    return found is not None and "exec" in found["user"]
