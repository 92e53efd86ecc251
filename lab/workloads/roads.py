"""Cars on a road: traffic monitoring, and Linear Road as Falcon (section VI) simplifies it.

Every car reports its position and speed once in `cars` events. It drives along a road of 101
segments, each 100 positions long; some cars break down again and again.
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame

import godwit as gw
from godwit.model.time import Duration

SEGMENTS: Final = 101
LENGTH: Final = 100  # positions of a segment
SAME: Final = 10  # equal positions in a row make an accident


def reports(
    events: DataFrame, cars: int = 124_000, faulty: int = 1, segments: int = SEGMENTS
) -> DataFrame:
    """Each event as a report: car, segment, position and speed. Every other segment is jammed.

    So many percent of the cars are faulty: of 64 reports, the last 15 are from the same place.
    """
    numbered = events.selectExpr("time", f"event % {cars} AS car", f"event div {cars} AS n")
    broken = f"(pmod(xxhash64(car), 100) < {faulty} AND n % 64 >= 49)"
    moved = f"IF({broken}, n - n % 64 + 49, n)"
    position = f"pmod(xxhash64(car, 1), {segments * LENGTH}) + 7 * {moved}"
    placed = numbered.selectExpr(
        "time", "car", "n", f"pmod({position}, {segments * LENGTH}) AS position"
    )
    located = placed.selectExpr("*", f"position div {LENGTH} AS segment")
    fastest = "IF(segment % 2 = 0, 20, 80)"
    speed = f"IF({broken}, 0, 20 + pmod(xxhash64(car, n), {fastest}))"
    return located.selectExpr("time", "car", "segment", "position", f"{speed} AS speed")


def traffic(events: DataFrame, cars: int = 124_000, limit: float = 55.0) -> gw.Stream:
    """Cars whose average speed is above the limit. State: a sum and a count for each car."""
    averages = gw.stream(reports(events, cars)).aggregate(
        "speeds", key="car", average=gw.avg("speed")
    )
    return averages.transform(lambda rows: rows.where(f"average > {limit}"))


def tolls(
    events: DataFrame,
    cars: int = 124_000,
    segments: int = SEGMENTS,
    length: Duration = "1 min",
    slide: Duration = "1 s",
    delay: Duration = "0 s",
) -> gw.Stream:
    """The toll of each segment in each sliding window.

    It is 2 (cars - 50)^2, if there are more than 50 cars and their average speed is below 40;
    otherwise nothing. (Linear Road looks at the speed of five minutes, and charges nothing near an
    accident.) State: speeds for each car, segment and pane, and for each segment and window.
    """
    by_car = gw.stream(reports(events, cars, segments=segments)).aggregate(
        "cars",
        key=["segment", "car"],
        window=gw.sliding(length, slide),
        time="time",
        delay=delay,
        speed=gw.avg("speed"),
    )
    by_segment = by_car.aggregate(
        "segments",
        key="segment",
        window=gw.tumbling(slide),
        time="window_time",
        delay="0 s",
        cars=gw.count(),
        speed=gw.avg("speed"),
    )
    toll = "IF(cars > 50 AND speed < 40, 2 * (cars - 50) * (cars - 50), 0)"
    return by_segment.transform(
        lambda rows: rows.selectExpr("segment", "window_end", "cars", "speed", f"{toll} AS toll")
    )


def accidents(events: DataFrame, cars: int = 124_000, faulty: int = 1) -> gw.Stream:
    """When a car has reported one position ten times, all cars on its segment are told.

    State: the last position of each car and how often it came; the cars of each segment.
    """
    detected = gw.stream(reports(events, cars, faulty)).state_machine(
        "detector",
        key="car",
        function=detect,
        state="position long, times long, segment long",
        output="segment long, car long, event string, time timestamp",
        time="time",
    )
    return detected.state_machine(
        "register",
        key="segment",
        function=tell,
        state={"cars": gw.Map("car long", "there boolean")},
        output="segment long, broken long, told long, time timestamp",
        time="time",
    )


def detect(key: int, value: Any, state: Any) -> Iterator[tuple[Any, ...]]:
    """For `state_machine`, keyed by car: where it enters and leaves, and that it does not move."""
    if state.segment != value.segment:
        if state.segment is not None:
            yield state.segment, key, "leaves", value.time
        yield value.segment, key, "enters", value.time
        state.segment = value.segment
    state.times = state.times + 1 if state.position == value.position else 1
    state.position = value.position
    if state.times == SAME:
        yield value.segment, key, "stands", value.time


def tell(key: int, value: Any, state: Any) -> Iterator[tuple[Any, ...]]:
    """For `state_machine`, keyed by segment."""
    if value.event == "enters":
        state.cars[value.car] = True
    elif value.event == "leaves":
        del state.cars[value.car]
    else:
        for car in state.cars:
            yield key, value.car, car, value.time
