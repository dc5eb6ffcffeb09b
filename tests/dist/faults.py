"""Lets faults happen to small runs, many times over, and looks at what is left of them.

Each round trains one run in 1 to 3 processes, disturbs it once or twice (processes killed at any
moment, at any stage of a save; a full disk; flipped bits; a second writer; a clock that jumps), and
lets it go on to its end. The end must have the same bits as a run that nothing happened to; no whole
checkpoint may be lost on the way, and the metrics must tell of every step once, in order.

  tests/dist/faults.py --rounds 1000             as many as wanted; says which seed it took
  tests/dist/faults.py --seed 7 --only 31        one round again
"""

import argparse
import contextlib
import errno
import hashlib
import json
import os
import random
import re
import signal
import sys
import time

import jobs

LIBRARY = os.environ.get("TRANSNORMER_FAULTY_CALLS",
                         str(jobs.ROOT / "build/tests/cli/libtransnormer_faulty_calls.so"))
STEPS = 24
SETTINGS = [f"train.steps={STEPS}", "checkpoint.every=3", "checkpoint.keep_last=3",
            "validation.every=8", "log.grad_stats_every=4", "distributed.timeout_s=60"]
# Calls of a training from its first save on, about.
CALLS_OF_A_RUN = {"rename": 20, "renameat2": 1, "fsync": 120, "write": 300, "mkdir": 8, "symlink": 16,
                  "remove": 60}
DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class Wrong(Exception):
    """What the round found."""


def require(holds, what):
    if not holds:
        raise Wrong(what)


class Round:
    """One run, what happens to it, and what must hold."""

    def __init__(self, folder, number, seed, references):
        self.folder, self.references = folder, references
        self.choose = random.Random(f"{seed}/{number}")
        self.run = f"run-{number}"
        self.path = folder.path / self.run
        self.ranks = self.choose.choice((1, 2, 2, 3))
        self.sharded = self.ranks > 1 and self.choose.random() < 0.5
        self.cache = f"cache-{number}"
        self.told = []  # what was done, for people
        self.may_lack_records = False
        self.may_have_flipped_records = False

    def settings(self):
        return [*SETTINGS, f"distributed.shard_optimizer={json.dumps(self.sharded)}"]

    def start(self, extra=None):
        return self.folder.start_training(
            self.run, self.ranks, [*self.settings(), f"data.cache_dir={self.cache}"], extra)

    def faulty(self, calls="", clock=""):
        extra = {"LD_PRELOAD": LIBRARY, "FAULTY_PATH": f"/{self.run}/"}
        return extra | ({"FAULTY_CALLS": calls} if calls else {}) | (
            {"FAULTY_CLOCK": clock} if clock else {})

    def reference(self):
        """Name of a run that nothing happened to."""
        key = (self.ranks, self.sharded)
        if key not in self.references:
            name = f"reference-{self.ranks}{'-sharded' if self.sharded else ''}"
            self.folder.train(name, self.ranks, self.settings())
            self.references[key] = name
        return self.references[key]

    # --- What is there.

    def whole_checkpoints(self):
        """Steps of those that are what their manifests say."""
        steps = []
        for folder in sorted((self.path / "checkpoints").glob("step-*")):
            with contextlib.suppress(OSError, ValueError, KeyError):
                manifest = json.loads((folder / "manifest.json").read_text())
                step = int(folder.name.removeprefix("step-"))
                sound = manifest["format"] == 1 and manifest["step"] == step and (
                    manifest["tokens"] ==
                    json.loads((folder / "state.json").read_text())["tokens"]) and all(
                    isinstance(manifest[key], kind)
                    for key, kind in (("program", str), ("tokens", int)))
                if sound and all(
                        hashlib.sha256((folder / name).read_bytes()).hexdigest() == entry["sha256"]
                        and (folder / name).stat().st_size == entry["size"]
                        for name, entry in manifest["files"].items()):
                    steps.append(step)
        return steps

    def end(self, job, allowed):
        """Waits for it; returns what came of it."""
        outcome = job.wait(180)
        require(outcome.status in allowed,
                f"status {outcome.status}, expected one of {allowed}:\n{outcome.err}")
        require("internal error" not in outcome.err, outcome.err)
        end = time.monotonic() + 30
        while job.living():
            require(time.monotonic() < end, "processes were left behind")
            time.sleep(0.02)
        return outcome

    # --- What happens.

    def disturb(self):
        happening = self.choose.choice((
            self.kill_one, self.kill_one, self.kill_all, self.stop_one, self.kill_in_a_save,
            self.kill_in_a_save, self.fill_the_disk, self.flip_a_bit, self.flip_a_bit,
            self.start_a_second, self.let_the_clock_jump))
        happening()

    def await_moment(self, job):
        """Some time between its start and its end."""
        if self.choose.random() < 0.15:
            time.sleep(self.choose.uniform(0, 0.8))
            return
        step = self.choose.randint(0, STEPS)
        while job.is_running() and len(self.folder.lines(self.run, "train")) < step:
            time.sleep(0.004)
        time.sleep(self.choose.uniform(0, 0.03))

    def processes(self, job):
        """The one that was started, and the ranks where they are others."""
        return list(dict.fromkeys([job.pid, *(process for _, process in sorted(job.ranks().items()))]))

    def holds_the_lock(self, job):
        with contextlib.suppress(FileNotFoundError):
            holder = (self.path / ".lock").read_text().strip()
            return holder in map(str, self.processes(job))
        return False

    def send(self, process, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)

    def kill_one(self):
        with self.start() as job:
            self.await_moment(job)
            processes = self.processes(job)
            victim = self.choose.randrange(len(processes))
            self.told.append(f"process {victim} of {len(processes)} killed")
            self.send(processes[victim], signal.SIGKILL)
            self.end(job, (0, 1, -signal.SIGKILL))

    def kill_all(self):
        """As where the machine stops."""
        with self.start() as job:
            self.await_moment(job)
            self.told.append("all processes killed")
            for process in self.processes(job):
                self.send(process, signal.SIGKILL)
            self.end(job, (0, 1, -signal.SIGKILL))

    def stop_one(self):
        number = self.choose.choice((signal.SIGTERM, signal.SIGINT, signal.SIGUSR1))
        with self.start() as job:
            # Until it can answer signals, they end a process.
            while job.is_running() and not self.holds_the_lock(job):
                time.sleep(0.004)
            self.await_moment(job)
            processes = self.processes(job)
            victim = self.choose.randrange(len(processes))
            self.told.append(f"{number.name} to process {victim} of {len(processes)}")
            self.send(processes[victim], number)
            self.end(job, (0,) if number == signal.SIGUSR1 else (0, 128 + number))

    def kill_in_a_save(self):
        call = self.choose.choice(list(CALLS_OF_A_RUN))
        rule = f"{call}:kill@{self.choose.randint(1, CALLS_OF_A_RUN[call])}"
        self.told.append(rule)
        with self.start(self.faulty(rule)) as job:
            self.end(job, (0, 1, -signal.SIGKILL))

    def fill_the_disk(self):
        error = self.choose.choice(DISK_IS_FULL)
        call = self.choose.choice(("write", "write", "fsync", "mkdir", "rename", "symlink"))
        first = self.choose.randint(1, CALLS_OF_A_RUN[call])
        rule = f"{call}:{error}@{first}+{self.choose.choice((1, 5, 30, 10000))}"
        self.told.append(rule)
        self.may_lack_records = True
        with self.start(self.faulty(rule)) as job:
            self.end(job, (0, 2, 4))

    def let_the_clock_jump(self):
        jump = self.choose.choice((-1, 1)) * self.choose.choice((2, 3600, 86400 * 400))
        clock = f"{jump:+d}@{self.choose.randint(1, 300)}"
        self.told.append(f"clock {clock}")
        with self.start(self.faulty(clock=clock)) as job:
            if self.choose.random() < 0.5:
                self.await_moment(job)
                self.send(job.pid, signal.SIGKILL)
            self.end(job, (0, -signal.SIGKILL))

    def start_a_second(self):
        with self.start() as job:
            while job.is_running() and not (self.path / ".lock").exists():
                time.sleep(0.004)
            self.await_moment(job)
            self.told.append("a second writer")
            with self.start() as second:
                late = self.end(second, (0, 2))
            require(late.status == 0 or len(late.faults()) == 1, late.err)
            self.end(job, (0, 2) if late.status == 0 else (0,))

    def flip_a_bit(self):
        """In a file of a run that was killed, or has ended."""
        self.kill_one()
        files = [file for place in (self.path, self.folder.path / self.cache)
                 for file in sorted(place.rglob("*"))
                 if file.is_file() and not file.is_symlink() and file.stat().st_size > 0
                 and "tensorboard" not in file.parts and file.name != ".lock"]
        if not files:
            return
        # Those of checkpoints are many; each kind is as likely.
        kind = self.choose.choice(sorted({file.parent.parent.name == "checkpoints" for file in files}))
        file = self.choose.choice([file for file in files
                                   if (file.parent.parent.name == "checkpoints") == kind])
        before = file.read_bytes()
        after = bytearray(before)
        place = self.choose.randrange(len(after))
        after[place] ^= 1 << self.choose.randrange(8)
        file.write_bytes(after)
        name = file.relative_to(self.folder.path)
        self.told.append(f"a bit of byte {place} of {name} flipped")
        self.may_have_flipped_records |= file.name == "metrics.jsonl"
        outcome = self.go_on((0, 2))
        if outcome.status == 2:
            # It was refused; the user brings the file back.
            require(str(file.name) in outcome.err or str(file.parent.name) in outcome.err
                    or str(self.run) in outcome.err, f"does not name {name}:\n{outcome.err}")
            for damaged in (self.path / "checkpoints").glob(".damaged-*"):
                damaged.rename(damaged.with_name(damaged.name.removeprefix(".damaged-")))
            file.write_bytes(before)

    # --- What comes of it.

    def go_on(self, allowed=(0,)):
        """From the newest whole checkpoint."""
        whole = self.whole_checkpoints()
        with self.start() as job:
            outcome = self.end(job, allowed)
        if outcome.status == 0:
            origin = re.search(rf"resumed from {self.run}/checkpoints/step-(\d+)", outcome.err)
            ended = "this run has ended" in outcome.err
            if whole and not ended:
                require(origin and int(origin[1]) == whole[-1],
                        f"whole checkpoints {whole}, but:\n{outcome.err}")
        return outcome

    def judge(self):
        reference = self.reference()
        latest = self.folder.latest(self.run)
        require(latest == self.folder.latest(reference), f"its latest checkpoint is {latest}")
        require(self.folder.bits(self.run) == self.folder.bits(reference),
                "other weights or another optimizer than in an undisturbed run")
        require(self.whole_checkpoints()[-1] == STEPS, "its last checkpoint is not whole")
        left = [file.name for file in (self.path / "checkpoints").iterdir()
                if file.name.startswith(".tmp")]
        require(not left, f"left behind: {left}")
        self.judge_metrics(reference)

    def judge_metrics(self, reference):
        for kind in ("train", "valid"):
            expected = {line["step"]: line["loss"] for line in self.folder.lines(reference, kind)}
            lines = self.folder.lines(self.run, kind)
            steps = [line["step"] for line in lines]
            require(steps == sorted(set(steps)), f"{kind} lines are of steps {steps}")
            if self.may_have_flipped_records:
                continue
            lacking = sorted(set(expected) - set(steps))
            require(not lacking or self.may_lack_records, f"no {kind} lines of steps {lacking}")
            for line in lines:
                require(line["loss"] == expected.get(line["step"]),
                        f"{kind} line of step {line['step']}: loss {line['loss']}, expected "
                        f"{expected.get(line['step'])}")

    def play(self):
        for _ in range(self.choose.choice((1, 1, 2))):
            self.disturb()
        self.go_on()
        self.judge()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, help="one of its own choice unless told")
    parser.add_argument("--only", type=int, help="this round alone")
    parser.add_argument("--keep", action="store_true", help="leave the files of a failed round")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    rounds = range(options.rounds) if options.only is None else [options.only]
    print(f"seed {seed}", flush=True)
    folder = jobs.Folder()
    references = {}
    failed = []
    began = time.monotonic()
    for number in rounds:
        this = Round(folder, number, seed, references)
        try:
            this.play()
        except (Wrong, AssertionError, OSError) as fault:
            failed.append(number)
            print(f"round {number} ({this.ranks} ranks{', sharded' if this.sharded else ''}; "
                  f"{'; '.join(this.told)}): {fault}\n"
                  f"again: {sys.argv[0]} --seed {seed} --only {number}", flush=True)
            if options.keep:
                print(f"its files: {this.path}")
    print(f"{len(rounds)} rounds in {time.monotonic() - began:.0f} s, {len(failed)} failed"
          + (f": {failed}; seed {seed}" if failed else ""))
    if not (failed and options.keep):
        folder.remove()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
