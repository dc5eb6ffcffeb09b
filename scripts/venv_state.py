"""Says in one word what a Python environment is, judged from inside it.

usage: PYTHON venv_state.py REQUIREMENTS [--without NAME]..

complete  everything named is there, in the version asked for, and no file of it is missing
lacking   what is there is whole, but something named or needed is missing: pip can add it
damaged   an installation was cut short: files that a package recorded are missing or of another size

Exits 1 without a word where that cannot be told.
"""

import argparse
import importlib.metadata as metadata
import re
import sys


def wanted(path, without):
    """(name, version or None) of each line of a requirements file."""
    with open(path) as file:
        lines = file.read().splitlines()
    for line in lines:
        line = line.split("#")[0].strip()
        name, _, version = line.partition("==")
        if line and name not in without:
            yield name, version or None


def is_whole(distribution):
    """Whether each file that the installer recorded is there in its recorded size."""
    if not distribution.metadata or not distribution.files:
        return False
    for file in distribution.files:
        if file.suffix == ".pyc":  # may be rewritten at any time
            continue
        path = file.locate()
        if not path.is_file() or (file.size is not None and path.stat().st_size != file.size):
            return False
    return True


def missing_needs(distribution, installed):
    """Names of the unconditional or applicable requirements that are not installed."""
    from pip._vendor.packaging.requirements import Requirement

    for text in distribution.requires or []:
        need = Requirement(text)
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            if canonical(need.name) not in installed:
                yield need.name


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def state(requirements, without=(), path=None):
    """The word for the packages in the folders of `path`, which are this Python's own unless told."""
    installed = {}
    for distribution in metadata.distributions(path=path or sys.path):
        if not is_whole(distribution):
            return "damaged"
        installed[canonical(distribution.metadata["Name"])] = distribution
    if "pip" not in installed:
        return "damaged"
    for name, version in wanted(requirements, without):
        found = installed.get(canonical(name))
        if found is None or (version and found.version.split("+")[0] != version):
            return "lacking"
    if any(need for d in installed.values() for need in missing_needs(d, installed)):
        return "lacking"
    return "complete"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("requirements")
    parser.add_argument("--without", action="append", default=[])
    arguments = parser.parse_args()
    try:
        print(state(arguments.requirements, arguments.without))
    except Exception as error:  # says nothing about the environment, so no word for it
        print(f"venv_state.py: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
