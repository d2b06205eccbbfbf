"""The client that writes: evictions, leases, statuses and Events go through `kubernetes.aio`."""

from __future__ import annotations

from kubernetes.aio.client import ApiClient, Configuration

from respread.kube.access import ClusterAccess


def api_client(access: ClusterAccess) -> ApiClient:
    """Return a client of the same API server, with the same credentials and their renewal; the caller closes it."""
    given = access.configuration
    # What the environment says of proxies is in `access.proxy`; see there.
    configuration = Configuration(host=access.server, client_session_kwargs={"trust_env": False})
    configuration.ssl_ca_cert = given.ssl_ca_cert
    configuration.cert_file = given.cert_file
    configuration.key_file = given.key_file
    configuration.verify_ssl = given.verify_ssl
    configuration.tls_server_name = given.tls_server_name
    configuration.proxy = access.proxy
    configuration.api_key["BearerToken"] = ""

    async def renew(configuration: Configuration) -> None:
        configuration.api_key["BearerToken"] = await access.authorization() or ""

    configuration.refresh_api_key_hook = renew  # type: ignore[assignment]  # the client declares it as None
    client = ApiClient(configuration)
    client.user_agent = "respread"
    return client
