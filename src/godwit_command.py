"""Where the command `godwit` begins: outside of the package, whose import takes its time.

Importing anything of `godwit` loads PySpark. An interrupt meanwhile ends the command as quietly as
one later.
"""

INTERRUPTED = 130  # as a shell tells of SIGINT


def main() -> int:
    """Run a command of `godwit`."""
    try:
        from godwit.cli import main as run

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED
