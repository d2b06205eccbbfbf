"""The cost of decoding LIST pages: CPU and memory per pod, without an API server or Kopf.

Run `python bench/ingest_decode.py [--pods 30000] [--templates 2500]`. The pods are like those of a kubelet of 1.33 or
later: about 4 KB each, with managedFields, a projected token volume with a random name, and the allocated resources in
each container's status.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import sys
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

from respread.cluster.decode.decoder import Decoder
from respread.cluster.pod import Pod
from respread.cluster.state import StateObject

PAGE_SIZE = 500


def pod(template: int, ordinal: int, nodes: int, rng: random.Random) -> dict[str, Any]:
    """Return a pod of a Deployment as the API server sends it."""
    namespace, app, revision = f"team-{template % 50}", f"service-{template}", f"{template * 2654435761 % 2**32:08x}"
    name = f"{app}-{revision}-{rng.randrange(16**5):05x}{ordinal:03x}"
    token = f"kube-api-access-{rng.randrange(36**5):05d}"
    uid = f"{rng.getrandbits(128):032x}"
    uid = f"{uid[:8]}-{uid[8:12]}-{uid[12:16]}-{uid[16:20]}-{uid[20:]}"
    labels = {"app.kubernetes.io/name": app, "app.kubernetes.io/part-of": namespace, "pod-template-hash": revision}
    requests = {"cpu": f"{100 + template % 7 * 50}m", "memory": f"{128 << template % 4}Mi"}
    container = {
        "name": "app",
        "image": f"registry.example.com/{namespace}/{app}:v1.{template}.0",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": "GOMAXPROCS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}}],
        "resources": {"limits": {"memory": requests["memory"]}, "requests": requests},
        "volumeMounts": [
            {"name": token, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
        ],
        "livenessProbe": {"httpGet": {"path": "/live", "port": "http", "scheme": "HTTP"}, "timeoutSeconds": 1},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    now = "2026-03-01T12:00:00Z"
    return {
        "metadata": {
            "name": name,
            "generateName": f"{app}-{revision}-",
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": str(rng.randrange(10**9)),
            "generation": 1,
            "creationTimestamp": f"2026-03-01T11:{ordinal % 60:02d}:{rng.randrange(60):02d}Z",
            "labels": labels,
            "annotations": {"prometheus.io/scrape": "true", "kubectl.kubernetes.io/restartedAt": now},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{app}-{revision}",
                    "uid": f"{template:08x}-0000-4000-8000-000000000000",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [
                {
                    "manager": manager,
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": now,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:metadata": {"f:labels": {f"f:{key}": {} for key in labels}}},
                }
                for manager in ("kube-controller-manager", "kubelet")
            ],
        },
        "spec": {
            "volumes": [
                {
                    "name": token,
                    "projected": {
                        "sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}],
                        "defaultMode": 420,
                    },
                },
                {"name": "tmp", "emptyDir": {}},
            ],
            "containers": [container],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": app,
            "nodeName": f"node-{rng.randrange(nodes)}",
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
            "priority": 0,
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": key,
                    "whenUnsatisfiable": effect,
                    "labelSelector": {"matchLabels": {"app.kubernetes.io/name": app}},
                }
                for key, effect in (
                    ("topology.kubernetes.io/zone", "DoNotSchedule"),
                    ("kubernetes.io/hostname", "ScheduleAnyway"),
                )
            ],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": each, "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
                for each in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "hostIP": "10.0.0.1",
            "podIP": f"10.{template % 256}.{ordinal % 256}.7",
            "startTime": now,
            "containerStatuses": [
                {
                    "name": "app",
                    "state": {"running": {"startedAt": now}},
                    "ready": True,
                    "restartCount": 0,
                    "image": container["image"],
                    "imageID": f"registry.example.com/{app}@sha256:{rng.getrandbits(256):064x}",
                    "containerID": f"containerd://{rng.getrandbits(256):064x}",
                    "allocatedResources": requests,
                    "resources": container["resources"],
                }
            ],
            "qosClass": "Burstable",
        },
    }


def pages(pods: int, templates: int, nodes: int) -> Iterator[bytes]:
    """Yield LIST pages of pods, with pods of one template as far apart as possible."""
    rng = random.Random(1)
    metadata = {"resourceVersion": "123456789", "continue": "next", "remainingItemCount": 1}
    for start in range(0, pods, PAGE_SIZE):
        items = [
            pod(each % templates, each // templates, nodes, rng) for each in range(start, min(pods, start + PAGE_SIZE))
        ]
        document = {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}
        yield json.dumps(document, separators=(",", ":")).encode()


def rss_bytes() -> int:
    """Return the resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - not a file that paths help with
        return int(statm.read().split()[1]) * resource.getpagesize()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=30_000)
    parser.add_argument("--templates", type=int, default=2_500)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--tracemalloc", action="store_true", help="count Python's allocations (slow: no CPU figure)")
    options = parser.parse_args()

    documents = list(pages(options.pods, options.templates, options.nodes))
    size = sum(map(len, documents)) / options.pods
    decoder, kept = Decoder(), list[StateObject]()
    gc.collect()
    before = rss_bytes()
    if options.tracemalloc:
        tracemalloc.start()
    started = time.process_time()
    for document in documents:
        page = decoder.decode_page("pods", document)
        if page.errors:
            sys.exit(str(page.errors[0]))
        kept += page.items
    cpu_seconds = time.process_time() - started
    del page
    gc.collect()
    specs = len({id(each.spec) for each in kept if isinstance(each, Pod)})
    print(f"pods {len(kept)}, {size:.0f} bytes each on the wire, distinct specs {specs}")
    print(f"CPU per pod       {cpu_seconds / options.pods * 1e3:.4f} ms")
    print(f"resident per pod  {(rss_bytes() - before) / options.pods:.0f} bytes")
    if options.tracemalloc:
        print(f"allocated per pod {tracemalloc.get_traced_memory()[0] / options.pods:.0f} bytes")


if __name__ == "__main__":
    main()
