"""scripts/launch trains by each launcher to the losses of one process."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts/launch"
PROGRAM = pathlib.Path(os.environ.get("TRANSNORMER_PROGRAM", ROOT / "build/transnormer"))
PROCESSES = 2
SECONDS = 300  # at most, for a training

# What srun tells each task, on one machine.
SRUN = """#!/usr/bin/env python3
import os, pathlib, subprocess, sys
words = sys.argv[1:]
options = [word for word in words if word.startswith("--")]
options = options[:next((i for i, word in enumerate(words) if not word.startswith("--")))]
pathlib.Path(os.environ["NOTES"], "srun").write_text(" ".join(options))
tasks = []
for rank in range({processes}):
    variables = dict(SLURM_JOB_ID="4711", SLURM_STEP_ID="0", SLURM_PROCID=str(rank),
                     SLURM_LOCALID=str(rank), SLURM_NODEID="0", SLURM_STEP_NUM_TASKS="{processes}",
                     SLURM_STEP_TASKS_PER_NODE="{processes}", SLURM_STEP_NODELIST="localhost")
    tasks.append(subprocess.Popen(words[len(options):], env={{**os.environ, **variables}}))
sys.exit(max(task.wait() for task in tasks))
"""


def environment(**variables):
    """Without what a launcher around the test has set."""
    own = {name: value for name, value in os.environ.items()
           if not name.startswith(("SLURM_", "OMPI_", "PMI", "TORCHELASTIC_"))
           and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}
    return {**own, **{name: str(value) for name, value in variables.items()}}


class TheScripts(unittest.TestCase):
    def test_are_sound_bash(self):
        scripts = sorted(SCRIPTS.glob("*.s*"))
        self.assertEqual([script.name for script in scripts],
                         ["mpirun.sh", "slurm.sbatch", "torchrun.sh"])
        for script in scripts:
            subprocess.run(["bash", "-n", script], check=True)

    def test_ask_for_a_number_where_there_is_no_gpu(self):
        with tempfile.TemporaryDirectory() as folder:
            nvidia_smi = pathlib.Path(folder, "nvidia-smi")
            nvidia_smi.write_text("#!/bin/sh\nexit 9\n")
            nvidia_smi.chmod(0o755)
            for name in ("torchrun.sh", "mpirun.sh"):
                done = subprocess.run(
                    [SCRIPTS / name, "some.json"], capture_output=True, text=True,
                    env=environment(PATH=f"{folder}:{os.environ['PATH']}"))
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, f"^{name}: no GPU here; .*NPROC=2 .*some.json\n$")

    def test_ask_where_several_machines_meet(self):
        done = subprocess.run([SCRIPTS / "torchrun.sh", "some.json"], capture_output=True, text=True,
                              env=environment(NPROC=2, NODES=2))
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1))
        self.assertIn("2 machines need HEAD", done.stderr)


@unittest.skipUnless(PROGRAM.exists(), f"{PROGRAM} is not built")
class Training(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # A project of its own, whose program is the one to be tested.
        (self.folder / "build").mkdir()
        (self.folder / "build/transnormer").symlink_to(PROGRAM)
        shutil.copytree(SCRIPTS, self.folder / "scripts/launch")
        if (ROOT / ".venv").exists():
            (self.folder / ".venv").symlink_to(ROOT / ".venv")

    def arguments(self, name, steps=10):
        return [ROOT / "configs/tiny.json", "--run-dir", self.folder / name, "--device", "cpu",
                "--set", f"train.steps={steps}", "--set", "log.every=1",
                "--set", f"data.cache_dir={self.folder / 'cache'}"]

    def losses(self, name):
        lines = (self.folder / name / "metrics.jsonl").read_text().splitlines()
        return [line["loss"] for line in map(json.loads, lines) if line["kind"] == "train"]

    def run_script(self, name, *arguments, **variables):
        return subprocess.run([self.folder / "scripts/launch" / name, *arguments],
                              capture_output=True, text=True, cwd=self.folder, timeout=SECONDS,
                              env=environment(NPROC=PROCESSES, OMP_WAIT_POLICY="passive",
                                              **variables))

    def assert_trains_as_one_process(self, done, name):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"{PROCESSES} processes by", (self.folder / name / "train.log").read_text())
        subprocess.run([PROGRAM, "train", *self.arguments("alone")], check=True,
                       capture_output=True, env=environment())
        alone, together = self.losses("alone"), self.losses(name)
        self.assertEqual((len(alone), len(together)), (10, 10))
        for one, several in zip(alone, together):
            self.assertAlmostEqual(several / one, 1, delta=1e-6)

    def test_by_torchrun(self):
        if not (ROOT / ".venv/bin/torchrun").exists():
            self.skipTest("torchrun is not in .venv")
        self.assert_trains_as_one_process(
            self.run_script("torchrun.sh", *self.arguments("torchrun")), "torchrun")

    def test_by_mpirun(self):
        if shutil.which("mpirun") is None:
            self.skipTest("mpirun is not here (Debian's package is openmpi-bin)")
        self.assert_trains_as_one_process(
            self.run_script("mpirun.sh", *self.arguments("mpirun"), OMPI_ALLOW_RUN_AS_ROOT=1,
                            OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1,
                            OMPI_MCA_rmaps_base_oversubscribe=1), "mpirun")

    def command(self, name, text):
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run_job(self, *arguments):
        return subprocess.run(
            ["bash", SCRIPTS / "slurm.sbatch", *arguments], capture_output=True, text=True,
            cwd=self.folder, timeout=SECONDS,
            env=environment(PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}", NOTES=self.folder,
                            SLURM_JOB_ID=4711, OMP_WAIT_POLICY="passive"))

    def test_by_srun(self):
        self.command("srun", SRUN.format(processes=PROCESSES))
        self.assert_trains_as_one_process(self.run_job(*self.arguments("slurm")), "slurm")
        self.assertIn("--kill-on-bad-exit=1", (self.folder / "srun").read_text())

    def test_a_job_that_was_stopped_is_queued_again_and_no_other(self):
        self.command("scontrol", '#!/bin/sh\necho "$*" >>"$NOTES/scontrol"\n')
        for status in (0, 1, 2, 3, 143):
            self.command("srun", f"#!/bin/sh\nexit {status}\n")
            self.assertEqual(self.run_job("some.json").returncode, status)
        self.assertEqual((self.folder / "scontrol").read_text(), "requeue 4711\n")


if __name__ == "__main__":
    unittest.main()
