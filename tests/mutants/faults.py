"""Plausible faults that were thought up, or that once no test caught. Each must be caught."""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.mutants.change import Change


class Fault(NamedTuple):
    """A plausible fault."""

    name: str
    file: str
    """Relative to `operator/respread`."""
    right: str
    """The code to replace, which occurs exactly once."""
    wrong: str

    def change(self, code: str) -> Change:
        """Return the change to the code of the file.

        Raises:
            LookupError: what it replaces is not there, or more than once, because the code has changed.
        """
        if (times := code.count(self.right)) != 1:
            raise LookupError(f"{self.file} has this {times} times instead of once: {self.right!r}")
        start = code.index(self.right)
        return Change(self.name, self.file, start, start + len(self.right), self.wrong)


FAULTS: Final = (
    Fault(
        "maxSkew is compared with >=: what just holds is violated",
        "spread/group.py",
        "return self.skew > self.key.max_skew",
        "return self.skew >= self.key.max_skew",
    ),
    Fault(
        "one pod more than maxSkew allows counts as allowed while a plan is searched",
        "spread/counts.py",
        "self.limit = levels.limit",
        "self.limit = levels.limit + 1",
    ),
    Fault(
        "minDomains is ignored: the minimum is never 0 for want of domains",
        "scheduling/filters/topology_spread.py",
        "return domains < min_domains",
        "return False",
    ),
    Fault(
        "terminating pods count for a constraint",
        "scheduling/filters/topology_spread.py",
        "return bool(pod.node_name) and pod.deletion_timestamp is None and not pod.finished",
        "return bool(pod.node_name) and not pod.finished",
    ),
    Fault(
        "disruptionsAllowed is ignored for the second pod of a budget",
        "planning/victims/budgets.py",
        "if allowed > taken:",
        "if allowed > 0:",
    ),
    Fault(
        "unhealthyPodEvictionPolicy is read the wrong way round",
        "planning/victims/budgets.py",
        'return budget.unhealthy_pod_eviction_policy == "AlwaysAllow" or',
        'return budget.unhealthy_pod_eviction_policy != "AlwaysAllow" or',
    ),
    Fault(
        "evictions that a budget's status does not show yet are not taken off it",
        "planning/victims/budgets.py",
        "min(by_status - self._unseen[budget.key], by_count)",
        "min(by_status, by_count)",
    ),
    Fault(
        "a pod with two budgets is evicted by the first",
        "planning/victims/budgets.py",
        "if len(budgets) > 1:",
        "if len(budgets) > 2:",
    ),
    Fault(
        "a pod exactly of the threshold's priority is not protected",
        "planning/victims/protection.py",
        "if pod.spec.priority < self.priority_threshold:",
        "if pod.spec.priority <= self.priority_threshold:",
    ),
    Fault(
        "a step is safe though another DoNotSchedule constraint gets worse",
        "planning/search/safety.py",
        "if verdict.hard_worse or (landing.likely and (verdict.worse or not verdict.better)):",
        "if landing.likely and (verdict.worse or not verdict.better):",
    ),
    Fault(
        "moves go together though one lowers the minimum of a constraint",
        "planning/search/tally.py",
        "or (sum(number for _, number in self._counts) <= _EITHER and not tally.excess)",
        "or True",
    ),
    Fault(
        "moves go together though a group with maxSkew 2 and three domains may end with excess",
        "planning/search/tally.py",
        "or (sum(number for _, number in self._counts) <= _EITHER and not tally.excess)",
        "or not tally.excess",
    ),
    Fault(
        "moves go together though the domain that the score prefers may have no room",
        "planning/search/together.py",
        "if not (leads or level.tally.soft):",
        "if not leads:",
    ),
    Fault(
        "moves go together though minDomains leaves too few places for all",
        "planning/search/tally.py",
        "return allowed if sum(places[domain] for domain in allowed) >= self.coming else []",
        "return allowed",
    ),
    Fault(
        "moves go together though they may land where they make another workload's group worse",
        "planning/search/together.py",
        "if not (improved and self._these.others <= paid_in) or",
        "if not improved or",
    ),
    Fault(
        "a pod that is on its way is forgotten by the next plan",
        "planning/moving_pods.py",
        "coming = tuple(task.of(moves.coming))",
        "coming = ()",
    ),
    Fault(
        "a workload whose replacements fail has as many in flight as others",
        "eviction/standing.py",
        "return _Ready(0, failed=False, at=now)",
        "return _Ready(12, failed=False, at=now)",
    ),
    Fault(
        "an evicted pod's room counts as free before the pod is gone",
        "planning/search/board.py",
        "self._leaving = (*self._leaving, pod)\n",
        "self.placement.view.remove(pod)\n",
    ),
    Fault(
        "preemption is ignored: no pod is preempted for a pod of higher priority",
        "planning/room/preemption.py",
        "return Preemptor(demand, reach) if reach else None",
        "return None",
    ),
    Fault(
        "a replacement that has a node counts as Ready: places in flight come free too early",
        "moves/following.py",
        "if replacement is not None and entry.phase is MovePhase.PLACED and replacement.ready:",
        "if replacement is not None and entry.phase is MovePhase.PLACED:",
    ),
    Fault(
        "limits.inFlight lets one more through",
        "eviction/tallies.py",
        'in_all, most = "inFlight", self.limiter.limits.in_flight\n',
        'in_all, most = "inFlight", self.limiter.limits.in_flight + 1\n',
    ),
    Fault(
        "limits.perHour forgets what the same wave has evicted",
        "eviction/tallies.py",
        "            self._in_last_hour += 1\n",
        "",
    ),
    Fault("no pause ever grows", "timing.py", "self.first_seconds * 2.0**doublings", "self.first_seconds"),
    Fault("the quiet period is over at once", "holds/holds.py", "        if left <= 0:\n", "        if left:\n"),
    Fault(
        "an eviction is sent that no record contains",
        "controller/records/journal.py",
        "if entry is None or entry.phase is not MovePhase.RECORDED:",
        "if entry is None:",
    ),
    Fault(
        "the last look at what may stop an eviction is skipped",
        "controller/evictions.py",
        "        if (held := self._last_look(move, batch, begun=begun)) is not None:\n"
        "            return held\n        self.journal.sent(",
        "        self.journal.sent(",
    ),
    Fault(
        "the last look at the pod's controller is skipped",
        "eviction/owners/last_look.py",
        "return await self._of_own(move, rules, snapshot, moves, together) or await self._others",
        "return await self._others",
    ),
    Fault(
        "an eviction carries no UID: a namesake that came after the pod is evicted",
        "eviction/eviction_api.py",
        '{"preconditions": {"uid": pod.uid}}',
        "{}",
    ),
    Fault(
        "an eviction without an answer is taken not to have been made",
        "eviction/eviction_api.py",
        "EvictionResult.UNKNOWN if error.sent else EvictionResult.UNREACHABLE",
        "EvictionResult.UNREACHABLE",
    ),
    Fault(
        "who could not renew the Lease in time goes on as the leader",
        "kube/leadership.py",
        "return max(0.0, self._renewed_at + self.times.renew_deadline_seconds - self._clock())",
        "return max(0.0, self._renewed_at + 2 * self.times.lease_seconds - self._clock())",
    ),
    Fault(
        "a request for the Lease over a dead connection takes until the Lease is lost",
        "kube/leadership.py",
        "seconds = self.times.renew_deadline_seconds / 2",
        "seconds = self.times.renew_deadline_seconds",
    ),
    Fault(
        "a silent watch is started again from its version instead of a new list",
        "telemetry/health.py",
        "return self._clock() - self._heard[kind] >= SILENT_SECONDS",
        "return False",
    ),
    Fault(
        "a kind that is missing in discovery is never watched",
        "handlers/session.py",
        'cast("_Response", response).serve(document)',
        "pass",
    ),
    Fault(
        "an eviction that a webhook denies counts as possibly made",
        "eviction/answers.py",
        "EvictionResult.FORBIDDEN if _is_of_webhook(status) else _result",
        "_result",
    ),
    Fault(
        "room for the later moves of a group is not reserved",
        "planning/combining.py",
        "            each.reserve()\n",
        "            pass\n",
    ),
    Fault(
        "no room is reserved for a group that our moves have begun to restore",
        "holds/holds.py",
        "                self._begun[key] = now\n",
        "",
    ),
    Fault(
        "an evicted pod is taken to be gone when its move has ended",
        "moves/following.py",
        "ended=ended, lingers=True)",
        "ended=ended)",
    ),
    Fault(
        "an eviction that a former leader may have made does not count for the limits of an hour",
        "moves/ledger.py",
        "draft.put(msgspec.structs.replace(entry, counts=counts, doubted_at=now))",
        "draft.put(msgspec.structs.replace(entry, doubted_at=now))",
    ),
    Fault(
        "an eviction counts as not made while a late request for it may still arrive",
        "moves/entry.py",
        "CERTAIN_SECONDS: Final = 180.0",
        "CERTAIN_SECONDS: Final = 60.0",
    ),
    Fault(
        "an eviction that was requested again meanwhile counts as not made, by what was read before",
        "controller/records/journal.py",
        " and entry.doubted_at == doubt.doubted_at and",
        " and",
    ),
    Fault(
        "an eviction without an answer does not count any more",
        "controller/records/journal.py",
        "                else:\n                    self._journal.doubt(move)\n",
        "                else:\n                    self._journal.settle(move, made=False)\n",
    ),
    Fault(
        "a move that a policy's record lacks reduces its counts",
        "controller/takeover.py",
        " and entry.uid in listed.get(entry.move.policy, ())\n",
        "\n",
    ),
    Fault(
        "evictions of a former leader are forgotten up to a minute too early",
        "controller/records/codec.py",
        "last = min(minute.minute.timestamp(), now) + MINUTE_SECONDS",
        "last = min(minute.minute.timestamp(), now)",
    ),
    Fault(
        "records are written though another replica may lead",
        "controller/records/status_writer.py",
        "        if self._exclusive_seconds() <= 0:",
        "        if self._exclusive_seconds() < -60:",
    ),
    Fault(
        "moves in flight don't count for the next choice",
        "controller/choosing.py",
        "in_flight=in_flight,",
        "in_flight=(),",
    ),
    Fault(
        "a replica that leads again makes moves that it planned in an earlier term",
        "controller/permission.py",
        " or self._leading.term() != planned.term",
        "",
    ),
    Fault(
        "a policy that the API server has changed and the watch has not brought evicts",
        "controller/permission.py",
        "if confirmed.versions != planned.by_place.get(place, PoliciesThere()).versions:",
        "if confirmed.versions is None:",
    ),
    Fault(
        "steps of the same controller run at the same time",
        "controller/lanes.py",
        "for controller in sorted(set(map(controller_uid_of, step))):",
        "for controller in sorted(move.pod.uid for move in step):",
    ),
    Fault(
        "one kind whose watch is fresh is enough, however old the others are",
        "holds/holds.py",
        "kind, age = max(",
        "kind, age = min(",
    ),
    Fault(
        "a pod that an eviction in flight leaves behind is counted as still to be evicted",
        "controller/choosing.py",
        "if still_there(snapshot, entry.move.pod) is not None and counts.get(domain):",
        "if still_there(snapshot, entry.move.pod) is None and counts.get(domain):",
    ),
    Fault(
        "evictions are kept for groups that nobody has begun",
        "controller/choosing.py",
        "        and observation.history.pace_of(group).in_last_hour\n",
        "",
    ),
    Fault(
        "evictions in flight take no time of those that are left",
        "eviction/remaining.py",
        "return self.left + self.in_flight",
        "return self.left",
    ),
    Fault(
        "the limit that takes least is said to bound the rest",
        "eviction/remaining.py",
        "max(bounds[policy], key=",
        "min(bounds[policy], key=",
    ),
    Fault(
        "a pod that was Ready before says how long its like take to start",
        "eviction/remaining.py",
        "if each is not None and each <= LONGEST_START_SECONDS",
        "if each is not None",
    ),
    Fault(
        "what begun groups still need within the hour is given to others",
        "eviction/pacing.py",
        "- sum(each.evictions for each in kept if tally.applies(each.policy, each.namespace, each.matched[0]))",
        "",
    ),
    Fault(
        "groups are begun with the last evictions of an hour rather than finished",
        "eviction/pacing.py",
        "return rank, stretch.price, is_new",
        "return rank, -stretch.price, is_new",
    ),
    Fault(
        "of new pods the oldest is deleted first", "prevention/ranks.py", "-created.timestamp()", "created.timestamp()"
    ),
    Fault(
        "costs go below those with which others want pods deleted first",
        "prevention/ranks.py",
        "            above = max(above, cost.value)\n",
        "",
    ),
    Fault(
        "a pod that is deleted earlier whatever its cost counts as one that outlasts the others",
        "prevention/ranks.py",
        "outlasting = [pod for pod in everyone if _band(pod) > band]",
        "outlasting = [pod for pod in everyone if _band(pod) != band]",
    ),
    Fault(
        "costs stay though no integers are left for the pods between them",
        "prevention/ranks.py",
        "if cost is None or not above + position < cost <= position - len(order):",
        "if cost is None or not above < cost < 0:",
    ),
    Fault(
        "a domain with just as many pods as maxSkew allows counts as too full when pods are ranked",
        "spread/counts.py",
        "if count > self.limit:\n            return -1",
        "if count >= self.limit:\n            return -1",
    ),
    Fault(
        "patches that are queued are sent in a namespace where the permission is missing",
        "prevention/prevention.py",
        "while (patch := first()) is not None and self._resting.get(patch.pod.namespace, -inf) > now:",
        "while (patch := first()) is not None and False:",
    ),
    Fault(
        "every request asks anew whether a missing permission is granted",
        "controller/permissions.py",
        "return self._is_unknown(permission) if missing is None else missing.until <= now",
        "return missing is not None or self._is_unknown(permission)",
    ),
    Fault(
        "a pod counts for the reason of its group although it may not be evicted for another",
        "planning/tasks.py",
        "counts[protected.get(pod.uid, blocked[group.key])] += 1",
        "counts[blocked[group.key]] += 1",
    ),
    Fault(
        "a cost that somebody else wrote is replaced without being asked to",
        "prevention/deletion_costs.py",
        '**({"force": "true"} if replacing else {})',
        '"force": "true"',
    ),
    Fault(
        "reading from a session that Kopf has closed ends all watches",
        "handlers/watch_stream.py",
        "except RuntimeError as error:  # aiohttp's",
        "except KeyError as error:  # aiohttp's",
    ),
    Fault(
        "an empty file of authorities means those of the system",
        "kube/credentials.py",
        "if not content.strip():",
        "if content is None:",
    ),
    Fault(
        "changed files of certificates are not read again",
        "kube/credentials.py",
        "if (content := _read(self._endpoint)) != self._content:",
        "if (content := _read(self._endpoint)) is None:",
    ),
    Fault(
        "a request that the server may have received counts as never sent",
        "kube/requests.py",
        "except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:",
        "except (aiohttp.ClientConnectorError, TimeoutError, aiohttp.InvalidURL) as error:",
    ),
    Fault(
        "a request that got no connection counts as sent",
        "kube/requests.py",
        "except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:",
        "except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:",
    ),
    Fault(
        "a threshold of priority 0 protects nobody",
        "planning/victims/protection.py",
        "    if threshold.value is not None:",
        "    if threshold.value:",
    ),
    Fault(
        "a step of two goes on after its first pod is refused",
        "controller/evictions.py",
        "                            held = why  # for",
        "                            pass  # for",
    ),
    Fault(
        "an evicted pod whose replacement only terminating pods let in may leave it without a node",
        "planning/search/safety.py",
        "landings = united(landings, landings_of(board, piece, gone)) if gone else ()",
        "landings = united(landings, landings_of(board, piece, gone)) if gone else landings",
    ),
    Fault(
        "a pod that we evict hides another one that is missing",
        "eviction/owners/last_look.py",
        "if is_active(each) and each.uid not in leaving]",
        "if is_active(each)]",
    ),
    Fault(
        "moves about to be made don't share what is left of a quota",
        "eviction/owners/replacements.py",
        "for each in moves.under_way if each.replacement is None",
        "for each in moves.in_flight if each.replacement is None",
    ),
    Fault(
        "replacements count for the quotas of other namespaces",
        "eviction/owners/replacements.py",
        "if each.move.pod.namespace == pod.namespace}",
        "}",
    ),
    Fault(
        "only the controlling owner of a pod's controller is asked",
        "eviction/owners/last_look.py",
        "for each in reading.controller.metadata.owners",
        "for each in (reading.controller.metadata.controller,)",
    ),
    Fault(
        "a pod that is deleted later frees its share of a quota at once",
        "eviction/owners/replacements.py",
        "freed = was.quota_usage if is_replaced_when_gone(move.pod) else {}",
        "freed = was.quota_usage",
    ),
    Fault(
        "groups at the longest back-off are let go too early",
        "holds/backoff.py",
        "known.until <= now + PAUSE.longest_seconds * (1 + JITTER)",
        "known.until <= now + PAUSE.longest_seconds",
    ),
    Fault(
        "each failing move in flight doubles a pause",
        "holds/backoff.py",
        "if after.reach(most) and not known.pause_lasts(now):",
        "if after.reach(most):",
    ),
    Fault(
        "a step of two exceeds perHourPerGroup",
        "eviction/limiter.py",
        "if self.in_last_hour + more <= limit:",
        "if self.in_last_hour < limit:",
    ),
    Fault(
        "after a crash the limits of other policies forget a move",
        "controller/records/journal.py",
        "(move.policy, *bounding.hourly(move))",
        "(move.policy,)",
    ),
    Fault(
        "a step of two takes a place of its namespace for good",
        "controller/lanes.py",
        "self._under_way[namespace] -= len(step)",
        "self._under_way[namespace] -= 1",
    ),
    Fault(
        "after a pause a second pod is tried beside the first",
        "controller/choosing.py",
        "for move in (*in_flight, *undecided):",
        "for move in in_flight:",
    ),
    Fault(
        "after a pause a second pod is tried while the first is in flight",
        "controller/choosing.py",
        "for move in (*in_flight, *undecided):",
        "for move in undecided:",
    ),
    Fault(
        "an unanswered eviction is repeated though the group is balanced",
        "controller/observation.py",
        " and group.violated for key in move.groups",
        " for key in move.groups",
    ),
    Fault(
        "of two constraints of a pod one gets the other's nodeTaintsPolicy",
        "spread/carried.py",
        "kind = (each.when_unsatisfiable, each.node_affinity_policy, each.node_taints_policy)",
        'kind = (each.when_unsatisfiable, each.node_affinity_policy, "")',
    ),
    Fault(
        "of two constraints of a pod one gets the other's nodeAffinityPolicy",
        "spread/carried.py",
        "kind = (each.when_unsatisfiable, each.node_affinity_policy, each.node_taints_policy)",
        'kind = (each.when_unsatisfiable, each.node_taints_policy, "")',
    ),
    Fault(
        "two claims take one volume",
        "scheduling/filters/volume_binding.py",
        "                taken.add(volume.name)\n",
        "                pass\n",
    ),
    Fault(
        "pods of a CloneSet go during a rollback",
        "eviction/owners/rest_rules.py",
        "if older <= 0 and status.current_revision == status.update_revision:",
        "if older <= 0 or status.current_revision == status.update_revision:",
    ),
    Fault(
        "two ordinals of a set that does not start at 0 are down at once",
        "eviction/owners/rest_rules.py",
        "for ordinal in range(own + 1, start + spec.replicas):",
        "for ordinal in range(own + 1, spec.replicas):",
    ),
    Fault(
        "what was read slowly counts as fresh",
        "eviction/owners/reading.py",
        "self._kept[key] = _Kept(found, started_at)",
        "self._kept[key] = _Kept(found, self._clock())",
    ),
    Fault(
        "a retry that finds the pod gone forgets its move",
        "controller/records/journal.py",
        "or (gone and entry is not None and entry.is_owed):",
        "or gone:",
    ),
    Fault(
        "a move that is owed and has gone by itself stays in flight",
        "controller/records/journal.py",
        "or (gone and entry is not None and entry.is_owed):",
        "or False:",
    ),
    Fault(
        "moves go together though they lower the minimum of one of two constraints",
        "planning/search/together.py",
        "if not all(level.is_kept for index, level in self._levels.items() if index not in these.others):",
        "if not any(level.is_kept for index, level in self._levels.items() if index not in these.others):",
    ),
    Fault(
        "each unanswered retry starts the wait anew",
        "moves/ledger.py",
        "entry is not None and entry.phase < phase:",
        "entry is not None and entry.phase <= phase:",
    ),
    Fault(
        "evictions of a leader in between stay unknown",
        "controller/takeover.py",
        "        self._term = term\n        return term\n\n",
        "        self._term = self._leading.term()\n        return self._term\n\n",
    ),
    Fault(
        "too little room is kept for a group that lacks domains",
        "planning/room/book.py",
        "return group.key.counts(left, len(left))",
        "return group.key.counts(left, group.key.min_domains)",
    ),
)
