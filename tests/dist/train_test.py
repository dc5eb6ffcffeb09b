"""Several processes learn what one learns."""

import json
import os
import unittest

import jobs

# In sums of another order.
ROUNDING = {"fp32": 2e-6, "bf16": 2e-3}
SHARDED = "distributed.shard_optimizer=true"
# Layers that can share sequences.
OPTIMIZERS = {"lion": ["optimizer.name=lion", "optimizer.lr=1e-4"],
              "muon": ["optimizer.name=muon"],
              "mean": ["optimizer.ema=0.8", 'optimizer.no_decay=["*.bias", "embed.*"]']}
LINEAR = ['model.early={"attention":"diag","block":8}', "data.tokens_per_sample=32"]


class TheLosses(jobs.JobsTest):
    def assert_learns_alike(self, settings, tolerance, ranks=(2, 4), reference=1):
        self.folder.train("one", reference, settings)
        for count in ranks:
            self.folder.train(f"by-{count}", count, settings)
            self.assert_same_losses(f"by-{count}", "one", tolerance)

    def test_are_those_of_one_process(self):
        self.assert_learns_alike([], ROUNDING["fp32"])

    def test_are_those_of_one_process_in_bf16(self):
        self.assert_learns_alike(["train.precision=bf16"], ROUNDING["bf16"])

    def test_are_those_of_one_process_in_micro_batches(self):
        self.assert_learns_alike(["train.micro_batch_size=2"], ROUNDING["fp32"])

    def test_are_those_of_one_process_in_micro_batches_that_do_not_divide_the_share(self):
        self.assert_learns_alike(["train.micro_batch_size=5"], ROUNDING["fp32"])

    def test_are_those_of_one_process_in_micro_batches_in_bf16(self):
        self.assert_learns_alike(["train.micro_batch_size=2", "train.precision=bf16"],
                                 ROUNDING["bf16"])

    def test_are_those_of_one_process_with_odd_sizes_and_two_tables(self):
        self.assert_learns_alike(["model.dim=28", "model.ffn_dim=37", "model.tie_embeddings=false",
                                  "data.tokens_per_sample=19"], ROUNDING["fp32"])

    def test_are_those_of_one_process_with_recomputed_layers(self):
        self.assert_learns_alike(["train.activation_checkpointing=true"], ROUNDING["fp32"])

    def test_are_those_of_one_process_in_buckets_of_some_kilobytes(self):
        self.assert_learns_alike(["distributed.bucket_mb=0.004"], ROUNDING["fp32"])

    def test_are_those_of_one_process_in_a_plain_transformer_with_dropout_of_attention(self):
        self.assert_learns_alike(["model.variant=transformer", "model.attention_dropout=0.2"],
                                 ROUNDING["fp32"])

    def test_are_those_of_one_process_with_clipped_gradients(self):
        self.assert_learns_alike(["optimizer.clip_norm=0.3"], ROUNDING["fp32"])
        self.assertGreater(min(self.folder.column("one", "train", "grad_norm")), 0.3)

    def test_are_nearly_those_of_one_process_with_gradients_sent_in_bf16(self):
        self.assert_learns_alike(["distributed.gradient_precision=bf16"], 2e-2)
        self.assertNotEqual(self.folder.column("one", "train", "loss"),
                            self.folder.column("by-2", "train", "loss"))

    def test_are_those_of_one_process_when_ranks_share_sequences(self):
        self.folder.train("one", 1, LINEAR)
        for ranks, share, more in ((2, 2, []), (4, 2, []), (4, 4, [SHARDED]), (4, 2, [SHARDED])):
            run = f"{ranks}-{share}{'-sharded' if more else ''}"
            self.folder.train(run, ranks, [*LINEAR, f"distributed.sequence_parallel={share}", *more])
            self.assert_same_losses(run, "one", ROUNDING["fp32"])

    def test_are_those_of_one_process_with_each_optimizer_and_a_mean_of_the_weights(self):
        for name, settings in OPTIMIZERS.items():
            with self.subTest(name):
                self.folder.train(f"{name}-one", 1, settings)
                self.folder.train(f"{name}-two", 2, settings)
                # A sign may turn where a momentum is all but zero; an orthogonal matrix amplifies.
                self.assert_same_losses(f"{name}-two", f"{name}-one",
                                        ROUNDING["fp32"] if name == "mean" else 1e-3)

    def test_come_with_the_share_of_time_that_ranks_wait(self):
        self.folder.train("run", 2)
        shares = self.folder.column("run", "train", "ranks_wait_share")
        self.assertEqual(len(shares), 12)
        self.assertTrue(all(0 <= share <= 1 for share in shares), shares)


class AnOptimizerThatRanksShare(jobs.JobsTest):
    def test_gives_the_same_bits_by_two_and_the_same_losses_by_more(self):
        for name, settings in {
                "plain": [],
                "micro-batches": ["train.micro_batch_size=2", "optimizer.clip_norm=0.3"],
                "odd": ["model.dim=28", "model.ffn_dim=37", "model.tie_embeddings=false",
                        "distributed.bucket_mb=0.004"]}.items():
            for ranks in (2, 3):
                whole, sharded = f"{name}-{ranks}", f"{name}-{ranks}-sharded"
                self.folder.train(whole, ranks, settings)
                self.folder.train(sharded, ranks, [*settings, SHARDED])
                self.assert_same_losses(sharded, whole, ROUNDING["fp32"])
                if ranks == 2:  # sums of more may be made in another order
                    self.assert_same_bits(sharded, whole)


    def test_gives_the_same_bits_with_lion_and_a_mean_of_the_weights(self):
        for name, settings in {"lion": OPTIMIZERS["lion"], "mean": ["optimizer.ema=0.8"]}.items():
            self.folder.train(f"{name}-whole", 2, settings)
            self.folder.train(f"{name}-sharded", 2, [*settings, SHARDED])
            self.assert_same_losses(f"{name}-sharded", f"{name}-whole", ROUNDING["fp32"])
            self.assert_same_bits(f"{name}-sharded", f"{name}-whole")
            self.assertEqual("ema.safetensors" in self.folder.bits(f"{name}-sharded"),
                             name == "mean")
        self.assertEqual(self.folder.column("mean-sharded", "valid", "ema_loss"),
                         self.folder.column("mean-whole", "valid", "ema_loss"))

    def test_is_not_muon(self):
        outcome = self.folder.train("run", 2, [*OPTIMIZERS["muon"], SHARDED], status=2)
        self.assertEqual(len(outcome.faults()), 1, outcome.err)
        self.assertIn('distributed.shard_optimizer: the optimizer "muon" works on whole matrices',
                      outcome.faults()[0])
        self.folder.train("run", 1, [*OPTIMIZERS["muon"], SHARDED])  # which shares it with nobody


class UpdatesThatAreNotFinite(jobs.JobsTest):
    def test_are_skipped_by_all(self):
        # The scale of half precision is first too large, then found.
        settings = ["train.precision=fp16", "optimizer.lr=0.05", "schedule.name=constant",
                    "schedule.warmup_steps=0", "train.steps=20", "train.nonfinite_limit=1000"]
        self.folder.train("one", 1, settings)
        for run, more in (("two", []), ("sharded", [SHARDED])):
            self.folder.train(run, 2, [*settings, *more])
            for column in ("loss_scale", "skipped_updates"):
                self.assertEqual(self.folder.column(run, "train", column),
                                 self.folder.column("one", "train", column))
        self.assert_same_bits("sharded", "two")

    def test_end_all_with_status_3(self):
        settings = ["optimizer.lr=1000", "optimizer.weight_decay=1000", "schedule.name=constant",
                    "schedule.warmup_steps=0", "train.steps=100", "checkpoint.every=2"]
        for more in ([], [SHARDED]):
            with self.folder.start_training(f"run{len(more)}", 2, [*settings, *more]) as job:
                outcome = job.wait()
                self.assertEqual(outcome.status, 3, outcome.err)
                self.assertIn("training diverged at update", outcome.err.splitlines()[-1])
                self.assert_all_gone(job)


class AnEvaluation(jobs.JobsTest):
    def evaluate(self, ranks, *options):
        outcome = self.folder.run([jobs.PROGRAM, "eval", "run", "--json", *options,
                                   *(["--nproc", ranks] if ranks > 1 else [])])
        self.assertEqual(outcome.status, 0, outcome.err)
        answer = json.loads(outcome.out)
        return {key: value for key, value in answer.items() if "second" not in key}

    def test_gives_the_same_bits_by_any_number_of_processes(self):
        self.folder.train("run", 1)
        for name, options in {"plain": [],
                              "context": ["--context-window", "7"],
                              "small": ["--set", "validation.batch_size=2"]}.items():
            answers, files = [], []
            for ranks in (1, 3):
                file = f"{name}-{ranks}.jsonl"
                answers.append(self.evaluate(ranks, "--per-token", file, *options))
                files.append((self.folder.path / file).read_bytes())
            self.assertEqual(answers[0], answers[1])
            self.assertTrue(files[0] == files[1], f"other losses of tokens: {name}")
            self.assertGreater(len(files[0].splitlines()), 100)

    def test_during_training_gives_the_same_bits_by_any_number_of_processes(self):
        # Weights that do not change.
        still = ["optimizer.lr=0", "schedule.warmup_init_lr=0", "validation.batch_size=2"]
        for ranks in (1, 3):
            self.folder.train(f"by-{ranks}", ranks, still)
        losses = self.folder.column("by-1", "valid", "loss")
        self.assertEqual(len(losses), 3)
        self.assertEqual(self.folder.column("by-3", "valid", "loss"), losses)


class Prompts(jobs.JobsTest):
    def test_are_continued_once_and_alike_by_any_number_of_processes(self):
        # Weights that do not change, ranks that share sequences among them.
        still = [*LINEAR, "optimizer.lr=0", "schedule.warmup_init_lr=0",
                 'validation.prompts=["the river", "and"]']
        texts = {}
        for name, ranks, more in (("one", 1, []), ("two", 2, [SHARDED]),
                                  ("halves", 2, ["distributed.sequence_parallel=2"])):
            self.folder.train(name, ranks, [*still, *more])
            texts[name] = [(line["step"], line["prompt"], line["text"])
                           for line in self.folder.lines(name, "event") if line["event"] == "sample"]
        self.assertEqual(len(texts["one"]), 2 * len(self.folder.lines("one", "valid")))
        self.assertEqual(texts["two"], texts["one"])
        self.assertEqual(texts["halves"], texts["one"])


class ARunThatGoesOn(jobs.JobsTest):
    def test_with_other_numbers_of_ranks_takes_the_same_samples(self):
        self.folder.train("one", 1)
        steps = iter((4, 8, 12))
        for ranks, more in ((2, [SHARDED]), (1, []), (3, [SHARDED])):
            outcome = self.folder.train("run", ranks, [f"train.steps={next(steps)}", *more])
        self.assertIn("ranks: 1 when it was saved, 3 now", outcome.err)
        trained = {line["step"]: line for line in self.folder.lines("run", "train")}
        self.assertEqual(list(trained), list(range(1, 13)))
        for line in self.folder.lines("one", "train"):
            self.assertEqual(trained[line["step"]]["tokens"], line["tokens"])
            self.assertLess(abs(trained[line["step"]]["loss"] / line["loss"] - 1),
                            ROUNDING["fp32"])

    def test_sharded_and_whole_in_turn_ends_with_the_same_bits(self):
        self.folder.train("whole", 2)
        for steps, more in ((4, [SHARDED]), (8, []), (12, [SHARDED])):
            self.folder.train("run", 2, [f"train.steps={steps}", *more])
        self.assert_same_bits("run", "whole")

    def test_with_as_many_ranks_ends_with_the_same_bits(self):
        self.assert_resumes_to_the_same_bits({
            "micro": (2, ["train.micro_batch_size=2"]), "sharded": (3, [SHARDED]),
            "shared": (4, [*LINEAR, "distributed.sequence_parallel=2"])})

    def test_ends_with_the_same_bits_with_each_optimizer_and_a_mean_of_the_weights(self):
        self.assert_resumes_to_the_same_bits({
            "muon": (2, OPTIMIZERS["muon"]), "lion": (2, [*OPTIMIZERS["lion"], SHARDED]),
            "mean": (2, OPTIMIZERS["mean"]), "mean-sharded": (2, [*OPTIMIZERS["mean"], SHARDED])})

    def assert_resumes_to_the_same_bits(self, kinds):
        for name, (ranks, settings) in kinds.items():
            self.folder.train(f"whole-{name}", ranks, settings)
            for steps in (3, 7, 12):
                self.folder.train(f"run-{name}", ranks, [*settings, f"train.steps={steps}"])
            self.assertTrue(self.folder.bits(f"run-{name}", 12)
                            == self.folder.bits(f"whole-{name}", 12), name)

    def test_by_its_directory_and_after_its_time_ends_with_the_same_bits(self):
        self.folder.train("whole", 2, ["train.steps=3"])
        first = self.folder.train("run", 2, ["train.steps=3", "train.max_hours=1e-9"])
        self.assertIn("stopped at step 1; the same command goes on", first.err)
        for _ in range(2):
            outcome = self.folder.run([jobs.PROGRAM, "train", "run", "--nproc", 2])
            self.assertEqual(outcome.status, 0, outcome.err)
        self.assertEqual(self.folder.events("run").count("time_limit"), 2)
        self.assertIn("done", self.folder.events("run"))
        self.assert_same_bits("run", "whole")

    def test_in_a_fork_saves_at_once_and_ends_with_the_same_bits(self):
        self.folder.train("run", 2, ["train.steps=4"])
        outcome = self.folder.run([*self.folder.training("fork", ["checkpoint.every=0"]), "--resume",
                                   "run/checkpoints/latest", "--nproc", 2])
        self.assertEqual(outcome.status, 0, outcome.err)
        self.assertIn("saved fork/checkpoints/step-00000004", outcome.err)
        self.folder.train("run", 2)
        self.assert_same_bits("fork", "run")


class NewRuns(jobs.JobsTest):
    def test_begin_with_the_weights_of_another_on_all_ranks(self):
        self.folder.train("source", 1)
        still = ["train.init_from=source", "train.steps=1", "optimizer.lr=0",
                 "schedule.warmup_init_lr=0", "data.train=test.txt"]
        self.folder.train("run", 2, still)
        best = os.readlink(self.folder.path / "source/checkpoints/best")
        self.assertTrue(self.folder.bits("run", 1)[0]
                        == self.folder.bits("source", int(best[-8:]))[0])

    def test_are_refused_once_where_nothing_fits(self):
        self.folder.train("source", 1)
        before = self.folder.content()
        outcome = self.folder.train("run", 2, ["train.init_from=source", "model.dim=32"], status=2)
        self.assertEqual(len(outcome.faults()), 1, outcome.err)
        self.assertIn("no weights in common", outcome.err)
        self.assertEqual(self.folder.content(), before)


if __name__ == "__main__":
    unittest.main()
