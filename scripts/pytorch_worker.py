"""One PyTorch side of scripts/bench_pytorch.py, in a process of its own.

Reads a request, a JSON object in one line, on stdin. Of task "choose" it answers with the seconds
that each form of linear attention takes; of task "describe" with what the attentions of some models
are; of task "time" with the model's tensors, and then, for each
line that follows on stdin, with the speeds of some repeats and the peak of memory. Answers are JSON
objects, a line each; {"error": reason} is the last one.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import resource
import sys
import time

import torch

import pytorch_attentions
import pytorch_model
import pytorch_parts

LEAST_REPEAT_SECONDS = 0.1  # shorter ones measure the clock
CLIP_NORM = 1.0


def limit_memory():
    """To be refused memory that is not there, rather than have the system end some process."""
    with contextlib.suppress(OSError, ValueError):
        for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limit = int(line.split()[1]) * 1024 * 9 // 10
                _, most = resource.getrlimit(resource.RLIMIT_DATA)
                limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
                resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


def peak_memory():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def words_for(error):
    """Why PyTorch gave up."""
    text = str(error)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" \
            or "can't allocate memory" in text:
        return "out of memory"
    return f"{type(error).__name__}: {text.strip().splitlines()[0] if text.strip() else ''}"[:200]


class Side:
    """The model of a request, ready to be timed."""

    def __init__(self, request):
        torch.manual_seed(1)
        torch.set_num_threads(request["threads"])
        self.device, self.mode = request["device"], request["mode"]
        self.compute = {"fp32": torch.float32, "bf16": torch.bfloat16,
                        "fp16": torch.float16}[request["precision"]]
        shape = request["batch_size"], request["length"]
        with torch.device(self.device):
            self.model = pytorch_model.TransNormer(
                request["model"], request["vocab_size"], request["positions"],
                request["linear_attention"], self.compute)
            self.inputs = torch.randint(request["vocab_size"], shape)
            self.targets = torch.randint(request["vocab_size"], shape)
        self.model.train(self.mode == "train")
        self.tokens = self.inputs.numel()
        self.most_steps = request["positions"] - request["length"] or None
        if self.mode == "decode":
            self.tokens = request["batch_size"]
            self.states = self.model.to_compute().start(self.tokens, request["positions"])
            for self.position in range(request["length"]):
                self.next = self.inputs[:, self.position, None]
                self.decode()
        settings = request["optimizer"]
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=settings["lr"], betas=tuple(settings["betas"]),
            eps=settings["eps"], weight_decay=settings["weight_decay"], fused=True)
        self.scaler = torch.amp.GradScaler(self.device, enabled=request["precision"] == "fp16")
        self.loss = self.model.loss
        if request["compiled"]:
            self.loss = torch.compile(self.loss, mode=request["compile_mode"])

    def autocast(self):
        half = self.compute != torch.float32
        return torch.autocast(self.device, self.compute if half else None, enabled=half)

    def begin(self):
        """Decoding goes on after the context again, whatever came behind it."""
        if self.mode == "decode":
            self.next = self.inputs[:, -1:]
            self.position = self.inputs.shape[1]

    def decode(self):
        with torch.inference_mode():
            logits = self.model.step(self.next, self.states, self.position)
            self.next = logits.argmax(-1)
        self.position += 1

    def step(self):
        if self.mode == "decode":
            self.decode()
            return
        if self.mode == "infer":
            with torch.no_grad(), self.autocast():
                self.loss(self.inputs, self.targets, reduction="none")
            return
        self.optimizer.zero_grad(set_to_none=True)
        self.model.redraw()
        with self.autocast():
            loss = self.loss(self.inputs, self.targets)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def seconds(self, steps):
        self.begin()
        self.synchronize()
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        self.synchronize()
        return time.perf_counter() - began

    def synchronize(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def reset_peak(self):
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        else:
            with contextlib.suppress(OSError):
                pathlib.Path("/proc/self/clear_refs").write_text("5")

    def peak(self):
        return torch.cuda.max_memory_allocated() if self.device == "cuda" else peak_memory()

    def rest(self):
        """Gives back what only a step needs, since another side is next."""
        self.optimizer.zero_grad(set_to_none=True)
        if self.device == "cuda":
            torch.cuda.empty_cache()
        else:
            ctypes.CDLL(None).malloc_trim(0)

    def tensors(self):
        return {name: list(value.shape) for name, value in self.model.state_dict().items()}

    def warm_up(self):
        """Compiles where that is asked for; says how many steps a repeat takes."""
        self.seconds(1)
        steps = max(1, round(LEAST_REPEAT_SECONDS / self.seconds(1)))
        return min(steps, self.most_steps) if self.most_steps else steps


def attention_seconds(request):
    """Of forward and backward of one NormAttention in each of the two forms."""
    torch.set_num_threads(request["threads"])
    model = request["model"]
    shape = (request["batch_size"], request["length"], model["heads"],
             model["dim"] // model["heads"])
    compute = {"bf16": torch.bfloat16}.get(request["precision"], torch.float32)
    parts = [torch.rand(shape, device=request["device"], dtype=compute,
                        requires_grad=request["mode"] == "train") for _ in range(3)]

    def once(form):
        began = time.perf_counter()
        y = pytorch_parts.FORMS[form](*parts)
        if y.requires_grad:
            y.backward(y.detach())
        if request["device"] == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    best = {"chunked": min(once("chunked") for _ in range(4))}
    try:
        best["quadratic"] = once("quadratic")
        if best["quadratic"] < 4 * best["chunked"]:
            best["quadratic"] = min(once("quadratic") for _ in range(3))
    except (RuntimeError, MemoryError):
        pass
    return best


def description(model):
    """Whether a model can be causal, and whether it has linear attention, which has two forms."""
    halves = [model["early"], model["late"]]
    return {"causal": all(map(pytorch_attentions.can_be_causal, halves)),
            "linear": any(map(pytorch_attentions.is_linear, halves))}


def work():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what PyTorch and the compilers that it calls may print is no answer

    def answer(**what):
        print(json.dumps(what), file=answers, flush=True)

    request = json.loads(sys.stdin.readline())
    if request.get("device") == "cpu":
        limit_memory()
    try:
        if request["task"] == "choose":
            answer(**attention_seconds(request))
            return
        if request["task"] == "describe":
            answer(models=[description(model) for model in request["models"]])
            return
        side = Side(request)
        answer(tensors=side.tensors())
        steps = None
        for _ in sys.stdin:
            if steps is None:
                steps = side.warm_up()
                side.reset_peak()
            else:
                side.seconds(1)  # what rest() gave back is made anew
            speeds = [steps * side.tokens / side.seconds(steps) for _ in range(request["repeat"])]
            peak = side.peak()
            side.rest()
            answer(speeds=speeds, peak_memory_bytes=peak)
    except Exception as error:  # whatever PyTorch throws is that side's result
        answer(error=words_for(error))


if __name__ == "__main__":
    work()
