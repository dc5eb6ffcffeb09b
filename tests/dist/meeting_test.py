"""Processes that do not fit together say so in one line, and leave everything as it was."""

import os
import pathlib
import signal
import socket
import tempfile
import unittest

import jobs

HOST = socket.gethostname()


class Processes(jobs.JobsTest):
    """Started by hand, or by a launcher that does something wrong."""

    def start(self, rank, size, port, settings=(), config="tiny.json", run="run", extra=None):
        job = self.folder.start(
            self.folder.training(run, settings, config),
            {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(port)} | (extra or {}))
        self.addCleanup(job.__exit__)
        return job

    def assert_refused(self, started, words, status=2):
        """All of them end; together they say one line."""
        before = self.folder.content()
        outcomes = [job.wait() for job in started]
        said = [line for outcome in outcomes for line in outcome.faults()]
        self.assertEqual([outcome.status for outcome in outcomes], [status] * len(started), said)
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said[0], "^(transnormer: |[0-9:]* error  rank )")
        for word in words:
            self.assertIn(word, said[0])
        self.assertEqual(self.folder.content(), before)
        self.assertFalse((self.folder.path / "run/checkpoints").exists())
        for job in started:
            job.__exit__()

    def test_that_fit_together_train(self):
        self.folder.train("whole", 2)
        port = jobs.free_port()
        for job in [self.start(rank, 2, port) for rank in (1, 0)]:
            self.assertEqual(job.wait().status, 0)
        self.assert_same_bits("run", "whole")

    def test_of_which_one_never_comes(self):
        job = self.start(0, 3, jobs.free_port(), ["distributed.timeout_s=2"])
        self.assert_refused([job], ["ranks 1, 2 of 3 have not come within 2 s"])

    def test_of_which_the_first_never_comes(self):
        job = self.start(1, 2, jobs.free_port(), ["distributed.timeout_s=2"])
        self.assert_refused([job], [f"rank 1 on {HOST}: nobody answers at 127.0.0.1:"])

    def test_of_which_one_is_late_train(self):
        port = jobs.free_port()
        first = self.start(0, 2, port)
        self.until(lambda: "waiting for rank 1 of 2" in first.err(), first)
        second = self.start(1, 2, port)
        self.assertEqual([first.wait().status, second.wait().status], [0, 0])

    def test_that_count_differently(self):
        port = jobs.free_port()
        started = [self.start(0, 2, port), self.start(1, 3, port)]
        self.assert_refused(started, [f"rank 1 on {HOST} counts 3 processes, rank 0 counts 2"])

    def test_of_which_two_have_the_same_rank(self):
        port = jobs.free_port()
        first = self.start(0, 3, port)
        second = self.start(1, 3, port)
        self.until(lambda: "waiting for rank 2 of 3" in first.err(), first)
        third = self.start(1, 3, port)
        outcome = third.wait()
        self.assertEqual(outcome.status, 2)
        self.assertEqual(len(outcome.faults()), 1)
        self.assertIn(f"rank 1 on {HOST}: another process has this rank already", outcome.err)
        fourth = self.start(2, 3, port)  # the others are none the worse
        self.assertEqual([job.wait().status for job in (first, second, fourth)], [0, 0, 0])

    def test_whose_port_is_in_use(self):
        with socket.socket() as other:
            other.bind(("0.0.0.0", 0))
            other.listen()
            port = other.getsockname()[1]
            job = self.start(0, 2, port)
            self.assert_refused([job], [f"MASTER_PORT: port {port} is in use on this machine"])

    def test_with_other_settings(self):
        port = jobs.free_port()
        started = [self.start(0, 2, port), self.start(1, 2, port, ["optimizer.lr=0.01"])]
        self.assert_refused(started, [f"rank 1 on {HOST}: has another config: optimizer.lr is 0.01 "
                                      "there, 0.0005 at rank 0"])

    def test_with_other_configs(self):
        other = self.folder.path / "other.json"
        other.write_text((self.folder.path / "tiny.json").read_text().replace('"dim": 16', '"dim": 20'))
        port = jobs.free_port()
        started = [self.start(0, 2, port, ["run_name=run"]),
                   self.start(1, 2, port, ["run_name=run"], "other.json")]
        self.assert_refused(started, [f"rank 1 on {HOST}: has another config: model.dim is 20 there"])

    def test_of_which_one_has_a_config_with_a_fault(self):
        (self.folder.path / "bad.json").write_text('{"model": {"dims": 16}}')
        port = jobs.free_port()
        started = [self.start(0, 2, port), self.start(1, 2, port, config="bad.json")]
        self.assert_refused(started, [f"rank 1 on {HOST}: bad.json:1: model.dims: unknown key"])

    def test_that_all_have_a_config_with_a_fault(self):
        (self.folder.path / "bad.json").write_text('{"model": {"dims": 16}}')
        port = jobs.free_port()
        started = [self.start(rank, 2, port, config="bad.json") for rank in (0, 1)]
        self.assert_refused(started, ["transnormer: bad.json:1: model.dims: unknown key"])

    def test_of_which_one_does_not_see_the_run_directory(self):
        with tempfile.TemporaryDirectory() as elsewhere:
            for name in ("tiny.json", "train.txt", "valid.txt", "test.txt"):
                (pathlib.Path(elsewhere) / name).write_bytes((self.folder.path / name).read_bytes())
            port = jobs.free_port()
            first = self.start(0, 2, port, [f"data.cache_dir={self.folder.path}/cache",
                                            *self.same_texts()])
            second = jobs.Job(
                self.folder.training("run", [f"data.cache_dir={self.folder.path}/cache",
                                             *self.same_texts()]),
                elsewhere, {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                            "MASTER_PORT": str(port)})
            self.addCleanup(second.__exit__)
            self.assert_refused([first, second], [f"rank 1 on {HOST}: what rank 0 writes into run "
                                                  "is not seen there"])

    def same_texts(self):
        return [f'data.{split}=["{self.folder.path}/{split}.txt"]'
                for split in ("train", "valid", "test")]

    def test_of_which_one_sees_another_text(self):
        with tempfile.TemporaryDirectory() as elsewhere:
            (pathlib.Path(elsewhere) / "tiny.json").write_bytes(
                (self.folder.path / "tiny.json").read_bytes())
            job = jobs.Job([jobs.PROGRAM, "train", "tiny.json", "--run-dir",
                            self.folder.path / "run"], elsewhere,
                           {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                            "MASTER_PORT": str(port := jobs.free_port())})
            self.addCleanup(job.__exit__)
            first = self.start(0, 2, port)
            self.assert_refused([first, job], [f"rank 1 on {HOST}: has another config: data."])

    def test_that_cannot_share_the_samples_or_the_sequences(self):
        for settings, words in (
                (["train.global_batch_size=13"], "train.global_batch_size: 13 samples cannot be "
                                                 "split into equal shares for 2 ranks"),
                (["distributed.sequence_parallel=3"], "distributed.sequence_parallel: 3"),
                (["distributed.backend=nccl"], "distributed.backend")):
            self.assert_refused([self.folder.start_training("run", 2, settings)], [words])

    def test_that_are_started_where_a_launcher_has_started_some(self):
        port = jobs.free_port()
        for rank in (0, 1):
            job = self.folder.start(self.folder.training("run") + ["--nproc", "2"],
                                    {"RANK": str(rank), "WORLD_SIZE": "2",
                                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
            self.assert_refused([job], ["--nproc: ", "one of 2 processes", "already"])

    def test_that_cannot_all_read_a_config_from_a_pipe(self):
        command = " ".join(["cat", "tiny.json", "|", jobs.PROGRAM, "train", "/dev/stdin", "--run-dir",
                            "run", "--nproc", "2"])
        job = self.folder.start(["bash", "-c", command])
        self.assert_refused([job], ["/dev/stdin: is no regular file, and only one of several"])

    def test_of_which_one_dies_before_they_have_met(self):
        """The rank, by its number; the starter notices."""
        job = self.folder.start(self.folder.training("run") + ["--nproc", "3"])
        self.addCleanup(job.__exit__)
        self.until(lambda: len(job.ranks()) == 3, job)
        victim = job.ranks()[2]
        os.kill(victim, signal.SIGKILL)
        outcome = job.wait(30)
        self.assertEqual(outcome.status, 1, outcome.err)
        self.assertEqual(len(outcome.faults()), 1, outcome.err)
        self.assertIn(f"rank 2 on {HOST} (process {victim})", outcome.err)
        self.assert_all_gone(job)


if __name__ == "__main__":
    unittest.main()
