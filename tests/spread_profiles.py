"""The configuration of kube-scheduler's default constraints as a profile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from respread.scheduling.configuration import DEFAULT_SCHEDULER, Profile, read_configuration


def spread_profile(arguments: Mapping[str, Any]) -> Profile:
    """Return the default profile with other arguments of PodTopologySpread."""
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [{"name": "PodTopologySpread", "args": dict(arguments)}]}],
    }
    return read_configuration(json.dumps(document)).profiles[DEFAULT_SCHEDULER]
