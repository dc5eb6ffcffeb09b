"""Speed and memory of the program beside the same model in PyTorch, eager and compiled, in one run.

usage: bench_pytorch.py CONFIG [--set KEY=VALUE].. [--lengths A,B] [--batch-size A,B]
           [--precision P,Q] [--device D] [--mode train|infer|decode] [--threads N]
           [--rounds N] [--repeat N] [--linear-attention auto|quadratic|chunked|both]
           [--compiled | --no-compiled] [--compile-mode MODE] [--transnormer PROGRAM] [--json]

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


def ask_program(arguments, *words):
    """The program's JSON answer. Its faults are the user's to see as it words them."""
    command = [arguments.transnormer, *words]
    for setting in arguments.set:
        command += ["--set", setting]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=environment())
    except OSError as error:
        raise SystemExit(f"bench_pytorch.py: {arguments.transnormer}: {error.strerror}; build it "
                         "with scripts/build.sh, or name it with --transnormer")
    if done.returncode:
        sys.stderr.write(done.stderr)
        sys.exit(done.returncode if done.returncode > 0 else 1)
    return json.loads(done.stdout)


def case_of(request):
    """What sides that are compared have in common."""
    return {key: request[key] for key in ("length", "batch_size", "mode", "precision")}


class Ours:
    name, linear_attention = PROGRAM, None

    def __init__(self, arguments, request):
        self.arguments, self.case, self.weight_speeds = arguments, case_of(request), []
        self.words = ["bench", str(arguments.config), "--json", "--mode", request["mode"],
                      "--lengths", str(request["length"]), "--batch-size",
                      str(request["batch_size"]), "--precision", request["precision"], "--device",
                      request["device"], "--repeat", str(request["repeat"])]

    def turn(self):
        row, = ask_program(self.arguments, *self.words)["rows"]
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


def measure(sides, rounds, length):
    """A row for each side; a side that fails once has no figures."""
    turns, faults = {side: [] for side in sides}, {}
    try:
        for number in range(1, rounds + 1):
            for side in sides:
                if side in faults:
                    continue
                say(f"length {length:,}, round {number} of {rounds}: {label(side)}")
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
    """The forms to measure at this length; none where the model has no linear attention."""
    model = request["model"]
    early = model["early_layers"] if model["early_layers"] >= 0 else model["layers"] // 2
    settings = [model["early"]] * (early > 0) + [model["late"]] * (early < model["layers"])
    if all(setting["attention"] != "norm" for setting in settings):
        return [None]
    if arguments.linear_attention == "both":
        return ["quadratic", "chunked"]
    if arguments.linear_attention != "auto":
        return [arguments.linear_attention]
    worker = Worker({"task": "choose", **request})
    try:
        seconds = worker.hear()
    except Fault as fault:
        raise SystemExit(f"bench_pytorch.py: linear attention could not be timed: {fault}")
    finally:
        worker.close()
    say(f"length {request['length']:,}: forward and backward of one linear attention: " +
        ", ".join(f"{form} {1e3 * value:,.1f} ms" for form, value in seconds.items()))
    return [min(seconds, key=seconds.get)]


def compare(arguments):
    """The answer, as --json prints it."""
    config = ask_program(arguments, "config", "show", str(arguments.config), "--json")
    inspected = ask_program(arguments, "inspect", str(arguments.config), "--json")
    train, model, decode = config["train"], config["model"], arguments.mode == "decode"
    micro_batch = train["micro_batch_size"] or train["global_batch_size"]
    request = {
        "model": model, "vocab_size": inspected["vocab_size"], "optimizer": config["optimizer"],
        "mode": arguments.mode,
        "device": arguments.device or train["device"], "repeat": arguments.repeat,
        "compile_mode": arguments.compile_mode,
        "threads": train["threads"] or os.cpu_count(),
    }
    if request["device"] == "auto":
        request["device"] = "cuda" if pathlib.Path("/dev/nvidia0").exists() else "cpu"
    answer = {"config": str(arguments.config), "parameters": inspected["parameters"],
              "threads": request["threads"], "device": request["device"],
              "rounds": arguments.rounds, "repeat": arguments.repeat, "rows": []}
    expected = {tensor["name"]: tensor["shape"] for tensor in inspected["tensors"]}
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
    parser.add_argument("--transnormer", default=str(ROOT / "build/transnormer"), metavar="PROGRAM",
                        help="the program (build/transnormer)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    if arguments.threads:
        arguments.set.append(f"train.threads={arguments.threads}")
    try:
        answer = compare(arguments)
    except KeyboardInterrupt:
        return 130
    if arguments.json:
        print(json.dumps(answer, indent=2))
    else:
        show(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
