"""Who reads the rows and adds them up: threads of this process, or the workers of a cluster."""

from isoscope.engines.engine import CombinedTally, Engine, LocalEngine, Tally, open_engine

__all__ = ["CombinedTally", "Engine", "LocalEngine", "Tally", "open_engine"]
