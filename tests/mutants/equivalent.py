"""Changes that no test can catch, because they change nothing that anybody observes, with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_BY_REASON: Final[Mapping[str, Sequence[tuple[str, str, str]]]] = {
    "a controller that uses a name again creates the pod when the other one is gone, and no move ends before": [
        ("moves/ledger.py", "_is_leaving", "pod is not None and pod.uid == entry.uid → ((pod is not None))")
    ],
    "the condition is for mypy: what it excludes does not occur": [
        ("moves/entry.py", "certain_at", "entry.doubted_at is None → False"),
        (
            "moves/ledger.py",
            "Ledger.since",
            "now is not None and is_in_flight and not was_in_flight → ((is_in_flight) and (not was_in_flight))",
        ),
        (
            "moves/following.py",
            "end_of",
            (
                "replacement is not None and entry.phase is MovePhase.PLACED and replacement.ready → "
                "((entry.phase is MovePhase.PLACED) and (replacement.ready))"
            ),
        ),
        (
            "moves/following.py",
            "after_end",
            (
                "ended.outcome is Outcome.IMPROVED and ended.replacement is not None → "
                "((ended.outcome is Outcome.IMPROVED))"
            ),
        ),
        ("planning/audit/subject.py", "KnownNodes._find_nested", 'next(iter(outside)) or "" → ((next(iter(outside))))'),
        (
            "planning/explaining.py",
            "_unknown_replacement",
            "unknown[0] is not None and None not in unknown → ((None not in unknown))",
        ),
        ("planning/search/together.py", "_Course._within", 'outer or "" → ((outer))'),
        (
            "eviction/owners/last_look.py",
            "OtherControllers.why_incomplete",
            "controller is None or pod.controller is None → ((controller is None))",
        ),
        (
            "moves/following.py",
            "judged",
            "entry.ended is None or entry.replacement is None → ((entry.replacement is None))",
        ),
        (
            "moves/following.py",
            "judged",
            (
                "entry.ended is None or entry.replacement is None → "
                "((entry.ended is None) and (entry.replacement is None))"
            ),
        ),
        ("moves/following.py", "judged", "entry.ended is None or entry.replacement is None → False"),
        ("holds/refusals.py", "_controller_key", "controller is None → False"),
        (
            "planning/search/safety.py",
            "_split_counting",
            'tally.domain_of[_lowest(nodes)] or "" → ((tally.domain_of[_lowest(nodes)]))',
        ),
        ("eviction/pacing.py", "_HourShares.__init__", "tally.left_in_hour or 0 → ((tally.left_in_hour))"),
    ],
    "what it forgets does not come again: it only saves memory": [
        ("eviction/owners/last_look.py", "", "4096 → 10 * 4096"),
        ("controller/records/status_writer.py", "RecordWriter.keep", "uid in uids → True"),
        ("spread/index.py", "SpreadIndex.update", "not in → in"),
        ("scheduling/view/node_table.py", "NodeTable.remove", "self._free_slots.append(slot) → pass"),
    ],
    "from the sixteenth time on the wait is the longest": [("holds/other_evictions.py", "", "1000 → 10 * 1000")],
    "the last order is as good a name as the first": [("planning/search/search.py", "_Patterns.__call__", "min → max")],
    "only the first is used": [("planning/audit/rules.py", "_unknown_topology_key", "1 → 2")],
    "the message of the next scale-up does not say how many are Pending": [
        ("planning/audit/limit_rules.py", "limited", "1 → 2")
    ],
    "minima below the least that can be allow no more pods": [
        ("planning/audit/limit_rules.py", "_minima", "max → min"),
        ("planning/audit/limit_rules.py", "_minima", "1 → 2"),
    ],
    "only the order of the numbers matters": [("planning/solving.py", "Memory.note_search", "1 → 2")],
    "what is found without it is the same: it only saves the look": [
        ("controller/lease.py", "LeasePlace.in_snapshot", "0 → 1"),
        ("controller/lease.py", "LeasePlace.in_snapshot", "before is None or before[0] is not by_labels → True"),
        ("controller/prevention_loop.py", "PreventionLoop.observe", "self._term.needed → True"),
        (
            "controller/records/history.py",
            "History._all",
            "known[0] is expected or known[0] == expected → ((known[0] == expected))",
        ),
        ("holds/holds.py", "QuietPeriods.observe", "known is not None and known.group is group → False"),
        ("planning/victims/policies.py", "NamespacePolicies.governance", "found is None → True"),
        (
            "planning/audit/auditor.py",
            "Auditor._without_room",
            (
                "(self._foresees_room or each.waiting[1]) and not each.findings and key.when_unsatisfiable == "
                '"DoNotSchedule" and each.group.skew >= key.max_skew → ((self._foresees_room or each.waiting[1]) and '
                '(not each.findings) and (key.when_unsatisfiable == "DoNotSchedule"))'
            ),
        ),
        (
            "planning/audit/auditor.py",
            "Auditor._take_over",
            "old is node or _looks(old) == _looks(node) → ((_looks(old) == _looks(node)))",
        ),
        ("planning/search/search.py", "_Patterns.__call__", "(found := self._patterns.get(step)) is None → True"),
        (
            "planning/search/search.py",
            "best_path",
            "best.cost > reach and (best.cost.excess or not beam.jointly) → ((best.cost.excess or not beam.jointly))",
        ),
        ("planning/leaving_nodes.py", "_emptying_taints", "not node.taints → False"),
        ("planning/leaving_nodes.py", "MarkedNodes.advance", "snapshot.nodes is not self._nodes → True"),
        ("planning/search/safety.py", "landings_of", "board.placement.view.uncertain → True"),
        ("planning/room/demand.py", "_is_of_one_each", "column.is_of_nodes → False"),
        ("spread/index.py", "_NamespaceGroups._group", "before is None or key.selector in changes.rematched → True"),
        ("planning/solving.py", "Solver.solve", "self._claims → True"),
        ("planning/search/board_builder.py", "_outside", "domains.eligible == placement.table.every → False"),
        ("planning/room/demand.py", "_counted", "not demand.prepared.hard_constraints → False"),
        ("planning/victims/selection.py", "Selection.violated", "each.violated → True"),
        ("planning/room/preemption.py", "preemptors_among", "preemptor.nodes == placement.table.every → False"),
        ("scheduling/view/volumes.py", "Attachments._room_on", "attached.error → True"),
        ("spread/carried.py", "DefaultConstraints.keys_of", "not constraints → False"),
        (
            "scheduling/filters/node_affinity.py",
            "prepare",
            (
                "not spec.node_selector and spec.node_affinity is None and not spec.pinned_to_node and "
                "added_affinity is None → False"
            ),
        ),
    ],
    "it only tells pods that come from pods that go": [("planning/search/board.py", "Board.likeness", "1 → 2")],
    "a pod is placed or taken back, never neither": [("planning/search/board.py", "Board.expect", "> → >=")],
    "a domain with as many pods as the limit lacks none": [("spread/counts.py", "_below", "< → <=")],
    "it is an estimate of memory": [
        ("scheduling/view/pod_affinity_terms.py", "ExistingTerms.change", "1 → 2"),
        ("scheduling/view/pod_index.py", "PodIndex.tally", "1 → 2"),
        ("scheduling/view/pod_index.py", "PodIndex._new_bucket", "1 → 2"),
    ],
    "then all steps are alike": [
        ("eviction/pacing.py", "_HourShares.precedence", "False → True"),
        ("eviction/pacing.py", "_HourShares.precedence", "0 → 1"),
        ("eviction/pacing.py", "_HourShares.precedence", "0.0 → 1.0"),
    ],
    "without domains no pod is above any minimum": [("spread/counts.py", "_least", "0 → 1")],
    "what is asked for comes in thousandths and bytes": [
        ("planning/solving.py", "Solver._rivals", "0 → 1"),
        ("planning/solving.py", "Solver._tight", "0 → 1"),
    ],
    "a domain with as many pods as the limit has none above it": [("spread/counts.py", "pods_above", "> → >=")],
    "no label has a negative value": [
        ("scheduling/filters/node_affinity.py", "_integer_of", "<= → <"),
        ("scheduling/filters/node_affinity.py", "", "63 → 64"),
    ],
    "only a machine without IPv6 shows it": [
        ("telemetry/tls.py", "listening_socket", "not host and socket.has_dualstack_ipv6() → ((not host))")
    ],
    "asyncio closes it too when a handshake fails; other event loops need not": [
        ("telemetry/tls.py", "accept_over_tls.<locals>.shake_hands", "connection.close() → pass")
    ],
    "what comes with an error is no pod, and is not read as one": [
        ("eviction/eviction_api.py", "EvictionApi.is_untouched", "response.succeeded → True")
    ],
    "the eviction itself looks again: it only saves a dry run": [
        ("controller/evictions.py", "Evictions._rehearse", "False → True")
    ],
    "the first term sets it": [("controller/prevention_loop.py", "PreventionLoop.__init__", "0 → 1")],
}
"""The file, function and name of each change."""

EQUIVALENT: Final = {change: reason for reason, changes in _BY_REASON.items() for change in changes}
