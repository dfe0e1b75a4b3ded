"""Who reads the rows and adds them up: threads of this process, or the workers of a cluster."""

from isoscope.engines.engine import Engine, Local, engine_for
from isoscope.engines.tally import Tally, Together

__all__ = ["Engine", "Local", "Tally", "Together", "engine_for"]
