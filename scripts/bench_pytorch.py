"""Speed and memory of the program beside the same model in PyTorch, eager and compiled, in one run.

usage: bench_pytorch.py CONFIG [--set KEY=VALUE].. [--lengths A,B] [--batch-size A,B]
           [--precision P,Q] [--device D] [--mode train|infer|decode] [--threads N]
           [--rounds N] [--repeat N] [--linear-attention auto|quadratic|chunked|both]
           [--compiled | --no-compiled] [--compile-mode MODE] [--attentions X,Y]
           [--transnormer PROGRAM] [--json]

CONFIG and --set are the program's, which resolves them, so that both sides have the same shapes;
tensors are compared by name and shape before anything is timed. The sides take turns for some
rounds, so that what else the machine does meets all of them; each is a process of its own, and
what counts is its best and its median repeat, timed as `transnormer bench` does: on random tokens,
after a warm-up, over as many steps as take a tenth of a second. Peak memory is the system's count of
the whole process on a CPU, the allocator's on a GPU; compiling is in neither.

A step of training is forward, mean loss, backward, clipping at norm 1 and AdamW, with the config's
dropout. PyTorch has autocast for half precision, fused attention, fused AdamW. Linear attention has
two forms in PyTorch (scripts/pytorch_model.py): `quadratic` in the length, as in the published code,
and `chunked`; `auto` takes the one that is faster here at that length.

Decoding is one token a sequence and step, the most likely fed back, after `length` tokens: in PyTorch
an eager loop with the same states, preallocated caches and weights in the type of the products. By
default in fp32 and bf16, one sequence and 16; each speed is also given as a multiple of the first
PyTorch loop's, and the program's products alone beside the reading of a buffer as large as the weights.

With --attentions each of these takes the place of both halves of the model, as in `transnormer bench
--attentions`, and is measured beside the same one in eager PyTorch (scripts/pytorch_attentions.py): a
row for each attention and length. Those that can't be causal run both ways on both sides; random
features are drawn once an update on both. For training and inference.
"""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKER = ROOT / "scripts/pytorch_worker.py"
PROGRAM = "transnormer"  # the name of our side
VARIANTS = ("t1", "t2", "transformer")


class Fault(Exception):
    """Why a side has no figures, in a few words."""


class Worker:
    """scripts/pytorch_worker.py, seen from outside."""

    def __init__(self, request):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([sys.executable, WORKER], text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, env=environment())
        self.say(json.dumps(request))

    def say(self, line):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            if status == -9:
                raise Fault("killed, most likely out of memory")
            self.log.seek(0)
            said = self.log.read().strip().splitlines()
            raise Fault(f"ended with status {status}" + (f": {said[-1][:160]}" if said else ""))
        answer = json.loads(line)
        if "error" in answer:
            raise Fault(answer["error"])
        return answer

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()


def environment():
    """The same for every side: threads that wait must not spin on cores that the next side needs."""
    return {**os.environ, "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive")}


def ask_program(arguments, *words, sets=None, may_fail=False):
    """The program's JSON answer. Its faults are the user's to see as it words them; may_fail: they
    are a side's result."""
    command = [arguments.transnormer, *words]
    for setting in arguments.set if sets is None else sets:
        command += ["--set", setting]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=environment())
    except OSError as error:
        raise SystemExit(f"bench_pytorch.py: {arguments.transnormer}: {error.strerror}; build it "
                         "with scripts/build.sh, or name it with --transnormer")
    if done.returncode and may_fail:
        said = done.stderr.strip().splitlines()
        raise Fault(said[-1][:160] if said else f"ended with status {done.returncode}")
    if done.returncode:
        sys.stderr.write(done.stderr)
        sys.exit(done.returncode if done.returncode > 0 else 1)
    return json.loads(done.stdout)


def case_of(request):
    """What sides that are compared have in common."""
    return {key: request[key] for key in ("length", "batch_size", "mode", "precision")}


class Ours:
    name, linear_attention = PROGRAM, None

    def __init__(self, arguments, request, attention=None):
        """attention: of --attentions."""
        self.arguments, self.case, self.weight_speeds = arguments, case_of(request), []
        self.attention, self.causal = attention, request["model"].get("causal", True)
        self.words = ["bench", str(arguments.config), "--json", "--mode", request["mode"],
                      "--lengths", str(request["length"]), "--batch-size",
                      str(request["batch_size"]), "--precision", request["precision"], "--device",
                      request["device"], "--repeat", str(request["repeat"])]
        if attention:
            self.words += ["--attentions", attention]

    def turn(self):
        row, = ask_program(self.arguments, *self.words, may_fail=self.attention is not None)["rows"]
        if row.get("causal", self.causal) != self.causal:
            raise SystemExit(f"bench_pytorch.py: not the same model: {self.attention} is causal on "
                             "one side only")
        if row.get("reading_bytes_per_s"):
            self.weight_speeds.append((row["products_bytes_per_s"], row["reading_bytes_per_s"]))
        return row["tokens_per_s"], row["tokens_per_s_median"], row["peak_memory_bytes"]

    def close(self):
        pass


class PyTorch:
    weight_speeds = ()

    def __init__(self, request, expected):
        self.case = case_of(request)
        self.name = "PyTorch compiled" if request["compiled"] else "PyTorch eager"
        self.linear_attention = request["linear_attention"]
        self.request, self.expected, self.worker = request, expected, None

    def turn(self):
        if self.worker is None:
            self.worker = Worker({"task": "time", **self.request})
            tensors = self.worker.hear()["tensors"]
            if tensors != self.expected:
                wrong = sorted(name for name in tensors.keys() | self.expected.keys()
                               if tensors.get(name) != self.expected.get(name))
                raise SystemExit(f"bench_pytorch.py: not the same model: {', '.join(wrong[:5])}")
        self.worker.say("turn")
        answer = self.worker.hear()
        speeds = answer["speeds"]
        return max(speeds), statistics.median(speeds), answer["peak_memory_bytes"]

    def close(self):
        if self.worker is not None:
            self.worker.close()


def say(text):
    print(text, file=sys.stderr, flush=True)


def measure(sides, rounds, length, what=""):
    """A row for each side; a side that fails once has no figures. what: begins the progress."""
    turns, faults = {side: [] for side in sides}, {}
    try:
        for number in range(1, rounds + 1):
            for side in sides:
                if side in faults:
                    continue
                say(f"{what}length {length:,}, round {number} of {rounds}: {label(side)}")
                try:
                    turns[side].append(side.turn())
                except Fault as fault:
                    faults[side] = str(fault)
    finally:
        for side in sides:
            side.close()
    rows, ours, first = [], {}, None
    for side in sides:
        row = {"side": side.name, "linear_attention": side.linear_attention, "tokens_per_s": None,
               "tokens_per_s_median": None, "peak_memory_bytes": None, "ratio": None,
               "times_first": None, "error": faults.get(side), **side.case}
        if side not in faults:
            bests, medians, peaks = zip(*turns[side])
            row["tokens_per_s"] = max(bests)
            row["tokens_per_s_median"] = statistics.median(medians)
            row["peak_memory_bytes"] = max(peaks)
            case = tuple(side.case.values())
            if case in ours:
                row["ratio"] = ours[case] / row["tokens_per_s"]
                first = first or row["tokens_per_s"]
            else:
                ours[case] = row["tokens_per_s"]
        for name, speeds in zip(("products_bytes_per_s", "reading_bytes_per_s"),
                                zip(*side.weight_speeds)):
            row[name] = max(speeds)
        rows.append(row)
    for row in rows:
        if first and row["tokens_per_s"]:
            row["times_first"] = row["tokens_per_s"] / first
    return rows


def label(side):
    return side.name + (f", {side.linear_attention}" if side.linear_attention else "")


def linear_attentions(arguments, request):
    """The forms to measure at this length; none where the model has no NormAttention."""
    model = request["model"]
    early = model["early_layers"] if model["early_layers"] >= 0 else model["layers"] // 2
    settings = [model["early"]] * (early > 0) + [model["late"]] * (early < model["layers"])
    if all(setting["attention"] != "norm" for setting in settings):
        return [None]
    if arguments.linear_attention == "both":
        return ["quadratic", "chunked"]
    return [linear_attention(arguments, request)]


def linear_attention(arguments, request):
    """The one that was asked for, or the faster at this length."""
    if arguments.linear_attention != "auto":
        return arguments.linear_attention
    worker = Worker({"task": "choose", **request})
    try:
        seconds = worker.hear()
    except Fault as fault:
        raise SystemExit(f"bench_pytorch.py: linear attention could not be timed: {fault}")
    finally:
        worker.close()
    say(f"length {request['length']:,}: forward and backward of one linear attention: " +
        ", ".join(f"{form} {1e3 * value:,.1f} ms" for form, value in seconds.items()))
    return min(seconds, key=seconds.get)


def request_for(arguments, config, inspected):
    """What the requests to a worker have in common."""
    train = config["train"]
    request = {
        "model": config["model"], "vocab_size": inspected["vocab_size"],
        "optimizer": config["optimizer"], "mode": arguments.mode,
        "device": arguments.device or train["device"], "repeat": arguments.repeat,
        "compile_mode": arguments.compile_mode,
        "threads": train["threads"] or os.cpu_count(),
    }
    if request["device"] == "auto":
        request["device"] = "cuda" if pathlib.Path("/dev/nvidia0").exists() else "cpu"
    return request


def answer_to(arguments, request, **more):
    """The answer, as --json prints it, before there are rows."""
    return {"config": str(arguments.config), **more, "threads": request["threads"],
            "device": request["device"], "rounds": arguments.rounds, "repeat": arguments.repeat,
            "rows": []}


def tensors_of(inspected):
    return {tensor["name"]: tensor["shape"] for tensor in inspected["tensors"]}


def micro_batch_of(train):
    return train["micro_batch_size"] or train["global_batch_size"]


def compare(arguments):
    """The answer without --attentions."""
    config = ask_program(arguments, "config", "show", str(arguments.config), "--json")
    inspected = ask_program(arguments, "inspect", str(arguments.config), "--json")
    train, decode = config["train"], arguments.mode == "decode"
    request = request_for(arguments, config, inspected)
    answer = answer_to(arguments, request, parameters=inspected["parameters"])
    expected, micro_batch = tensors_of(inspected), micro_batch_of(train)
    precisions = arguments.precision or (["fp32", "bf16"] if decode else [train["precision"]])
    batch_sizes = arguments.batch_size or ([1, 16] if decode else [micro_batch])
    for length in arguments.lengths or [config["data"]["tokens_per_sample"]]:
        # As `bench` has it: decoding goes on from the length for a few tokens.
        positions = length + (max(32, length // 16) + 1 if decode else 0)
        request |= {"length": length, "positions": positions}
        if "position.weight" in expected:  # a learned table has a row a position
            expected["position.weight"][0] = positions
        sides = []
        for precision, batch_size in itertools.product(precisions, batch_sizes):
            request |= {"precision": precision, "batch_size": batch_size}
            sides.append(Ours(arguments, request))
            for form in [None] if decode else linear_attentions(arguments, request):
                for compiled in [False, True] if arguments.compiled and not decode else [False]:
                    sides.append(PyTorch(
                        {**request, "compiled": compiled, "linear_attention": form}, expected))
        answer["rows"] += measure(sides, arguments.rounds, length)
    return answer


def with_tables_of(config, length):
    return {**config, "data": {**config["data"], "tokens_per_sample": length}}


def with_attention(config, name):
    """The resolved config with this attention in both halves, with the settings that it has for it
    if it has. Both ways, which all of them can be."""
    model = config["model"]
    chosen = next((half for half in (model["early"], model["late"]) if half["attention"] == name),
                  {"attention": name})
    return {**config, "model": {**model, "variant": "custom", "early": chosen, "late": chosen,
                                "causal": False}}


class Programs:
    """Asks the program about changed configs, each in a file of its own."""

    def __init__(self, arguments, folder):
        self.arguments, self.file = arguments, pathlib.Path(folder) / "config.json"

    def ask(self, config, *words, sets=()):
        self.file.write_text(json.dumps(config))
        return ask_program(self.arguments, *words, str(self.file), "--json", sets=sets)

    def with_choice(self, config, name):
        """The resolved config with one of --attentions: an attention or a variant of the model."""
        if name in VARIANTS:
            return self.ask(config, "config", "show", sets=[f"model.variant={name}"])
        return self.ask(with_attention(config, name), "config", "show")


def described(models):
    """For each: whether it can be causal, and has the two forms of linear attention."""
    worker = Worker({"task": "describe", "models": models})
    try:
        return worker.hear()["models"]
    except Fault as fault:
        raise SystemExit(f"bench_pytorch.py: {fault}")
    finally:
        worker.close()


def joined_row(attention, causal, ours, theirs):
    """One row of both sides'."""
    row = {"attention": attention, "causal": causal,
           **{key: ours[key] for key in ("length", "batch_size", "mode", "precision")}}
    for prefix, side in (("", ours), ("pytorch_", theirs)):
        for key in ("tokens_per_s", "tokens_per_s_median", "peak_memory_bytes", "error"):
            row[prefix + key] = side[key]
    return {**row, "pytorch_linear_attention": theirs["linear_attention"], "ratio": theirs["ratio"]}


def compare_attentions(arguments):
    """The answer with --attentions."""
    config = ask_program(arguments, "config", "show", str(arguments.config), "--json")
    train = config["train"]
    lengths = arguments.lengths or [config["data"]["tokens_per_sample"]]
    precisions = arguments.precision or [train["precision"]]
    batch_sizes = arguments.batch_size or [micro_batch_of(train)]
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(arguments, folder)
        cases = [(name, length, programs.with_choice(with_tables_of(config, length), name))
                 for name in arguments.attentions for length in lengths]
        kinds = described([changed["model"] for _, _, changed in cases])
        inspections = []
        for (_, _, changed), kind in zip(cases, kinds):
            changed["model"]["causal"] = config["model"].get("causal", True) and kind["causal"]
            inspections.append(programs.ask(changed, "inspect"))
    answer, forms = None, {}
    for (name, length, changed), kind, inspected in zip(cases, kinds, inspections):
        for precision, batch_size in itertools.product(precisions, batch_sizes):
            request = {**request_for(arguments, changed, inspected), "length": length,
                       "positions": length, "precision": precision, "batch_size": batch_size,
                       "compiled": False, "linear_attention": None}
            answer = answer or answer_to(arguments, request)
            if kind["linear"]:
                case = length, precision, batch_size
                forms[case] = forms.get(case) or linear_attention(arguments, request)
                request["linear_attention"] = forms[case]
            sides = [Ours(arguments, request, name), PyTorch(request, tensors_of(inspected))]
            answer["rows"].append(joined_row(name, request["model"]["causal"], *measure(
                sides, arguments.rounds, length, f"{name}, ")))
    return answer


def memory_words(count):
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:,.0f} MiB"


def show(answer):
    first = answer["rows"][0]
    precisions = " and ".join(dict.fromkeys(row["precision"] for row in answer["rows"]))
    print(f"{first['mode']} in {precisions} on {answer['device']}, {answer['threads']} "
          f"threads, {answer['parameters']:,} parameters; best of {answer['rounds']} rounds in turn")
    print(f"{'side':<28} {'type':>4} {'length':>8} {'batch':>6} {'tokens/s':>12} {'median':>12} "
          f"{'peak memory':>12} {'ours/side':>10} {'/ PyTorch':>10}")
    for row in answer["rows"]:
        name = row["side"] + (f", {row['linear_attention']}" if row["linear_attention"] else "")
        start = f"{name:<28} {row['precision']:>4} {row['length']:>8,} {row['batch_size']:>6,}"
        if row["error"]:
            print(f"{start} {row['error']} {'-':>10} {'-':>10}")
            continue
        ratio, times_first = (f"{row[key]:.2f}" if row[key] else ""
                              for key in ("ratio", "times_first"))
        print(f"{start} {row['tokens_per_s']:>12,.1f} {row['tokens_per_s_median']:>12,.1f} "
              f"{memory_words(row['peak_memory_bytes']):>12} {ratio:>10} {times_first:>10}")
    for row in answer["rows"]:
        if row.get("reading_bytes_per_s"):
            products, reading = row["products_bytes_per_s"], row["reading_bytes_per_s"]
            print(f"products alone, {row['precision']}, batch {row['batch_size']}: weights at "
                  f"{products / 1e9:.1f} GB/s, {products / reading:.0%} of reading "
                  f"({reading / 1e9:.1f} GB/s)")


def show_attentions(answer):
    first = answer["rows"][0]
    print(f"{first['mode']} on {answer['device']}, {answer['threads']} threads, eager PyTorch; best of "
          f"{answer['rounds']} rounds in turn")
    print(f"{'attention':<16} {'type':>4} {'length':>8} {'batch':>6} {'tokens/s':>12} "
          f"{'PyTorch':>12} {'ratio':>6} {'peak memory':>12} {'PyTorch':>12}")
    for row in answer["rows"]:
        speeds = [f"{row[key]:,.1f}" if row[key] else "-"
                  for key in ("tokens_per_s", "pytorch_tokens_per_s")]
        peaks = [memory_words(row[key]) if row[key] else "-"
                 for key in ("peak_memory_bytes", "pytorch_peak_memory_bytes")]
        ratio = f"{row['ratio']:.2f}" if row["ratio"] else "-"
        name = row["attention"] + ("" if row["causal"] else " *")
        print(f"{name:<16} {row['precision']:>4} {row['length']:>8,} {row['batch_size']:>6,} "
              f"{speeds[0]:>12} {speeds[1]:>12} {ratio:>6} {peaks[0]:>12} {peaks[1]:>12}")
        for side, key in ((PROGRAM, "error"), ("PyTorch", "pytorch_error")):
            if row[key]:
                print(f"  {side}: {row[key]}")
    if not all(row["causal"] for row in answer["rows"]):
        print("* both ways")


def positive(text):
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def positives(text):
    return [positive(word) for word in text.split(",")]


def precisions_of(text):
    words = text.split(",")
    if not set(words) <= {"fp32", "bf16", "fp16"}:
        raise ValueError
    return words


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("config", type=pathlib.Path, metavar="CONFIG", help="the config file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="set a key of the config, as model.dim=256 (repeatable)")
    parser.add_argument("--lengths", type=positives, metavar="A,B",
                        help="tokens a sequence (data.tokens_per_sample unless told)")
    parser.add_argument("--batch-size", type=positives, metavar="A,B",
                        help="sequences a step (the micro-batch of the config unless told; decode: "
                        "1,16)")
    parser.add_argument("--precision", type=precisions_of, metavar="P,Q",
                        help="types of the matrix products: fp32, bf16, fp16 (train.precision unless "
                        "told; decode: fp32,bf16)")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"],
                        help="where to compute (train.device unless told)")
    parser.add_argument("--mode", choices=["train", "infer", "decode"], default="train",
                        help="what to time")
    parser.add_argument("--threads", type=positive, metavar="N", help="as --set train.threads=N")
    parser.add_argument("--rounds", type=positive, default=3, metavar="N",
                        help="turns of each side (3)")
    parser.add_argument("--repeat", type=positive, default=3, metavar="N",
                        help="timed repeats a turn (3)")
    parser.add_argument("--linear-attention", default="auto",
                        choices=["auto", "quadratic", "chunked", "both"],
                        help="its form in PyTorch (auto: what is faster at that length)")
    parser.add_argument("--compiled", action=argparse.BooleanOptionalAction, default=True,
                        help="measure torch.compile beside eager PyTorch")
    parser.add_argument("--compile-mode", default="default", metavar="MODE",
                        help="torch.compile's mode (default)")
    parser.add_argument("--attentions", type=lambda text: text.split(","), metavar="X,Y",
                        help="measure each of these in both halves of the model, beside eager "
                        "PyTorch")
    parser.add_argument("--transnormer", default=str(ROOT / "build/transnormer"), metavar="PROGRAM",
                        help="the program (build/transnormer)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    if arguments.threads:
        arguments.set.append(f"train.threads={arguments.threads}")
    if arguments.attentions and arguments.mode == "decode":
        parser.error("--attentions: expected --mode train or infer, got decode")
    if arguments.attentions and arguments.linear_attention == "both":
        parser.error("--attentions: expected one form of --linear-attention, got both")
    try:
        answer = compare_attentions(arguments) if arguments.attentions else compare(arguments)
    except KeyboardInterrupt:
        return 130
    if arguments.json:
        print(json.dumps(answer, indent=2))
    elif arguments.attentions:
        show_attentions(answer)
    else:
        show(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
