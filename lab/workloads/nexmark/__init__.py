"""NEXMark: an auction house of persons, auctions and bids, and questions about it."""
