"""The parts of the report page: markup that escapes, scales and axes, charts, the cloud, the findings."""
