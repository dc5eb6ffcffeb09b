"""The program under what people start jobs with: torchrun, mpirun, srun; and on two machines, for
which two network namespaces stand."""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import time
import unittest
import uuid

import jobs

TORCHRUN = jobs.ROOT / ".venv/bin/torchrun"


class Torchrun(jobs.JobsTest):
    def command(self, run, ranks, settings=(), restarts=0):
        return [TORCHRUN, "--no-python", "--nproc-per-node", ranks, "--max-restarts", restarts,
                "--master-port", jobs.free_port(), *self.folder.training(run, settings)]

    def test_trains_to_the_same_bits(self):
        self.folder.train("whole", 2)
        outcome = self.folder.run(self.command("run", 2))
        self.assertEqual(outcome.status, 0, outcome.err)
        self.assertIn("2 processes by torchrun", outcome.err)
        self.assert_same_bits("run", "whole")

    def test_starts_a_job_again_of_which_a_rank_was_killed_and_it_goes_on_by_itself(self):
        settings = ["train.steps=400", "checkpoint.every=20", "validation.every=100"]
        self.folder.train("whole", 2, settings)
        for victim in (0, 1):
            run = f"run{victim}"
            with self.folder.start(self.command(run, 2, settings, restarts=2)) as job:
                self.until(lambda r=run: "saved" in self.folder.events(r), job)
                os.kill(job.ranks()[victim], signal.SIGKILL)
                outcome = job.wait()
                self.assertEqual(outcome.status, 0, outcome.err)
                self.assert_all_gone(job)
            self.assertIn("resumed", self.folder.events(run))
            self.assertEqual(self.folder.column(run, "train", "step"), list(range(1, 401)))
            self.assert_same_bits(run, "whole")


def mpirun():
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


class Mpirun(jobs.JobsTest):
    def setUp(self):
        if not shutil.which("mpirun"):
            self.skipTest("there is no mpirun (Debian's package is openmpi-bin)")
        super().setUp()
        # Away from a session that another mpirun on this machine has.
        self.own = {"OMPI_MCA_orte_tmpdir_base": str(self.folder.path),
                    "OMPI_MCA_plm": "isolated"}

    def test_trains_to_the_same_losses(self):
        self.folder.train("one", 1)
        outcome = self.folder.run([*mpirun(), "-n", 3, *self.folder.training("run")], self.own)
        self.assertEqual(outcome.status, 0, outcome.err)
        self.assertIn("3 processes by mpirun", outcome.err)
        self.assert_same_losses("run", "one", 2e-6)

    def test_ends_a_job_of_which_a_rank_was_killed(self):
        with self.folder.start([*mpirun(), "-n", 2, *self.folder.training("run", jobs.ENDLESS)],
                               self.own) as job:
            self.until_step("run", 3, job)
            os.kill(job.ranks()[1], signal.SIGKILL)
            self.assertNotEqual(job.wait(60).status, 0)
            self.assert_all_gone(job)


SRUN = """#!/bin/sh
# Starts the tasks of one step on this machine, as srun does: srun -n TASKS COMMAND..
tasks=$2
shift 2
task=0
started=
while [ $task -lt "$tasks" ]; do
  SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NODEID=0 \\
    SLURM_NTASKS=$tasks SLURM_STEP_NUM_TASKS=$tasks SLURM_STEP_TASKS_PER_NODE=$tasks \\
    SLURM_STEP_NODELIST=$(hostname) MASTER_PORT=$PORT "$@" &
  started="$started $!"
  task=$((task + 1))
done
status=0
for job in $started; do
  wait "$job" || status=$?
done
exit $status
"""


class Srun(jobs.JobsTest):
    """By a stand-in, since no machine of a cluster is here."""

    def start(self, tasks, settings=()):
        script = self.folder.path / "srun"
        script.write_text(SRUN)
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        return self.folder.start([script, "-n", tasks, *self.folder.training("run", settings)],
                                 {"PORT": str(jobs.free_port())})

    def test_trains_to_the_same_bits(self):
        self.folder.train("whole", 2)
        with self.start(2) as job:
            outcome = job.wait()
        self.assertEqual(outcome.status, 0, outcome.err)
        self.assertIn("2 processes by srun", outcome.err)
        self.assert_same_bits("run", "whole")

    def test_saves_once_when_it_hands_a_signal_to_all(self):
        with self.start(2, jobs.ENDLESS) as job:
            self.until_step("run", 3, job)
            for process in job.ranks().values():
                os.kill(process, signal.SIGTERM)
            self.assertEqual(job.wait().status, 143)
        self.assertEqual(self.folder.events("run").count("saved"), 1)

    def test_leaves_the_script_of_a_job_that_is_no_step_to_one_process(self):
        # As sbatch sets them for the script itself.
        outcome = self.folder.run(self.folder.training("run"),
                                  {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"})
        self.assertEqual(outcome.status, 0, outcome.err)
        self.assertNotIn("processes", outcome.err)


class TwoMachines(jobs.JobsTest):
    """Two network namespaces that a pair of virtual interfaces joins."""

    def setUp(self):
        super().setUp()
        self.names = [f"tn{uuid.uuid4().hex[:6]}{side}" for side in "ab"]
        self.addCleanup(self.remove)
        try:
            for name in self.names:
                self.ip("netns", "add", name)
            self.ip("link", "add", self.names[0], "netns", self.names[0], "type", "veth", "peer",
                    "name", self.names[1], "netns", self.names[1])
            for number, name in enumerate(self.names, start=1):
                self.ip("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", name)
                for interface in (name, "lo"):
                    self.ip("-n", name, "link", "set", interface, "up")
        except (OSError, subprocess.CalledProcessError) as fault:
            reason = getattr(fault, "stderr", None) or str(fault)
            self.skipTest(f"network namespaces cannot be made here: {reason.strip()}")

    @staticmethod
    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)

    def remove(self):
        for name in self.names:
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                self.ip("netns", "delete", name)

    def start(self, settings=()):
        port = jobs.free_port()
        started = []
        for rank, name in enumerate(self.names):
            job = self.folder.start(
                ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c",
                 'hostname "$0" && exec "$@"', f"machine-{rank}",
                 *self.folder.training("run", settings)],
                {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                 "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": str(port)})
            self.addCleanup(job.__exit__)
            started.append(job)
        return started

    def test_train_to_the_same_bits(self):
        self.folder.train("whole", 2)
        for job in self.start():
            outcome = job.wait()
            self.assertEqual(outcome.status, 0, outcome.err)
        self.assert_same_bits("run", "whole")

    def test_both_end_when_the_link_between_them_is_cut(self):
        started = self.start(jobs.ENDLESS)
        self.until_step("run", 3, started[0])
        self.ip("-n", self.names[0], "link", "set", self.names[0], "down")
        begun = time.monotonic()
        for rank, job in enumerate(started):
            outcome = job.wait(60)
            self.assertEqual(outcome.status, 1, outcome.err)
            self.assertLess(time.monotonic() - begun, 15 + 8)
            self.assertEqual(len(outcome.faults()), 1, outcome.err)
            self.assertIn(f"rank {1 - rank} on machine-{1 - rank}", outcome.faults()[0])


if __name__ == "__main__":
    unittest.main()
