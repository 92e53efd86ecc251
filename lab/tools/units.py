"""Numbers with units, as people say them."""


def seconds(some: float | None) -> str:
    """
    >>> [seconds(some) for some in (0.0341, 0.3404, 2.345, 61.2, None)]
    ['34 ms', '340 ms', '2.35 s', '61.2 s', '-']
    """
    if some is None:
        return "-"
    if abs(some) < 0.9995:
        return f"{1000 * some:.0f} ms"
    return f"{some:.2f} s" if some < 10 else f"{some:.1f} s"


def moment(some: float) -> str:
    """A round number of seconds.

    >>> [moment(some) for some in (0.002, 0.5, 2.5, 100)]
    ['2 ms', '500 ms', '2.5 s', '100 s']
    """
    return f"{1000 * some:.4g} ms" if some < 1 else f"{some:,.4g} s"


def amount(count: float) -> str:
    """
    >>> [amount(count) for count in (17, 5_001, 83_120, 1_234_567)]
    ['17', '5 k', '83.1 k', '1.23 M']
    """
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(count) >= 0.9995 * factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.3g}"


def rate(events: float) -> str:
    """
    >>> rate(1_200_000)
    '1.2 M events/s'
    """
    return f"{amount(events)} events/s"
