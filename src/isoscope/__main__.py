"""Run the command line: `python -m isoscope` is equivalent to the command `isoscope`."""

import signal
import sys


def main() -> int:
    """Run a command and return its exit code; Ctrl-C prints one line, also while modules are being imported."""
    try:
        from isoscope.cli.main import main as run

        code = run()
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the command is done; Python would print a traceback
    except KeyboardInterrupt:
        print("isoscope: interrupted", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
