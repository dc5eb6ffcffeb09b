"""scripts/build.sh asks the system only for what is missing, and stops at the first fault.

It runs in a folder of its own, where the programs that it calls only note that they were called.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"

# Each notes its name and arguments; what it does beyond is read from files that a test may write.
FAKES = {
    "apt-get": 'exit "$(cat "$HOME/apt-status" 2>/dev/null || echo 0)"',
    "sudo": 'exec "$@"',
    "cmake": 'exit "$(cat "$HOME/cmake-status" 2>/dev/null || echo 0)"',
    "dpkg-query": 'grep -qxF "${@: -1}" "$HOME/missing" 2>/dev/null || echo -n installed',
    "python3": '[[ $1 == -m ]] && { mkdir -p .venv/bin; cp "$HOME/fakes/venv-python" .venv/bin/python; }; exit 0',
    # The environment's own Python: is in the state that the file says (the check fails where there is
    # no such file), until pip has run.
    "venv-python": 'if [[ $2 == pip ]]; then echo complete >"$HOME/venv-state"; '
                   'exit "$(cat "$HOME/pip-status" 2>/dev/null || echo 0)"; fi; '
                   '[[ $1 == -c ]] || cat "$HOME/$([[ $2 == *-cuda.txt ]] && echo nvcc || echo venv)-state"',
    "nvcc": 'cat "$HOME/nvcc-says" 2>/dev/null',
    **{name: "" for name in ("g++", "ninja", "ccache", "pkg-config", "git", "bible")},
}


class TheBuild(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.home = pathlib.Path(directory.name)
        self.project = self.home / "project"
        (self.project / "scripts").mkdir(parents=True)
        for name in ("build.sh", "common.sh", "venv_state.py", "requirements.txt", "requirements-cuda.txt"):
            shutil.copy(SCRIPTS / name, self.project / "scripts")
        # The toolkit and the driver of the machine that runs the test are out of sight.
        script = self.project / "scripts/build.sh"
        script.write_text(script.read_text().replace("/usr/local/cuda/", f"{self.home}/cuda/")
                          .replace("/proc/driver/nvidia/version", f"{self.home}/driver"))
        (self.home / "fakes").mkdir()
        for name, body in FAKES.items():
            path = self.home / "fakes" / name
            path.write_text(f'#!/bin/bash\necho "{name} $*" >>"$HOME/calls"\n{body}\n')
            path.chmod(0o755)
        self.given("venv-state", "complete")
        self.given("nvcc-state", "lacking")
        (self.project / ".venv/bin").mkdir(parents=True)
        shutil.copy(self.home / "fakes/venv-python", self.project / ".venv/bin/python")

    def given(self, name, text):
        (self.home / name).write_text(text + "\n")

    def run_build(self, *targets, **environment):
        """(exit status, what was said, the calls noted) of one run."""
        environment = {"HOME": str(self.home), "PATH": f"{self.home}/fakes:/usr/bin:/bin", **environment}
        done = subprocess.run(["bash", self.project / "scripts/build.sh", *targets], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/")
        calls = (self.home / "calls").read_text().splitlines()
        return done.returncode, done.stdout, calls

    def calls_of(self, calls, name):
        return [call for call in calls if call.startswith(name + " ")]

    def test_asks_nothing_of_a_machine_that_has_everything(self):
        status, said, calls = self.run_build()
        self.assertEqual(status, 0, said)
        for name in ("apt-get", "sudo", "venv-python -m pip"):
            self.assertEqual(self.calls_of(calls, name), [])
        self.assertEqual(len(self.calls_of(calls, "cmake")), 2)
        self.assertRegex(self.calls_of(calls, "cmake")[0], "^cmake --preset release")

    def test_builds_the_program_only_unless_told(self):
        for targets, built in (((), "transnormer"), (("all",), "all")):
            status, said, calls = self.run_build(*targets)
            self.assertEqual(status, 0, said)
            self.assertRegex(self.calls_of(calls, "cmake")[-1], f"--target {built}$")

    def test_installs_only_the_packages_that_are_missing(self):
        self.given("missing", "libcli11-dev\nlibssl-dev")
        status, said, calls = self.run_build()
        self.assertEqual(status, 0, said)
        install = [call for call in self.calls_of(calls, "apt-get") if " install " in call]
        self.assertEqual(len(install), 1)
        self.assertTrue(install[0].endswith(" libcli11-dev libssl-dev"), install[0])

    def test_leaves_the_packages_alone_when_told(self):
        self.given("missing", "libcli11-dev")
        status, said, calls = self.run_build(TRANSNORMER_SKIP_PACKAGES="1")
        self.assertEqual(status, 0, said)
        self.assertEqual(self.calls_of(calls, "apt-get"), [])

    def test_stops_where_packages_cannot_be_had(self):
        self.given("missing", "libcli11-dev")
        self.given("apt-status", "100")
        status, said, calls = self.run_build()
        self.assertEqual(status, 1)
        self.assertTrue(said.endswith("build.sh: apt-get update failed (see above)\n"), said)
        self.assertEqual(self.calls_of(calls, "cmake"), [])

    def test_makes_the_environment_where_there_is_none(self):
        shutil.rmtree(self.project / ".venv")
        status, said, calls = self.run_build()
        self.assertEqual(status, 0, said)
        self.assertIn("python3 -m venv .venv", calls)
        pip = self.calls_of(calls, "venv-python -m pip")
        self.assertEqual(len(pip), 1)
        self.assertIn("torch==2.11.0 numpy safetensors matplotlib tensorboard", pip[0])

    def test_adds_to_an_environment_that_lacks_something(self):
        self.given("venv-state", "lacking")
        status, said, calls = self.run_build()
        self.assertEqual(status, 0, said)
        self.assertNotIn("python3 -m venv .venv", calls)
        self.assertEqual(len(self.calls_of(calls, "venv-python -m pip")), 1)

    def test_starts_a_half_made_environment_over(self):
        self.given("venv-state", "damaged")
        leftover = self.project / ".venv/lib/leftover"
        leftover.parent.mkdir()
        leftover.touch()
        status, said, calls = self.run_build()
        self.assertEqual(status, 0, said)
        self.assertFalse(leftover.exists())
        self.assertIn("python3 -m venv .venv", calls)

    def test_keeps_a_folder_of_that_name_that_holds_something_else(self):
        self.given("venv-state", "damaged")
        mine = self.project / ".venv/mine.txt"
        mine.touch()
        status, said, _ = self.run_build()
        self.assertEqual(status, 1)
        self.assertIn("holds .venv/mine.txt, so it is not removed", said)
        self.assertTrue(mine.exists())

    def test_keeps_an_environment_that_it_cannot_judge(self):
        (self.home / "venv-state").unlink()
        status, said, calls = self.run_build()
        self.assertEqual(status, 1)
        self.assertIn("build.sh: .venv could not be checked", said)
        self.assertTrue((self.project / ".venv/bin/python").exists())
        self.assertEqual(self.calls_of(calls, "cmake"), [])

    def test_keeps_what_is_meant_for_another_python_from_the_environments(self):
        python = self.project / ".venv/bin/python"
        python.write_text(python.read_text().replace(
            "#!/bin/bash\n", "#!/bin/bash\n[[ -z ${PYTHONPATH+x}${PYTHONHOME+x} ]] || exit 1\n"))
        status, said, _ = self.run_build(PYTHONPATH="/elsewhere", PYTHONHOME="/elsewhere")
        self.assertEqual(status, 0, said)
        self.assertIn("Python environment .venv: complete", said)

    def test_stops_where_pip_fails(self):
        self.given("venv-state", "lacking")
        self.given("pip-status", "1")
        status, said, calls = self.run_build()
        self.assertEqual(status, 1)
        self.assertIn("build.sh: pip could not install: torch==2.11.0", said)
        self.assertEqual(self.calls_of(calls, "cmake"), [])

    def test_does_not_install_torch_beside_a_named_libtorch(self):
        self.given("venv-state", "lacking")
        header = self.home / "libtorch/include/ATen/ATen.h"
        header.parent.mkdir(parents=True)
        header.touch()
        status, said, calls = self.run_build(CMAKE_PREFIX_PATH=f"/opt/other:{self.home}/libtorch")
        self.assertEqual(status, 0, said)
        self.assertNotIn("torch", self.calls_of(calls, "venv-python -m pip")[0])

    def pip_calls(self, calls):
        return self.calls_of(calls, "venv-python -m pip")

    def test_installs_nvcc_where_there_is_a_driver_but_no_toolkit_that_fits(self):
        self.given("driver", "NVRM version")
        for says in ("", "Cuda compilation tools, release 12.4, V12.4.131"):
            self.given("nvcc-says", says)
            (self.home / "calls").unlink(missing_ok=True)
            status, said, calls = self.run_build()
            self.assertEqual(status, 0, said)
            pip = self.pip_calls(calls)
            self.assertEqual(len(pip), 1, said)
            self.assertTrue(pip[0].endswith(
                " --no-deps nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88"
                " nvidia-cuda-cccl==13.0.85"), pip[0])

    def test_installs_no_nvcc_without_a_driver_or_beside_one_that_fits_or_twice(self):
        def installs():
            (self.home / "calls").unlink(missing_ok=True)
            status, said, calls = self.run_build()
            self.assertEqual(status, 0, said)
            return self.pip_calls(calls) != []

        self.assertFalse(installs())
        self.given("driver", "NVRM version")
        self.assertTrue(installs())
        self.given("nvcc-state", "complete")
        self.assertFalse(installs())
        self.given("nvcc-state", "lacking")
        self.given("nvcc-says", "Cuda compilation tools, release 13.0, V13.0.88")
        self.assertFalse(installs())

    def test_builds_also_where_nvcc_cannot_be_had(self):
        self.given("driver", "NVRM version")
        self.given("pip-status", "1")
        status, said, calls = self.run_build()
        self.assertEqual(status, 0, said)
        self.assertIn("LibTorch's slower operations will serve", said)
        self.assertEqual(len(self.calls_of(calls, "cmake")), 2)

    def test_stops_where_cmake_fails(self):
        self.given("cmake-status", "1")
        status, said, calls = self.run_build()
        self.assertEqual(status, 1)
        self.assertTrue(said.endswith("build.sh: cmake failed (see above)\n"), said)
        self.assertEqual(len(self.calls_of(calls, "cmake")), 1)


if __name__ == "__main__":
    unittest.main()
