"""Credentials that come from exec plugins and auth providers, by the official client, which knows all of them.

It is imported here alone, and this module only where a kubeconfig's user needs it: importing it takes 0.3 s and 20 MiB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from kubernetes import client, config

from respread.kube.credentials import CredentialsError, Pem

# The client's own function carries no types.
_load_kube_config: Callable[..., None] = config.load_kube_config


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


class Plugin(NamedTuple):
    """What a plugin gave: a token, a certificate with its key, or both."""

    identity: PluginIdentity
    client_certificate: Pem
    client_key: Pem


def run_plugin(files: str, context: str) -> Plugin:
    """Run the plugin of a context's user.

    Args:
        files: a kubeconfig, or several joined as in `KUBECONFIG`.
        context: the context's name.

    Raises:
        Exception: whatever the client trips over in a file.
    """
    # not None: that would take the environment's proxy, without its exceptions
    configuration = client.Configuration(proxy="")
    _load_kube_config(config_file=files, context=context, client_configuration=configuration)
    return Plugin(
        PluginIdentity(configuration),
        client_certificate=Pem(path=configuration.cert_file or None),
        client_key=Pem(path=configuration.key_file or None),
    )
