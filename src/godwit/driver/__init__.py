"""The life of an epoch on the driver: decide it before it runs, publish it once it is whole.

`Driver` is that life, composed of parts with one subject each. They share one lock, `Monitor`.

===========================  ====================================================================
who                          calls
===========================  ====================================================================
the query's thread           `Driver`; `Demand.sweep_ticks`, `Requests.add_streamed`
any thread of the user       `Requests`; asks `Timelines`, `Placements`, `Published`; waits with
                             `Monitor.wait_for` and `Published.wait`
the ticker's thread          `Demand`, `Placements.placement`
the clean-up of a query      `Monitor.close`, once
===========================  ====================================================================

Only `Driver` and `Requests` change `Timelines` and `Placements`, and they hold the monitor while
they do. `Published` and `RecentEpochs` are changed by the query's thread alone. Parts hand out
values, which stay as they are when the lock is free again.
"""
