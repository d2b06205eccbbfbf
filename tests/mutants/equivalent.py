"""Changes that no test can catch, because they change nothing that anybody observes, with the reason."""

from __future__ import annotations

from typing import Final

EQUIVALENT: Final = {
    (
        "moves/ledger.py",
        "_is_leaving",
        "pod is not None and pod.uid == entry.uid → ((pod is not None))",
    ): "a controller that uses a name again creates the pod when the other one is gone, and no move ends before",
    (
        "moves/following.py",
        "end_of",
        (
            "replacement is not None and entry.phase is MovePhase.PLACED and replacement.ready → "
            "((entry.phase is MovePhase.PLACED) and (replacement.ready))"
        ),
    ): "a placed move has a replacement; the condition is for mypy",
    (
        "moves/following.py",
        "after_end",
        ("ended.outcome is Outcome.IMPROVED and ended.replacement is not None → ((ended.outcome is Outcome.IMPROVED))"),
    ): "without a replacement nothing improves; the condition is for mypy",
    (
        "controller/records/status_writer.py",
        "RecordWriter.keep",
        "uid in uids → True",
    ): "no UID comes again: it saves memory",
    ("holds/other_evictions.py", "", "1000 → 10 * 1000"): "from the sixteenth time on the wait is the longest",
    ("planning/search/search.py", "_Patterns.__call__", "min → max"): "the last order is as good a name as the first",
    ("planning/search/together.py", "_Course._within", 'outer or "" → ((outer))'): "it has a domain; for mypy",
    ("planning/solving.py", "Memory.note_search", "1 → 2"): "only the order of the numbers matters",
    ("planning/victims/policies.py", "NamespacePolicies.governance", "found is None → True"): "it only saves the look",
    (
        "planning/search/board.py",
        "Board.likeness",
        "1 → 2",
    ): "the number only distinguishes pods that come from pods that go",
    ("planning/search/board.py", "Board.expect", "> → >="): "a pod is placed or taken back, never neither",
    ("spread/counts.py", "_below", "< → <="): "a domain with as many pods as the limit lacks none",
    ("spread/counts.py", "_least", "0 → 1"): "without domains no pod is above any minimum",
    (
        "planning/search/search.py",
        "best_path",
        "best.cost > reach and (best.cost.excess or not beam.jointly) → ((best.cost.excess or not beam.jointly))",
    ): "no path costs less than the board can reach: it only saves the look",
    (
        "planning/search/safety.py",
        "landings_of",
        "board.placement.view.uncertain → True",
    ): "without objects that can't be decoded, the same nodes are possible: it only saves the look",
    (
        "planning/room/demand.py",
        "_is_of_one_each",
        "column.is_of_nodes → False",
    ): "if no two of all nodes have the same value, no two of some have: it only saves the look",
    **{
        ("planning/solving.py", f"Solver.{function}", "0 → 1"): "what is asked for comes in thousandths and bytes"
        for function in ("_rivals", "_tight")
    },
    (
        "spread/index.py",
        "_NamespaceGroups._group",
        "before is None or key.selector in changes.rematched → True",
    ): "the selector matches the same label sets then: it only saves the look",
    (
        "spread/index.py",
        "SpreadIndex.update",
        "not in → in",
    ): "domains that no group uses are forgotten later: it only costs memory",
    (
        "planning/solving.py",
        "Solver.solve",
        "self._claims → True",
    ): "without claims nobody waits for room: it only saves the look",
    ("spread/counts.py", "pods_above", "> → >="): "a domain with as many pods as the limit has none above it",
    ("scheduling/filters/node_affinity.py", "_integer_of", "<= → <"): "no label has a negative value",
    ("scheduling/filters/node_affinity.py", "", "63 → 64"): "no label has a negative value",
    (
        "telemetry/tls.py",
        "listening_socket",
        "not host and socket.has_dualstack_ipv6() → ((not host))",
    ): "only a machine without IPv6 shows it",
    (
        "telemetry/tls.py",
        "accept_over_tls.<locals>.shake_hands",
        "connection.close() → pass",
    ): "asyncio closes it too when a handshake fails; other event loops need not",
    (
        "eviction/owners/last_look.py",
        "OtherControllers.why_incomplete",
        "controller is None or pod.controller is None → ((controller is None))",
    ): "each of these pods has a controller; the condition is for mypy",
    **{
        ("moves/following.py", "judged", f"entry.ended is None or entry.replacement is None → {wrong}"): (
            "a move that must stay Ready has ended; the condition is for mypy"
        )
        for wrong in (
            "((entry.replacement is None))",
            "((entry.ended is None) and (entry.replacement is None))",
            "False",
        )
    },
    (
        "holds/refusals.py",
        "_controller_key",
        "controller is None → False",
    ): "a pod without a controller is never evicted; the condition is for mypy",
    (
        "eviction/eviction_api.py",
        "EvictionApi.is_untouched",
        "response.succeeded → True",
    ): "what comes with an error is no pod, and is not read as one",
    (
        "planning/search/board_builder.py",
        "_outside",
        "domains.eligible == placement.table.every → False",
    ): "no pod is outside of all nodes: it only saves the look",
    (
        "planning/search/safety.py",
        "_split_counting",
        'tally.domain_of[_lowest(nodes)] or "" → ((tally.domain_of[_lowest(nodes)]))',
    ): "these nodes are in a domain; the condition is for mypy",
    (
        "planning/room/demand.py",
        "_counted",
        "not demand.prepared.hard_constraints → False",
    ): "without constraints, it makes no difference how many they might count: it only saves the look",
    (
        "planning/victims/selection.py",
        "Selection.violated",
        "each.violated → True",
    ): "a namespace with nothing to restore has no tasks: it only saves the look",
    (
        "eviction/pacing.py",
        "_HourShares.__init__",
        "tally.left_in_hour or 0 → ((tally.left_in_hour))",
    ): "these tallies are of limits of an hour; the condition is for mypy",
}
"""By file, function and name of the change."""
