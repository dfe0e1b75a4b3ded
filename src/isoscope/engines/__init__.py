"""Engines that read and tally rows, in threads of this process or on the workers of a Dask cluster."""

from isoscope.engines.engine import CombinedTally, Engine, LocalEngine, Tally, open_engine

__all__ = ["CombinedTally", "Engine", "LocalEngine", "Tally", "open_engine"]
