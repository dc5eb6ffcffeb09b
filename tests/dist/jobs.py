"""Runs the program as jobs of several processes, in a folder with small texts."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("TRANSNORMER_PROGRAM", str(ROOT / "build/transnormer"))
MARK = "TRANSNORMER_TEST_JOB"  # in the environment of all processes of a job
PATIENCE = 240  # seconds for what is not about time, on a machine with much else to do

CONFIG = {
    "model": {"variant": "custom", "layers": 2, "dim": 16, "heads": 2,
              "early": {"attention": "diag", "block": 8}},
    "data": {"train": "train.txt", "valid": "valid.txt", "test": "test.txt",
             "cache_dir": "cache", "tokens_per_sample": 24},
    "schedule": {"warmup_steps": 2},
    "train": {"steps": 12, "global_batch_size": 12, "threads": 1, "device": "cpu"},
    "validation": {"every": 5},
    "checkpoint": {"every": 4},
    "log": {"every": 1, "grad_stats_every": 3, "tensorboard": False},
}
# Goes on until it is ended.
ENDLESS = ["train.steps=1000000", "validation.every=0", "checkpoint.every=0",
           "log.grad_stats_every=0"]


def text_of(lines, seed):
    words = "the river ran over stones and sang to hill at dawn .".split()
    choose = random.Random(seed)
    return "".join(" ".join(choose.choices(words, k=choose.randint(3, 11))) + "\n"
                   for _ in range(lines))


def environment(extra=None):
    """Of this process, without what a launcher around it has set."""
    launchers = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
    return kept | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"} | (extra or {})


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def sets_of(settings):
    return [word for setting in settings for word in ("--set", setting)]


class Outcome:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def faults(self):
        """What was told beyond progress."""
        return [line for line in self.err.splitlines() if " info  " not in line]


class Job:
    """A started command and all processes that come of it. Killed when dropped."""

    def __init__(self, command, folder, extra=None):
        self.mark = uuid.uuid4().hex
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            list(map(str, command)), cwd=folder, stdin=subprocess.DEVNULL, stdout=self._out,
            stderr=self._err, env=environment({MARK: self.mark} | (extra or {})))
        self.pid = self._process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._out.closed:
            return
        for _ in range(3):  # a starter may have started another in between
            for process in [self.pid] * self.is_running() + list(self._environments()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        self._process.wait()
        self._out.close()
        self._err.close()

    def _environments(self):
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit():
                    text = (entry / "environ").read_bytes().decode(errors="replace")
                    if f"{MARK}={self.mark}" in text:
                        found[int(entry.name)] = dict(
                            part.partition("=")[::2] for part in text.split("\0"))
        return found

    def ranks(self):
        """Process number of each rank that runs the program."""
        ranks = {}
        for process, variables in self._environments().items():
            with contextlib.suppress(OSError):
                if os.path.basename(os.readlink(f"/proc/{process}/exe")) == "transnormer":
                    rank = next((variables[name] for name in
                                 ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
                                 if name in variables), None)
                    if rank is not None:
                        ranks[int(rank)] = process
        return ranks

    def living(self):
        """Of all processes of the job but the one that was started."""
        return [process for process in self._environments() if process != self.pid]

    def is_running(self):
        return self._process.poll() is None

    def send(self, number):
        if self.is_running():
            os.kill(self.pid, number)

    def err(self):
        self._err.seek(0)
        return self._err.read().decode(errors="replace")

    def wait(self, timeout=PATIENCE):
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s; it said:\n{self.err()}") from None
        self._out.seek(0)
        return Outcome(status, self._out.read().decode(errors="replace"), self.err())


class Folder:
    """A temporary directory with texts, a config and the runs that are made there."""

    def __init__(self, config=None):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="transnormer-jobs-"))
        for name, lines, seed in (("train", 120, 1), ("valid", 20, 2), ("test", 20, 3)):
            (self.path / f"{name}.txt").write_text(text_of(lines, seed))
        (self.path / "tiny.json").write_text(json.dumps(config or CONFIG))

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)

    @staticmethod
    def training(run, settings=(), config="tiny.json"):
        return [PROGRAM, "train", config, "--run-dir", run, *sets_of(settings)]

    def start(self, command, extra=None):
        return Job(command, self.path, extra)

    def start_training(self, run, ranks, settings=(), extra=None):
        count = ["--nproc", ranks] if ranks > 1 else []
        return self.start(self.training(run, settings) + count, extra)

    def run(self, command, extra=None):
        with self.start(command, extra) as job:
            return job.wait()

    def train(self, run, ranks, settings=(), status=0):
        with self.start_training(run, ranks, settings) as job:
            outcome = job.wait()
        assert outcome.status == status, f"status {outcome.status}:\n{outcome.err}"
        return outcome

    def lines(self, run, kind):
        """Of metrics.jsonl, as far as it is there."""
        lines = []
        with contextlib.suppress(FileNotFoundError):
            for line in (self.path / run / "metrics.jsonl").read_bytes().splitlines():
                if f'"kind":"{kind}"'.encode() in line:
                    with contextlib.suppress(ValueError):  # the last may be half written
                        lines.append(json.loads(line))
        return lines

    def column(self, run, kind, name):
        return [line[name] for line in self.lines(run, kind)]

    def events(self, run):
        return self.column(run, "event", "event")

    def latest(self, run):
        return os.readlink(self.path / run / "checkpoints/latest")

    def bits(self, run, step=None):
        """Of weights, their mean and optimizer in the newest checkpoint, or that of a step."""
        name = f"step-{step:08}" if step is not None else "latest"
        folder = self.path / run / "checkpoints" / name
        return {file.name: file.read_bytes() for file in folder.glob("*.safetensors")}

    def content(self):
        """Of all files but caches and locks: what a refused command must not change."""
        return {str(file.relative_to(self.path)): file.read_bytes()
                for file in sorted(self.path.rglob("*"))
                if file.is_file() and "cache" not in file.parts and not file.name.endswith(".lock")}


class JobsTest(unittest.TestCase):
    """Each test has a folder of its own."""

    longMessage = True

    def setUp(self):
        self.folder = Folder()
        self.addCleanup(self.folder.remove)

    def until(self, reached, job=None, timeout=PATIENCE):
        """Waits; fails where the job ends before."""
        end = time.monotonic() + timeout
        while not reached():
            if job is not None and not job.is_running():
                self.fail(f"it ended:\n{job.err()}")
            if time.monotonic() > end:
                self.fail(f"not reached; it said:\n{job.err() if job else ''}")
            time.sleep(0.05)

    def until_step(self, run, step, job):
        self.until(lambda: len(self.folder.lines(run, "train")) >= step, job)

    def assert_all_gone(self, job, timeout=10):
        self.until(lambda: not job.living(), timeout=timeout)

    def assert_same_bits(self, run, other):
        self.assertEqual(self.folder.latest(run), self.folder.latest(other))
        self.assertTrue(self.folder.bits(run) == self.folder.bits(other),
                        f"{run} and {other} have other weights or another optimizer")

    def assert_same_losses(self, run, other, tolerance):
        """Step by step, relative."""
        for kind in ("train", "valid"):
            expected = self.folder.lines(other, kind)
            got = self.folder.lines(run, kind)
            self.assertEqual([line["step"] for line in got], [line["step"] for line in expected])
            for mine, theirs in zip(got, expected):
                self.assertEqual(mine["tokens"], theirs["tokens"])
                self.assertLess(abs(mine["loss"] / theirs["loss"] - 1), tolerance,
                                f"{run} and {other} at step {mine['step']}, {kind}")
