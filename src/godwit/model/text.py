"""Words and times for people."""


def plural(count: int, noun: str) -> str:
    """
    >>> plural(1, "worker"), plural(0, "worker"), plural(1_000, "worker")
    ('1 worker', '0 workers', '1,000 workers')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def duration(seconds: float) -> str:
    """
    >>> duration(45.3), duration(118), duration(120), duration(605), duration(9000)
    ('45 s', '1 min 58 s', '2 min', '10 min 5 s', '2 h 30 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    parts = [(minutes, "min"), (rest, "s")]
    if minutes >= 60:
        parts = [(minutes // 60, "h"), (minutes % 60, "min")]
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 s"
