"""All experiments by name."""

from typing import Final

from godwit.errors import ConfigError
from lab.experiments.costs import discount, tasks, tau
from lab.experiments.laboratory import Experiment
from lab.experiments.load import load
from lab.experiments.memory import memory
from lab.experiments.nexmark import nexmark
from lab.experiments.overhead import overhead
from lab.experiments.peers import peers
from lab.experiments.planning import planning, projection
from lab.experiments.reconfiguration import balance, failure, scaling, varying
from lab.experiments.recovery import recovery
from lab.experiments.replication import replication
from lab.experiments.response import response
from lab.experiments.skew import skew
from lab.experiments.strategies import strategies
from lab.experiments.sweeps import bins, keys, proportional

_ALL: Final = (
    Experiment(strategies, minutes=(5, 11)),
    Experiment(nexmark, minutes=(6, 9)),
    Experiment(overhead, minutes=(3, 8)),
    Experiment(bins, minutes=(2, 5)),
    Experiment(keys, minutes=(2, 4)),
    Experiment(proportional, minutes=(2, 4)),
    Experiment(load, minutes=(2, 7)),
    Experiment(memory, minutes=(2, 4)),
    Experiment(peers, minutes=(4, 8)),
    Experiment(skew, minutes=(2, 3)),
    Experiment(response, minutes=(3, 6)),
    Experiment(recovery, minutes=(6, 35)),
    Experiment(replication, minutes=(2, 4)),
    Experiment(failure, minutes=(1.5, 3)),
    Experiment(scaling, minutes=(1.5, 3)),
    Experiment(balance, minutes=(1.5, 3)),
    Experiment(varying, minutes=(1.5, 2.5)),
    Experiment(tau, minutes=(0.1, 1.4)),
    Experiment(planning, minutes=(0.1, 0.1)),
    Experiment(projection, minutes=(0.1, 0.3)),
    Experiment(tasks, minutes=(0.1, 3)),
    Experiment(discount, minutes=(0.1, 0.4)),
)
EXPERIMENTS: Final = {one.name: one for one in _ALL}


def experiment(name: str) -> Experiment:
    """The experiment of this name, or ConfigError."""
    if name not in EXPERIMENTS:
        raise ConfigError(f"there is no experiment '{name}', but {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
