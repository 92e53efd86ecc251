"""Rolling a checkpoint back."""

from godwit.log.restore import restore as roll_back
from godwit.storage.location import Location


def restore(checkpoint: Location, epoch: int) -> None:
    """Roll a checkpoint back to the end of a retained epoch; the next start goes on from there.

    A running query is fenced off. What came after the epoch is moved to `godwit/undone/`, also the
    requests for later epochs. If this is interrupted, restore again. Raises CheckpointError.

    >>> import tempfile, godwit as gw
    >>> from godwit.testing import Simulation
    >>> counts = gw.stream("user string").aggregate("counts", key="user", n=gw.count())
    >>> checkpoint = tempfile.mkdtemp()
    >>> simulation = Simulation(counts.to(gw.files("output")), checkpoint)
    >>> simulation.feed([{"user": "ann"}])
    >>> simulation.feed([{"user": "ann"}])
    >>> gw.restore(checkpoint, 0)
    >>> [(row["user"], row["n"]) for row in simulation.state()]
    [('ann', 1)]
    """
    roll_back(checkpoint, epoch)
