"""The attentions in plain PyTorch are those of the baselines in every form and type, and what their
definitions say, written out token by token."""

import json
import math
import pathlib
import sys
import unittest
from unittest import mock

import torch
import torch.nn.functional as F
from safetensors import safe_open

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import make_attention_baselines  # noqa: E402
import pytorch_attentions  # noqa: E402
import pytorch_parts  # noqa: E402
from pytorch_model import TransNormer  # noqa: E402

FILES = sorted((ROOT / "tests/model/baselines/attentions").glob("*.safetensors"))
MODEL = {**make_attention_baselines.MODEL, "dim": 16, "lrpe": False}


def read(path):
    with safe_open(path, "pt") as file:
        return (json.loads(file.metadata()["config"]),
                {name: file.get_tensor(name) for name in file.keys()})


def part(held, kind):
    return {name.removeprefix(kind): value for name, value in held.items() if name.startswith(kind)}


def forms(config):
    return pytorch_parts.FORMS if pytorch_attentions.is_linear(config["model"]["late"]) else ["chunked"]


def alone(settings, length=40, lrpe=False, **changes):
    """One attention in double precision, with random weights, and an input."""
    torch.manual_seed(1)
    place = pytorch_parts.Place({**MODEL, "lrpe": lrpe, **changes}, 1, 40)
    module = pytorch_attentions.make_attention(place, settings).double().eval()
    generator = torch.Generator().manual_seed(2)
    module.load_state_dict({
        name: make_attention_baselines.random_value(name, value, generator).double()
        for name, value in module.state_dict().items()})
    return module, torch.randn(1, length, place.model["dim"], dtype=torch.float64,
                               generator=generator)


def heads(projection, x, count=2):
    """[count, time, width]."""
    return projection(x)[0].unflatten(-1, (count, -1)).transpose(0, 1)


class TheBaselines(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.object(pytorch_parts, "CHUNK", 8)  # so that they reach over several
        patch.start()
        self.addCleanup(patch.stop)
        torch.set_num_threads(1)

    def each_model(self, check):
        """check(model, held, config) of each file, in each form of linear attention."""
        for path in FILES:
            config, held = read(path)
            for form in forms(config):
                model = TransNormer(config["model"], make_attention_baselines.WORDS,
                                    config["data"]["tokens_per_sample"], form).eval()
                model.load_state_dict(part(held, "weight/"))
                with self.subTest(file=path.stem, form=form):
                    check(model, held, config)

    def test_are_of_the_cases_that_the_script_lists(self):
        cases = make_attention_baselines.cases()
        self.assertEqual([path.stem for path in FILES], sorted(cases))
        self.assertEqual({path.stem: read(path)[0] for path in FILES}, cases)
        self.assertEqual({settings["attention"] for settings in
                          make_attention_baselines.ATTENTIONS.values()},
                         set(pytorch_attentions.ATTENTIONS))
        self.assertTrue(all(path.stat().st_size < 300_000 for path in FILES))

    def test_are_met_in_single_precision_in_both_forms(self):
        def check(model, held, _):
            for case in ("odd", "whole"):
                logits, expected = model(held[f"{case}/tokens"]), held[f"{case}/logits"]
                self.assertLess((logits - expected).abs().max() / expected.abs().max(), 3e-5, case)
            loss = model.loss(held["odd/tokens"], held["odd/targets"])
            self.assertAlmostEqual(loss.item(), held["odd/loss"].item(), 4)
            loss.backward()
            gradients = {name: value.grad for name, value in model.named_parameters()
                         if value.grad is not None}
            expected = part(held, "gradient/")
            self.assertEqual(gradients.keys(), expected.keys())
            largest = max(value.norm() for value in expected.values())
            for name, value in expected.items():
                error = (gradients[name] - value).norm() / max(value.norm(), 1e-3 * largest)
                self.assertLess(error, 1e-4, name)

        self.each_model(check)

    def test_see_nothing_ahead_where_they_are_causal(self):
        def check(model, held, config):
            tokens = held["odd/tokens"]
            changed = tokens.clone()
            changed[:, 20:] = (changed[:, 20:] + 1) % make_attention_baselines.WORDS
            with torch.no_grad():
                difference = (model(tokens) - model(changed)).abs().amax((0, 2))
            self.assertGreater(difference[20:].min(), 1e-3)
            if config["model"]["causal"]:
                self.assertLess(difference[:20].max(), 1e-4)
            else:
                self.assertGreater(difference[:20].max(), 1e-2)

        self.each_model(check)

    def test_hash_into_buckets_that_rounding_does_not_change(self):
        hashed, margins, fullest = pytorch_attentions.ReformerAttention.hashed, [], []

        def watched(module, q):
            rotations = module.features.unflatten(1, (module.hashes, -1))
            turned = torch.einsum("bthd,hrkd->bhrtk", q, rotations)
            first, second = torch.cat((turned, -turned), -1).topk(2, -1).values.unbind(-1)
            margins.append((first - second).min().item())
            bucket = hashed(module, q)
            fullest.append(F.one_hot(bucket, module.buckets).sum(-2).max().item())
            return bucket

        def check(model, held, config):
            if config["model"]["late"]["attention"] == "reformer":
                model(held["odd/tokens"])
                model(held["whole/tokens"])

        with mock.patch.object(pytorch_attentions.ReformerAttention, "hashed", watched):
            self.each_model(check)
        self.assertGreater(min(margins), 5e-5)  # far above the rounding of single precision
        self.assertGreater(max(fullest), 12 + 1)  # more than the chunk takes

    def test_are_near_in_half_precision(self):
        def check(model, held, config):
            if config["model"]["late"]["attention"] == "reformer":
                return  # other buckets are another function
            half = TransNormer(config["model"], make_attention_baselines.WORDS, 40, "chunked",
                               torch.bfloat16).eval()
            half.load_state_dict(model.state_dict())
            with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
                logits = half(held["odd/tokens"])
            self.assertEqual(logits.dtype, torch.bfloat16)
            expected = held["odd/logits"]
            self.assertLess((logits - expected).norm() / expected.norm(), 0.1)

        self.each_model(check)


def unbiased(projection):
    """Of reformer, whose biases are idle."""
    return lambda x: F.linear(x, projection.weight)


class AnAttention(unittest.TestCase):
    """Beside its definition, token by token."""

    def test_of_linear_is_a_weighted_mean(self):
        for kernel in ("elu1", "relu", "exp"):
            for window in (0, 5):
                settings = {"attention": "linear", "kernel": kernel, "denominator": True,
                            "key_dim_factor": 2, "window": window, "output_norm": "none"}
                module, x = alone(settings)
                q, k = (pytorch_attentions.KERNELS[kernel](heads(projection, x))
                        for projection in (module.q_proj, module.k_proj))
                v, rows = heads(module.v_proj, x), []
                for i in range(40):
                    seen = slice(max(0, i - window + 1) if window else 0, i + 1)
                    weights = (k[:, seen] @ q[:, i, :, None])[..., 0]
                    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-6)
                    rows.append((weights[:, None] @ v[:, seen])[:, 0].flatten())
                torch.testing.assert_close(module(x)[0], module.out_proj(torch.stack(rows)))

    def test_of_efficient_is_two_softmaxes(self):
        module, x = alone({"attention": "efficient"})
        q, k, v = (heads(projection, x) for projection in
                   (module.q_proj, module.k_proj, module.v_proj))
        rows = [(q[:, i, None].softmax(-1) @ (k[:, :i + 1].softmax(1).mT @ v[:, :i + 1])).flatten()
                for i in range(40)]
        torch.testing.assert_close(module(x)[0], module.out_proj(torch.stack(rows)))

    def test_of_cosformer_falls_with_the_distance(self):
        module, x = alone({"attention": "cosformer", "horizon": 50})
        q, k = (F.relu(heads(projection, x)) for projection in (module.q_proj, module.k_proj))
        distance = torch.arange(40)[:, None] - torch.arange(40)
        weights = (q @ k.mT * torch.cos(math.pi / 2 * distance.double() / 50)).tril()
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-6)
        y = (weights @ heads(module.v_proj, x)).transpose(0, 1).flatten(1)
        torch.testing.assert_close(module(x)[0], module.out_proj(y))

    def test_of_norm_decays_by_the_distance(self):
        for causal in (True, False):
            settings = make_attention_baselines.norm(decay="fixed", gate="silu")
            module, x = alone(settings, layers=3, causal=causal)
            q, k = (F.elu(heads(projection, x)) + 1 for projection in (module.q_proj, module.k_proj))
            distance = (torch.arange(40)[:, None] - torch.arange(40)).double()
            rates = [math.exp(-(2 ** (-8 * h / 2)) * (1 - 1 / 2 + 1e-5)) for h in (1, 2)]
            weights = q @ k.mT * torch.stack([rate ** distance.abs() for rate in rates])
            weights = weights.tril() if causal else weights
            y = (weights @ heads(module.v_proj, x)).transpose(0, 1).flatten(1)
            y = y / torch.sqrt(y.square().mean(-1, keepdim=True) + 1e-6)
            y = y * F.silu(module.gate_proj(x[0]))
            with mock.patch.object(pytorch_parts, "CHUNK", 8):
                torch.testing.assert_close(module(x)[0], module.out_proj(y), rtol=1e-5, atol=1e-5)

    def test_of_reformer_gathers_the_newest_of_the_bucket(self):
        module, x = alone({"attention": "reformer", "chunk": 3, "hashes": 3})
        module.buckets = 4  # few, so that they are full
        module.features = torch.randn(2, 3 * 2, 8, dtype=torch.float64)
        q, v = heads(unbiased(module.q_proj), x), heads(unbiased(module.v_proj), x)
        rows, cut_off, lonely = [], 0, 0
        for head in range(2):
            for i in range(40):
                rounds = []
                for number in range(3):
                    turned = q[head] @ module.features[head, 2 * number:2 * number + 2].T
                    bucket = torch.cat([turned, -turned], -1).argmax(-1)
                    peers = [j for j in range(i) if bucket[j] == bucket[i]]
                    cut_off += len(peers) > 3
                    lonely += not peers
                    peers = peers[-3:]
                    if peers:
                        keys = q[head, peers]
                        scores = keys / keys.norm(dim=-1, keepdim=True) @ q[head, i]
                    else:
                        peers, scores = [i], torch.tensor([-1e5], dtype=torch.float64)
                    rounds.append((scores.logsumexp(0), scores.softmax(0) @ v[head, peers]))
                share = torch.stack([weight for weight, _ in rounds]).softmax(0)
                rows.append(share @ torch.stack([y for _, y in rounds]))
        self.assertTrue(cut_off and lonely)
        y = torch.stack(rows).unflatten(0, (2, 40)).transpose(0, 1).flatten(1)
        torch.testing.assert_close(module(x)[0], module.out_proj(y))

    def test_of_reformer_both_ways_sees_its_sorted_chunk_and_the_one_before(self):
        module, x = alone({"attention": "reformer", "chunk": 6, "hashes": 2}, causal=False)
        q, v = heads(unbiased(module.q_proj), x), heads(unbiased(module.v_proj), x)
        half = module.buckets // 2
        y = torch.zeros(40, 2, 8, dtype=torch.float64)
        for head in range(2):
            ring = []  # of chunks of both rounds
            for number in range(2):
                turned = q[head] @ module.features[head, half * number:half * (number + 1)].T
                bucket = torch.cat([turned, -turned], -1).argmax(-1).tolist()
                order = sorted(range(40), key=lambda i: (bucket[i], i))
                ring += [order[start:start + 6] for start in range(0, 40, 6)]
            for i in range(40):
                rounds = []
                for at, chunk in enumerate(ring):
                    if i in chunk:
                        seen = ring[at - 1] + chunk
                        keys = q[head, seen]
                        scores = keys / keys.norm(dim=-1, keepdim=True) @ q[head, i]
                        scores[torch.tensor(seen) == i] = -1e5
                        rounds.append((scores.logsumexp(0), scores.softmax(0) @ v[head, seen]))
                share = torch.stack([weight for weight, _ in rounds]).softmax(0)
                y[i, head] = share @ torch.stack([value for _, value in rounds])
        torch.testing.assert_close(module(x)[0], module.out_proj(y.flatten(1)))

    def test_of_transformer_ls_sees_a_window_and_closed_chunks(self):
        module, x = alone({"attention": "transformer_ls", "window": 7, "chunk": 5, "rank": 2}, 38)

        def table(projection, count):
            angle = [[at * 10000 ** (-2 * i / 16) for i in range(8)] for at in range(count)]
            angle = torch.tensor(angle, dtype=torch.float64)
            rows = projection(torch.cat([angle.sin(), angle.cos()], -1))
            return rows.view(count, 2, 8)

        q = module.q_proj(x)[0].view(38, 2, 8) / math.sqrt(8)
        raw_k, raw_v = module.k_proj(x)[0], module.v_proj(x)[0]
        k, v = (module.window_norm(y).view(38, 2, 8) for y in (raw_k, raw_v))
        near, far = table(module.distance_proj, 7), table(module.chunk_distance_proj, 8)
        share = module.compress_proj(x)[0].view(38, 2, 2)  # token, head, summary
        summaries = []  # (chunk, key, value)
        for chunk in range(7):
            rows = slice(5 * chunk, 5 * chunk + 5)
            for number in range(2):
                weights = share[rows, :, number].softmax(0)[..., None]
                summaries.append((chunk, *(
                    module.summary_norm((weights * raw[rows].view(5, 2, 8)).sum(0).flatten())
                    .view(2, 8) for raw in (raw_k, raw_v))))
        y = torch.zeros(38, 2, 8, dtype=torch.float64)
        for i in range(38):
            for head in range(2):
                scores, values = [], []
                for j in range(max(0, i - 6), i + 1):
                    scores.append((q[i, head] + module.key_bias.view(2, 8)[head]) @ k[j, head] +
                                  (q[i, head] + module.distance_bias.view(2, 8)[head]) @ near[i - j, head])
                    values.append(v[j, head])
                for chunk, key, value in summaries:
                    if chunk < i // 5:
                        scores.append(q[i, head] @ (key[head] + far[i // 5 - 1 - chunk, head]))
                        values.append(value[head])
                y[i, head] = torch.stack(scores).softmax(0) @ torch.stack(values)
        torch.testing.assert_close(module(x)[0], module.out_proj(y.flatten(1)))

    def test_of_transformer_ls_both_ways_sees_half_a_window_beside_its_group(self):
        module, x = alone({"attention": "transformer_ls", "window": 6, "chunk": 5, "rank": 3}, 38,
                          causal=False)
        q = module.q_proj(x)[0].view(38, 2, 8) / math.sqrt(8)
        k, v = (module.window_norm(projection(x)[0]) for projection in
                (module.k_proj, module.v_proj))
        share = module.compress_proj(x)[0].view(38, 2, 3).softmax(0)
        summaries = [[module.summary_norm(torch.einsum("th,thd->hd", share[..., number],
                                                       y.view(38, 2, 8)).flatten()).view(2, 8)
                      for number in range(3)] for y in (k, v)]
        k, v, y = k.view(38, 2, 8), v.view(38, 2, 8), torch.zeros(38, 2, 8, dtype=torch.float64)
        for i in range(38):
            start = i // 6 * 6
            seen = slice(max(0, start - 3), min(38, start + 9))
            for head in range(2):
                keys, values = (torch.cat([near[seen, head], torch.stack([y[head] for y in far])])
                                for near, far in zip((k, v), summaries))
                y[i, head] = (keys @ q[i, head]).softmax(0) @ values
        torch.testing.assert_close(module(x)[0], module.out_proj(y.flatten(1)))

    def test_of_flash_is_quadratic_in_chunks_and_linear_across(self):
        for causal in (True, False):
            module, x = alone({"attention": "flash", "expansion": 2, "key_dim": 6, "chunk": 8}, 30,
                              causal=causal)
            x = x[0]
            y = module.norm_scale * x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6)
            u, v, z = (F.silu(projection(y)) for projection in
                       (module.u_proj, module.v_proj, module.z_proj))

            def turned(name):
                part = z * getattr(module, name + "_scale") + getattr(module, name + "_offset")
                out = torch.empty_like(part)
                for t in range(30):
                    for i in range(3):
                        angle = t * 10000 ** (-2 * i / 6)
                        a, b = part[t, i], part[t, i + 3]
                        out[t, i] = a * math.cos(angle) - b * math.sin(angle)
                        out[t, i + 3] = a * math.sin(angle) + b * math.cos(angle)
                return out

            q, k, far_q, far_k = map(turned, ("query", "key", "global_query", "global_key"))
            rows = []
            for i in range(30):
                row = torch.zeros(32, dtype=torch.float64)
                for j in range(30):
                    own = i // 8 == j // 8
                    if own and (j <= i or not causal):
                        score = q[i] @ k[j] / 8 + module.offset_bias[39 + j - i]
                        row = row + F.relu(score) ** 2 * v[j]
                    if j // 8 < i // 8 or not causal:
                        row = row + far_q[i] @ far_k[j] / 8 * v[j]
                rows.append(u[i] * row)
            torch.testing.assert_close(module(x[None])[0], module.out_proj(torch.stack(rows)))

    def test_of_nystromformer_is_softmax_where_every_token_is_a_landmark(self):
        module, x = alone({"attention": "nystromformer", "landmarks": 64, "conv": 0}, 6, causal=False)
        q, k, v = (heads(projection, x) for projection in
                   (module.q_proj, module.k_proj, module.v_proj))
        y = ((q @ k.mT / math.sqrt(8)).softmax(-1) @ v).transpose(0, 1).flatten(1)
        torch.testing.assert_close(module(x)[0], module.out_proj(y), rtol=0.02, atol=0.02)

    def test_of_nystromformer_cuts_segments_as_even_as_they_come(self):
        module, _ = alone({"attention": "nystromformer", "landmarks": 3, "conv": 0}, causal=False)
        means = module.landmarks(torch.arange(7, dtype=torch.float64).view(1, 1, 7, 1))
        self.assertEqual(means.flatten().tolist(), [1, 3.5, 5.5])  # 0 1 2, 3 4, 5 6

    def test_of_pooled_averages_what_there_is(self):
        module, x = alone({"attention": "pooled", "stride": 4}, 10, causal=False)
        q, k, v = (heads(projection, x) for projection in
                   (module.q_proj, module.k_proj, module.v_proj))
        k, v = (torch.stack([y[:, start:start + 4].mean(1) for start in (0, 4, 8)], 1)
                for y in (k, v))
        y = ((q @ k.mT / math.sqrt(8)).softmax(-1) @ v).transpose(0, 1).flatten(1)
        torch.testing.assert_close(module(x)[0], module.out_proj(y))

    def test_of_sparse_sees_the_nearest_and_every_so_manyth(self):
        for causal in (True, False):
            module, x = alone({"attention": "sparse", "window": 3, "stride": 5}, 20, causal=causal)
            q, k, v = (heads(projection, x) for projection in
                       (module.q_proj, module.k_proj, module.v_proj))
            rows = []
            for i in range(20):
                seen = [j for j in range(20) if (j <= i or not causal) and
                        (abs(i - j) < 3 or (i - j) % 5 == 0)]
                weights = (k[:, seen] @ q[:, i, :, None] / math.sqrt(8))[..., 0].softmax(-1)
                rows.append((weights[:, None] @ v[:, seen]).flatten())
            torch.testing.assert_close(module(x)[0], module.out_proj(torch.stack(rows)))


class RandomFeatures(unittest.TestCase):
    def performer(self, count):
        """One with the weights of alone()'s and freshly drawn features, and softmax's answer."""
        torch.manual_seed(3)
        module, x = alone({"attention": "performer", "features": count, "redraw": True})
        # What a query and a key are alike in makes the estimate's variance.
        for projection in (module.q_proj, module.k_proj):
            projection.weight.data *= 0.6
        q, k, v = (heads(projection, x) for projection in
                   (module.q_proj, module.k_proj, module.v_proj))
        scores = (q @ k.mT / math.sqrt(8)).masked_fill(torch.ones(40, 40).triu(1).bool(), -math.inf)
        exact = module.out_proj((scores.softmax(-1) @ v).transpose(0, 1).flatten(1))
        return module, x, exact

    def test_of_the_performer_come_nearer_to_softmax_as_they_are_more(self):
        errors = []
        for count in (16, 256, 4096):
            module, x, exact = self.performer(count)
            module.features = module.draw().double()
            errors.append(((module(x)[0] - exact).norm() / exact.norm()).item())
        self.assertLess(errors[1], errors[0])
        self.assertLess(errors[2], errors[1] / 2)
        self.assertLess(errors[2], 0.05)

    def test_of_the_performer_are_orthogonal_in_blocks(self):
        module, _ = alone({"attention": "performer", "features": 12, "redraw": True})
        rows = module.draw()
        products = rows @ rows.mT
        diagonal = products.diagonal(dim1=1, dim2=2)
        self.assertGreater(diagonal.std(), 0.5)  # of random lengths
        mean = torch.stack([module.draw() for _ in range(400)]).mean((0, 1, 2))
        self.assertLess(mean.abs().max(), 0.05)  # 9,600 rows
        inside = products[:, :8, :8] - torch.diag_embed(diagonal[:, :8])
        self.assertLess(inside.abs().max(), 1e-4)

    def test_of_rfa_estimate_a_gaussian_kernel(self):
        module, x = alone({"attention": "rfa", "features": 4096, "redraw": True})
        q, k, v = (heads(projection, x) for projection in
                   (module.q_proj, module.k_proj, module.v_proj))
        module.features = torch.randn_like(module.features)
        q, k = (y / (y.norm(dim=-1, keepdim=True) + 1e-3) * module.sigma[:, None] for y in (q, k))
        weights = torch.exp(-torch.cdist(q, k).square() / 2).tril()
        y = (weights / weights.sum(-1, keepdim=True) @ v).transpose(0, 1).flatten(1)
        exact = module.out_proj(y)
        self.assertLess((module(x)[0] - exact).norm() / exact.norm(), 0.05)

    def test_are_fresh_in_training_and_fixed_in_evaluation(self):
        for settings in ({"attention": "performer", "features": 8, "redraw": True},
                         {"attention": "rfa", "features": 8, "redraw": True},
                         {"attention": "reformer", "chunk": 8, "hashes": 2}):
            model = TransNormer({**MODEL, "early": settings, "late": settings}, 41, 40)
            tokens = torch.arange(40)[None]
            with self.subTest(attention=settings["attention"]), torch.no_grad():
                before = model(tokens), model.eval()(tokens)
                model.redraw()
                after = model.train()(tokens), model.eval()(tokens)
                self.assertFalse(torch.equal(before[0], after[0]))
                self.assertTrue(torch.equal(before[1], after[1]))

    def test_are_not_redrawn_where_told(self):
        settings = {"attention": "performer", "features": 8, "redraw": False}
        model = TransNormer({**MODEL, "early": settings, "late": settings}, 41, 40)
        tokens = torch.arange(40)[None]
        self.assertTrue(torch.equal(model.train()(tokens), model.eval()(tokens)))


if __name__ == "__main__":
    unittest.main()
