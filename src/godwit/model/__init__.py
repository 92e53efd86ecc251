"""Pure values: bins, epochs, routing and schemas."""
