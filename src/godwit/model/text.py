"""Words for people."""


def plural(count: int, noun: str) -> str:
    """
    >>> plural(1, "worker"), plural(0, "worker"), plural(1_000, "worker")
    ('1 worker', '0 workers', '1,000 workers')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
