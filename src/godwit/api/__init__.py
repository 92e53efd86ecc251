"""What a user imports: streams, jobs, options and the handles of running queries."""
