"""Looking at a query from outside: overview, reports, metrics, audit, state as a table."""
