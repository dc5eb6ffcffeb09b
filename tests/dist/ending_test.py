"""However a job of several processes ends, it ends as one: saved where that was asked for, or with
one line that names who is at fault."""

import os
import signal
import socket
import time
import unittest

import jobs

HOST = socket.gethostname()
BOUND = 10  # seconds from the death of a rank to the end of the job
MARGIN = 8  # for a machine that does much else
SHARDED = "distributed.shard_optimizer=true"


class EndingTest(jobs.JobsTest):
    def start(self, run, ranks, settings=()):
        return self.folder.start_training(run, ranks, [*jobs.ENDLESS, *settings])

    def under_way(self, run, job, ranks):
        """Its processes, once it trains."""
        self.until_step(run, 3, job)
        found = job.ranks()
        self.assertEqual(sorted(found), list(range(ranks)))
        return found

    def assert_goes_on_to_the_same_bits(self, run, ranks, settings=()):
        """From where it was saved, as if it had never stopped."""
        end = int(self.folder.latest(run).removeprefix("step-")) + 4
        last = [*jobs.ENDLESS, f"train.steps={end}", *settings]
        self.folder.train(run, ranks, last)
        self.folder.train("whole", ranks, last)
        self.assert_same_bits(run, "whole")
        self.assertEqual(self.folder.column(run, "train", "step"), list(range(1, end + 1)))


class AJobThatIsAskedToStop(EndingTest):
    def assert_stops(self, number, status, target, ranks=2, settings=()):
        """target: the process among all, by rank; -1 is the one that started them."""
        run = f"run{number}-{target}"
        with self.start(run, ranks, settings) as job:
            processes = self.under_way(run, job, ranks) | {-1: job.pid}
            os.kill(processes[target], number)
            outcome = job.wait()
            self.assertEqual(outcome.status, status, outcome.err)
            self.assert_all_gone(job)
        self.assertEqual(self.folder.events(run).count("saved"), 1)
        self.assertEqual(self.folder.events(run).count("interrupted"), 1)
        return run

    def test_at_any_rank_saves_once_and_stops(self):
        for rank in (0, 1, 2):
            self.assert_stops(signal.SIGTERM, 143, rank, ranks=3)
        run = self.assert_stops(signal.SIGINT, 130, 1)
        self.assert_goes_on_to_the_same_bits(run, 2)

    def test_at_its_starter_saves_once_and_stops(self):
        self.assert_stops(signal.SIGTERM, 143, -1)
        run = self.assert_stops(signal.SIGINT, 130, -1, settings=[SHARDED])
        self.assert_goes_on_to_the_same_bits(run, 2, [SHARDED])

    def test_at_all_processes_saves_once_and_stops(self):
        with self.start("run", 3) as job:
            for process in [*self.under_way("run", job, 3).values(), job.pid]:
                os.kill(process, signal.SIGTERM)
            outcome = job.wait()
            self.assertEqual(outcome.status, 143, outcome.err)
            self.assert_all_gone(job)
        self.assertEqual(self.folder.events("run").count("saved"), 1)

    def test_or_to_save_at_any_process_saves_once_and_goes_on(self):
        with self.start("run", 2) as job:
            processes = self.under_way("run", job, 2) | {-1: job.pid}
            for saves, target in enumerate((0, 1, -1), start=1):
                os.kill(processes[target], signal.SIGUSR1)
                self.until(lambda n=saves: self.folder.events("run").count("saved") == n, job)
                step = self.folder.lines("run", "train")[-1]["step"]
                self.until(lambda s=step: self.folder.lines("run", "train")[-1]["step"] > s + 2, job)
            job.send(signal.SIGTERM)
            self.assertEqual(job.wait().status, 143)
        self.assertEqual(self.folder.events("run").count("saved"), 4)
        self.assert_goes_on_to_the_same_bits("run", 2)

    def test_during_validation_validates_again_when_it_goes_on(self):
        (self.folder.path / "valid.txt").write_text("the river ran over stones and sang\n" * 4000)
        settings = ["train.steps=4", "validation.every=3", "validation.batch_size=1"]
        self.folder.train("whole", 2, settings)
        with self.folder.start_training("run", 2, settings) as job:
            self.until_step("run", 3, job)
            os.kill(job.ranks()[1], signal.SIGTERM)
            self.assertEqual(job.wait().status, 143)
        self.assertEqual(self.folder.lines("run", "valid"), [])
        self.folder.train("run", 2, settings)
        self.assert_same_bits("run", "whole")
        self.assertEqual(self.folder.column("run", "valid", "loss"),
                         self.folder.column("whole", "valid", "loss"))

    def test_before_it_trains_stops(self):
        with self.start("run", 2) as job:
            self.until(lambda: len(job.ranks()) == 2, job)
            job.send(signal.SIGTERM)
            outcome = job.wait()
            self.assertEqual(outcome.status, 143, outcome.err)
            self.assertEqual(outcome.faults(), ["transnormer: stopped by SIGTERM"])
            self.assert_all_gone(job)


class AJobThatLosesARank(EndingTest):
    def assert_ends(self, job, begun, bound=BOUND):
        outcome = job.wait(bound + MARGIN + 60)
        took = time.monotonic() - begun
        self.assertEqual(outcome.status, 1, outcome.err)
        self.assertLess(took, bound + MARGIN, outcome.err)
        self.assert_all_gone(job)
        return outcome

    def assert_names(self, outcome, rank, words):
        """In one line."""
        faults = outcome.faults()
        self.assertEqual(len(faults), 1, outcome.err)
        self.assertIn(words, faults[0])
        self.assertIn(f"rank {rank}", faults[0])

    def test_ends_within_ten_seconds_and_names_it(self):
        for victim in (0, 1, 2):
            run = f"run{victim}"
            with self.start(run, 3, ["checkpoint.every=5"]) as job:
                processes = self.under_way(run, job, 3)
                self.until(lambda r=run: "saved" in self.folder.events(r), job)
                begun = time.monotonic()
                os.kill(processes[victim], signal.SIGKILL)
                outcome = self.assert_ends(job, begun)
                if victim == 0:
                    self.assert_names(outcome, 0, f"on {HOST} (process {processes[0]}) was ended by signal 9")
                else:
                    self.assert_names(outcome, victim, f"on {HOST} (process {processes[victim]}) has "
                                                       "ended without a word")
            step = int(self.folder.latest(run).removeprefix("step-")) + 1
            self.folder.train(run, 3, [*jobs.ENDLESS, f"train.steps={step}"])
            self.assertEqual(self.folder.column(run, "train", "step"), list(range(1, step + 1)))

    def test_or_its_starter_ends(self):
        with self.start("run", 2) as job:
            self.under_way("run", job, 2)
            os.kill(job.pid, signal.SIGKILL)
            job.wait()
            self.assert_all_gone(job)

    def test_finishes_the_save_in_flight(self):
        settings = ["train.steps=40", "checkpoint.every=4", "checkpoint.keep_last=100",
                    "validation.every=0"]
        self.folder.train("whole", 2, settings)
        with self.folder.start_training("run", 2, [*settings, "train.steps=1000000"]) as job:
            self.until(lambda: "saved" in self.folder.events("run"), job)
            os.kill(job.ranks()[1], signal.SIGKILL)
            self.assert_ends(job, time.monotonic())
        folder = self.folder.path / "run/checkpoints"
        self.assertEqual([file.name for file in folder.iterdir() if "tmp" in file.name], [])
        steps = [int(file.name.removeprefix("step-")) for file in folder.glob("step-*")]
        for step in (step for step in steps if step <= 40):
            self.assertTrue(self.folder.bits("run", step) == self.folder.bits("whole", step))

    def test_that_stands_still_ends_after_the_timeout_and_names_it(self):
        for victim in (1, 0):
            run = f"run{victim}"
            with self.start(run, 2, ["distributed.timeout_s=3"]) as job:
                processes = self.under_way(run, job, 2)
                begun = time.monotonic()
                os.kill(processes[victim], signal.SIGSTOP)
                outcome = self.assert_ends(job, begun, bound=3 + 15)
                self.assertGreater(time.monotonic() - begun, 3)
                self.assert_names(outcome, victim, "has not answered")

    def test_because_its_data_are_gone_says_so_once(self):
        with self.start("run", 2, ["checkpoint.every=5"]) as job:
            self.until(lambda: "saved" in self.folder.events("run"), job)
            before = self.folder.latest("run")
            for cache in (self.folder.path / "cache").glob("*"):
                if cache.is_file() and cache.stat().st_size > 100:
                    os.truncate(cache, 64)
            outcome = job.wait()
            self.assertIn(outcome.status, (1, 2), outcome.err)
            self.assert_all_gone(job)
            told = [line for line in outcome.faults() if "was cut off" in line]
            self.assertEqual(len(told), 1, outcome.err)
        self.assertGreaterEqual(self.folder.latest("run"), before)
        self.assertEqual(self.folder.events("run").count("done"), 0)

    def test_leaves_the_run_to_the_next_command(self):
        with self.start("run", 2, ["checkpoint.every=5"]) as job:
            self.until(lambda: "saved" in self.folder.events("run"), job)
            refused = self.folder.run(self.folder.training("run") + ["--nproc", 2])
            self.assertEqual(refused.status, 2)
            self.assertEqual(len(refused.faults()), 1, refused.err)
            self.assertTrue(job.is_running())
            job.send(signal.SIGKILL)
            job.wait()
            self.assert_all_gone(job)
        self.folder.train("run", 2, [*jobs.ENDLESS, "train.steps=1"])


if __name__ == "__main__":
    unittest.main()
