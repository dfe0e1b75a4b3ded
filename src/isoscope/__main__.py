"""Run the command line: `python -m isoscope` is equivalent to the command `isoscope`."""

import sys

from isoscope.cli.main import main

sys.exit(main())
