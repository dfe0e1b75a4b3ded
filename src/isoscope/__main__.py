"""Run the command line: `python -m isoscope` is the command `isoscope`."""

import sys

from isoscope.cli.main import main

sys.exit(main())
