"""Print the lowest versions that pyproject.toml allows on this Python, as constraints for pip.

`make test-lowest` runs it. The arguments are extras of isoscope: `python tools/lowest_versions.py hdf5 plot`. Packages
that constraints.txt pins to one version are left out, so that pip can use both files.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent


def list_requirements(project: dict[str, Any], extras: list[str]) -> Iterator[Requirement]:
    """Yield the requirements of a project and of these extras that apply to this Python."""
    texts = [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]
    for requirement in map(Requirement, texts):
        if canonicalize_name(requirement.name) == canonicalize_name(project["name"]):
            yield from list_requirements({**project, "dependencies": []}, sorted(requirement.extras))
        elif requirement.marker is None or requirement.marker.evaluate():
            yield requirement


def lowest_version(requirement: Requirement) -> Version:
    """Return the lowest version that a requirement allows."""
    for specifier in requirement.specifier:
        if specifier.operator in (">=", "=="):
            return Version(specifier.version)
    raise SystemExit(f"{requirement} has no lowest version: write it as {requirement.name}>=VERSION in pyproject.toml")


def lowest_versions(project: dict[str, Any], extras: list[str]) -> dict[str, Version]:
    """Return the lowest version of each required package; of several bounds, the highest counts."""
    found: dict[str, Version] = {}
    for requirement in list_requirements(project, extras):
        name, version = canonicalize_name(requirement.name), lowest_version(requirement)
        found[name] = max(version, found.get(name, version))
    return found


def read_pinned(constraints: Path) -> set[str]:
    """Return the names of the packages that a constraints file pins to one version."""
    lines = (line.partition("#")[0].strip() for line in constraints.read_text(encoding="utf-8").splitlines())
    requirements = [Requirement(line) for line in lines if line]
    return {canonicalize_name(each.name) for each in requirements if "==" in str(each.specifier)}


def main() -> None:
    """Print one constraint per line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("extras", nargs="*", metavar="EXTRA")
    extras = parser.parse_args().extras
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if unknown := sorted(set(extras) - project["optional-dependencies"].keys()):
        parser.error(f"isoscope has no extra {unknown[0]}; choose from {', '.join(project['optional-dependencies'])}")
    pinned = read_pinned(ROOT / "constraints.txt")
    for name, version in sorted(lowest_versions(project, extras).items()):
        if name not in pinned:
            print(f"{name}=={version}")


if __name__ == "__main__":
    main()
