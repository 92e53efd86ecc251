"""A query that runs elsewhere, for commands to ask: its epochs run when somebody waits for them."""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from godwit.cli import main
from godwit.cli.patience import Patience
from godwit.driver.driver import Driver
from tests.support.simulated import publish

AWAKE = Patience(look=0.005, follow=0.005)  # nobody sleeps while epochs run


class Running:
    """A query of which an epoch runs whenever somebody waits for it."""

    def __init__(self, checkpoint: Path, driver: Driver) -> None:
        self.checkpoint = checkpoint
        self.driver = driver
        self._pool = ThreadPoolExecutor(1)

    def command(self, *arguments: str) -> int:
        """Run a command, and epochs until it has ended."""
        name, *rest = arguments
        asked: Future[int] = self._pool.submit(main, [name, str(self.checkpoint), *rest], AWAKE)
        ticks = self.checkpoint / "godwit" / "ticks"
        while not asked.done():
            waiting = [path for path in ticks.iterdir() if path.name[0] != "."]
            if waiting or self.driver.demand.wants_epoch:
                for tick in waiting:
                    tick.unlink()
                self.epoch()
            else:
                wait([asked], AWAKE.look)
        return asked.result()

    def epoch(self) -> None:
        """Run an epoch without records."""
        publish(self.driver, (self.driver.published.epoch or 0) + 1)
