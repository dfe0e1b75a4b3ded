"""What is measured of a model while it trains, kept and compared."""
