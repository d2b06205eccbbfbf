"""What plans need of the assumed schedulers: which groups there are, where pods may go, and the planner."""

from __future__ import annotations

from collections.abc import Iterable

from respread.api.policy import Policy
from respread.planning.planner import Planner
from respread.planning.victims.policies import kinds_restored
from respread.scheduling.configuration import SchedulerConfiguration
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.carried import DefaultConstraints
from respread.spread.index import SpreadIndex


class PlanningModel:
    """Finds spread groups and plans for them. What depends on an assumption is made again when that changes."""

    __slots__ = ("_defaults", "index", "planner", "predictor")

    def __init__(self, predictor: Predictor | None = None) -> None:
        """Create it. `predictor` is that of the schedulers, by default in their default configuration."""
        self.predictor = Predictor(ClusterView()) if predictor is None else predictor
        self.planner = Planner(self.predictor)
        self._defaults = DefaultConstraints(self.predictor.configuration)
        self.index = SpreadIndex(self._defaults)

    def assume(self, configuration: SchedulerConfiguration, policies: Iterable[Policy]) -> None:
        """Use a configuration of the schedulers, and those of its default constraints that matter to some policies."""
        if configuration != self.predictor.configuration:
            self.predictor = Predictor(ClusterView(), configuration)
            self.planner = Planner(self.predictor)
        defaults = DefaultConstraints(configuration, kinds_restored(policies))
        if defaults != self._defaults:
            self._defaults, self.index = defaults, SpreadIndex(defaults)
