"""scripts/venv_state.py tells a whole Python environment from one whose making was cut short."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import venv_state  # noqa: E402


class AnEnvironment(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = pathlib.Path(directory.name)
        self.requirements = self.folder / "requirements.txt"
        self.requirements.write_text("# what is needed\nbig_one==2.0\nsmall\n")
        self.packages = self.folder / "packages"
        self.packages.mkdir()
        self.install("pip", "23.0")
        self.install("big-one", "2.0", needs=["helper>=1", 'extra ; extra == "all"'])
        self.install("helper", "1.5")
        self.install("small", "0.1")

    def install(self, name, version, needs=()):
        module = name.replace("-", "_")
        info = self.packages / f"{module}-{version}.dist-info"
        info.mkdir()
        (self.packages / f"{module}.py").write_text("pass\n")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" +
                                       "".join(f"Requires-Dist: {need}\n" for need in needs))
        (info / "RECORD").write_text(f"{module}.py,,5\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
        return info

    def state(self, without=()):
        return venv_state.state(self.requirements, without, path=[str(self.packages)])

    def remove(self, info):
        for file in info.iterdir():
            file.unlink()
        info.rmdir()

    def test_with_everything_is_complete(self):
        self.assertEqual(self.state(), "complete")

    def test_without_something_named_is_lacking(self):
        self.remove(self.packages / "small-0.1.dist-info")
        self.assertEqual(self.state(), "lacking")
        self.assertEqual(self.state(without=["small"]), "complete")

    def test_without_something_that_a_package_needs_is_lacking(self):
        self.remove(self.packages / "helper-1.5.dist-info")
        self.assertEqual(self.state(), "lacking")

    def test_with_another_version_is_lacking(self):
        self.requirements.write_text("big_one==2.1\n")
        self.assertEqual(self.state(), "lacking")

    def test_takes_a_build_of_the_same_version(self):
        self.remove(self.packages / "big_one-2.0.dist-info")
        self.install("big-one", "2.0+cpu")
        self.assertEqual(self.state(), "complete")

    def test_with_a_missing_file_is_damaged(self):
        (self.packages / "helper.py").unlink()
        self.assertEqual(self.state(), "damaged")

    def test_with_a_cut_file_is_damaged(self):
        (self.packages / "helper.py").write_text("pa")
        self.assertEqual(self.state(), "damaged")

    def test_with_an_installation_that_never_ended_is_damaged(self):
        (self.packages / "small-0.1.dist-info/RECORD").unlink()
        self.assertEqual(self.state(), "damaged")

    def test_that_cannot_be_judged_gets_no_word(self):
        done = subprocess.run([sys.executable, venv_state.__file__, self.folder / "none.txt"],
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, "^venv_state.py: FileNotFoundError: .*none.txt'\n$")

    def test_without_pip_is_damaged(self):
        self.remove(self.packages / "pip-23.0.dist-info")
        self.assertEqual(self.state(), "damaged")


if __name__ == "__main__":
    unittest.main()
