"""bench/records: the operator's cost of the records of policies, by the number of moves in flight.

    python -m bench.records [--moves 60 250 500 1000]

The moves are those of half of the pods of workloads of 50, and at most 500 belong to one policy. The last rows are the
other work of a reconcile with moves in flight. Times are CPU time of this process, the median of several runs, without
the API server.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Final

from immutables import Map

from bench.rows import Row, parser_for, print_rows
from respread.api.record import MAX_MOVES_IN_FLIGHT, Recorded, encode_record
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.moves.codec import RecordedMoves
from respread.moves.entry import Outcome
from respread.moves.ledger import Ledger
from respread.planning.plan import Move
from tests.eviction_moves import SPEC, group, move
from tests.worlds import NOW, cluster, pod

MOVES: Final = (60, 250, 500, 1_000)
PODS_OF_WORKLOAD: Final = 50
RUNS: Final = 20


def main() -> None:
    """Measure each number of moves."""
    parser = parser_for(__doc__)
    parser.add_argument("--moves", type=int, nargs="+", default=MOVES, metavar="NUMBER")
    for count in parser.parse_args().moves:
        print_rows(f"{count:,} moves under way:", rows(count))


def rows(count: int) -> list[Row]:
    """Return the figures for a number of moves."""
    in_flight, snapshot, one = world(count)
    known = RecordedMoves()
    moves = known.of(in_flight, snapshot)
    texts = [encode_record(Recorded(moves_in_flight=each)) for each in moves.values()]
    first = Recorded(moves_in_flight=next(iter(moves.values())))
    ledgers = [in_flight.answered(one, True, float(run)) for run in range(RUNS)]
    return [
        Row("records", len(texts), ""),
        Row("their text, for each move", sum(map(len, texts)) / count, "B"),
        Row("all moves, never recorded before", _milliseconds(lambda: RecordedMoves().of(in_flight, snapshot)), "ms"),
        Row("a reconcile in which none has changed", _milliseconds(lambda: known.of(in_flight, snapshot)), "ms"),
        Row("a reconcile in which one has changed", _milliseconds(lambda: known.of(ledgers.pop(), snapshot)), "ms"),
        Row("the text of the first record", _milliseconds(lambda: encode_record(first)), "ms"),
        Row(
            "following them, nothing changed", _milliseconds(lambda: in_flight.updated(snapshot, 1.0, _improved)), "ms"
        ),
        Row("the cluster without them, for planning", _milliseconds(lambda: in_flight.for_planning(snapshot)), "ms"),
    ]


def world(count: int) -> tuple[Ledger, ClusterSnapshot, Move]:
    """Return moves in flight, the cluster, and one of the moves."""
    pods = [_pod(number) for number in range(2 * count)]
    snapshot, in_flight = cluster([], pods), Ledger()
    moves = [_move(each, f"policy-{number // MAX_MOVES_IN_FLIGHT}") for number, each in enumerate(pods[::2])]
    for each in moves:
        in_flight = in_flight.sent(each, snapshot, 0.0, NOW.timestamp())
    return in_flight, snapshot, moves[0]


def _pod(number: int) -> Pod:
    workload = f"web-{number // PODS_OF_WORKLOAD}"
    controller = OwnerReference("apps/v1", "ReplicaSet", f"{workload}-5d8c7b9f4c", f"uid-of-{workload}")
    return pod(f"{workload}-5d8c7b9f4c-{number:05}", "node-1", SPEC, controller=controller, labels=Map(app=workload))


def _move(victim: Pod, policy: str) -> Move:
    key = group(victim.labels["app"])
    return move(victim, policy=policy, groups=(key,), from_domains=("zone-a",))


def _improved(*_: object) -> Outcome:
    return Outcome.IMPROVED


def _milliseconds(work: Callable[[], object]) -> float:
    def once() -> float:
        started = process_time()
        work()
        return process_time() - started

    return 1e3 * median(once() for _ in range(RUNS))


if __name__ == "__main__":
    main()
