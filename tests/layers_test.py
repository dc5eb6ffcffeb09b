"""The layers of src/ point down only, and no file outgrows its room.

The order is that of the add_subdirectory lines in src/CMakeLists.txt, from the bottom up; what a
layer may include is what its DEPENDS reach. The main program stands above all.
"""

import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_LINES = 600
SOURCES = {".cpp", ".h", ".cu", ".cuh", ".py", ".sh"}


def layer_order(src):
    """Names of the layers from the bottom up."""
    return re.findall(r"^add_subdirectory\((\w+)\)", (src / "CMakeLists.txt").read_text(), re.M)


def direct_dependencies(src, layer):
    """The layers that transnormer_layer(.. DEPENDS ..) names."""
    text = (src / layer / "CMakeLists.txt").read_text()
    depends = re.findall(r"\bDEPENDS\b([^)]*)", text)
    return set(re.findall(r"\btransnormer_(\w+)", " ".join(depends)))


def reachable(layer, direct):
    """The layers below `layer`, with itself."""
    seen, open_ = set(), [layer]
    while open_:
        name = open_.pop()
        if name not in seen:
            seen.add(name)
            open_.extend(direct.get(name, ()))
    return seen


def includes(path):
    """(line number, path as written) of each include of a file of our own."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if match:
            yield number, match.group(1)


def layer_faults(src):
    """One line for each arrow that points up, in CMake or in an include."""
    order = layer_order(src)
    rank = {name: index for index, name in enumerate(order)}
    direct = {name: direct_dependencies(src, name) for name in order}
    faults = []
    for name in order:
        for below in sorted(direct[name]):
            if rank.get(below, len(order)) >= rank[name]:
                faults.append(f"src/{name}/CMakeLists.txt: {name} depends on {below}, which is not below it")
    for path in sorted(p for p in src.rglob("*") if p.suffix in SOURCES and p.parent != src):
        own = path.relative_to(src).parts[0]
        where = path.relative_to(src.parent)
        if own not in rank:
            faults.append(f"{where}: {own} is no layer of src/CMakeLists.txt")
            continue
        for number, target in includes(path):
            layer = target.split("/")[0]
            if layer not in rank:
                faults.append(f'{where}:{number}: "{target}" is not written from src/ on')
            elif layer not in reachable(own, direct):
                faults.append(f"{where}:{number}: {own} includes {target}, which is not below it")
    return faults


def length_faults(root):
    """One line for each file of ours that is too long to read in one sitting."""
    faults = []
    for folder in ("src", "tests", "scripts"):
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in SOURCES):
            lines = len(path.read_text().splitlines())
            if lines > MOST_LINES:
                faults.append(f"{path.relative_to(root)}: {lines} lines, at most {MOST_LINES} are allowed")
    return faults


class TheTree(unittest.TestCase):
    def test_no_arrow_points_up(self):
        faults = layer_faults(ROOT / "src")
        self.assertFalse(faults, "\n" + "\n".join(faults))

    def test_no_file_is_too_long(self):
        faults = length_faults(ROOT)
        self.assertFalse(faults, "\n" + "\n".join(faults))

    def test_the_main_program_is_thin(self):
        self.assertLess(len((ROOT / "src/main.cpp").read_text().splitlines()), 60)

    def test_the_layers_are_read(self):
        """Guards against a pattern that matches nothing and finds no fault for that reason."""
        src = ROOT / "src"
        self.assertLess({"util", "config", "ops", "model", "train", "cli"}, set(layer_order(src)))
        self.assertIn("model", direct_dependencies(src, "optim"))
        self.assertIn("util", {t.split("/")[0] for _, t in includes(src / "main.cpp")})


class APlantedFault(unittest.TestCase):
    """A small tree of three layers, low < middle < high, with one thing wrong in it."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.root = pathlib.Path(self.directory.name)
        self.src = self.root / "src"
        layers = {"low": "", "middle": "transnormer_low", "high": "transnormer_middle"}
        self.write("src/CMakeLists.txt", "".join(f"add_subdirectory({n})\n" for n in layers))
        for name, below in layers.items():
            self.write(f"src/{name}/CMakeLists.txt",
                       f"transnormer_layer({name}\n  SOURCES {name}.cpp\n  DEPENDS {below})\n")
            self.write(f"src/{name}/{name}.h", "#pragma once\n")
        self.write("src/high/high.cpp", '#include "high/high.h"\n\n#include "low/low.h"\n')

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def test_a_sound_tree_has_none(self):
        self.assertEqual(layer_faults(self.src), [])
        self.assertEqual(length_faults(self.root), [])

    def test_an_include_of_a_higher_layer_is_found(self):
        self.write("src/low/low.cpp", '#include "low/low.h"\n#include "middle/middle.h"\n')
        self.assertEqual(layer_faults(self.src), [
            "src/low/low.cpp:2: low includes middle/middle.h, which is not below it"])

    def test_an_include_that_no_dependency_reaches_is_found(self):
        self.write("src/high/CMakeLists.txt", "transnormer_layer(high DEPENDS transnormer_low)\n")
        self.write("src/high/other.h", '#include "middle/middle.h"\n')
        self.assertEqual(layer_faults(self.src), [
            "src/high/other.h:1: high includes middle/middle.h, which is not below it"])

    def test_a_dependency_on_a_higher_layer_is_found(self):
        self.write("src/low/CMakeLists.txt", "transnormer_layer(low DEPENDS transnormer_high)\n")
        self.assertEqual(layer_faults(self.src), [
            "src/low/CMakeLists.txt: low depends on high, which is not below it"])

    def test_an_include_that_leaves_out_the_layer_is_found(self):
        self.write("src/low/low.cpp", '#include "low.h"\n')
        self.assertEqual(layer_faults(self.src), [
            'src/low/low.cpp:1: "low.h" is not written from src/ on'])

    def test_a_file_that_is_too_long_is_found(self):
        self.write("src/low/long.cpp", "\n" * (MOST_LINES + 1))
        self.assertEqual(length_faults(self.root), [
            f"src/low/long.cpp: {MOST_LINES + 1} lines, at most {MOST_LINES} are allowed"])


if __name__ == "__main__":
    unittest.main()
