"""Pure values: bins, epochs, routing, requests and schemas."""
