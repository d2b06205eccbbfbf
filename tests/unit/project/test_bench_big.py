"""The cluster that bench/big builds from its recording has the results that the bench expects."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from bench.big_recording import FILE, Recording
from bench.big_world import BIG_NAMESPACE, BigWorld
from respread_cli.main import respread

LARGEST_FILE_BYTES = 200_000


def in_the_end(world: BigWorld) -> dict[str, dict[str, Any]]:
    """Return the content of etcd after the scale-down, by key."""
    objects = dict(world.entries())
    for step in world.recording.events:
        for copy in range(world.changing):
            method, body = world.request(copy, step)
            key = base64.b64decode(body["key"]).decode()
            assert key in objects, "the scale-down changes and deletes what is there"
            if method == "deleterange":
                del objects[key]
            else:
                objects[key] = json.loads(base64.b64decode(body["value"]))
    return objects


def test_the_recording_is_small() -> None:
    assert FILE.stat().st_size <= LARGEST_FILE_BYTES


def test_the_plan_for_the_recording_is_as_the_bench_expects(tmp_path: Path) -> None:
    world = BigWorld(Recording.read(), nodes=60, copies=3, changing=2)
    objects = in_the_end(world)
    pods = [each for each in objects.values() if each["kind"] == "Pod"]
    assert len({each["metadata"]["uid"] for each in pods}) == len(pods)
    assert {each["metadata"]["namespace"] for each in pods} == {BIG_NAMESPACE, "team-2"}
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects.values())}))
    result = CliRunner().invoke(respread, ["plan", "--snapshot", str(file)])
    violated = world.violated()
    assert violated > 0
    assert f"{world.fewest()} evictions to restore {violated} of {violated} violated" in result.output
