"""Credentials from exec plugins and auth providers, through the official client, which supports all of them.

Only this module imports it, and only if a kubeconfig's user needs it, because the import takes 0.3 s and 20 MiB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubernetes import client, config

from respread.kube.credentials import CredentialsError, Pem

# The client's own function has no types.
_load_kube_config: Callable[..., None] = config.load_kube_config


class PluginIdentity:
    """The last result of a plugin, which runs again when that has expired."""

    is_current: Final = False
    """The client can't tell without running the plugin."""

    def __init__(self, configuration: client.Configuration) -> None:
        self._configuration = configuration

    def authorization(self) -> str | None:
        """Return the value; None if the plugin returned a certificate.

        Raises:
            CredentialsError: the client could not get any.
        """
        try:
            value: str | None = self._configuration.get_api_key_with_prefix("BearerToken")
        except Exception as error:  # The client raises arbitrary exceptions because of plugins.
            raise CredentialsError(str(error) or type(error).__name__) from error
        if not value:
            return None
        scheme, _, credentials = value.strip().partition(" ")
        return f"{scheme.capitalize()} {credentials.strip()}"


def run_plugin(files: str, context: str) -> tuple[PluginIdentity, Pem, Pem]:
    """Run the plugin of a context's user, and return its token, certificate and key, of which some may be none.

    `files` is a kubeconfig, or several joined as in `KUBECONFIG`.

    Raises:
        Exception: an error of the client because of a file.
    """
    # Not None, which would use the environment's proxy without its exceptions.
    configuration = client.Configuration(proxy="")
    _load_kube_config(config_file=files, context=context, client_configuration=configuration)
    certificate, key = (Pem(path=path) for path in (configuration.cert_file, configuration.key_file))
    return PluginIdentity(configuration), certificate, key
