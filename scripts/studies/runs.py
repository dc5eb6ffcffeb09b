"""The runs of a study: what is to be done, what is done already, doing the rest.

A run of a study is a directory of `transnormer train` beside which the answers about it are kept:

    OUT/ROW-seedN/                          config.json, metrics.jsonl, checkpoints/ as always
                  valid.json  test.json  dilution.json    answers of the program
                  study.json                written last: how it ended, when, where, how long it took

A study of speed has one file for each answer of bench: OUT/bench/ROW-MODE-LENGTH-roundN.json.
"""

import dataclasses
import datetime
import json
import os
import pathlib
import subprocess
import time

from studies.plan import OUT_OF_MEMORY, StudyError, as_options
from studies.program import DIVERGED, ProgramFault

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORD = "study.json"
# What may differ between a run and what is asked for now without making it another run: names, places
# and what is shown.
IMMATERIAL = {("run_name",), ("log",), ("data", "cache_dir"), ("checkpoint",), ("train", "threads")}


@dataclasses.dataclass(frozen=True)
class Job:
    """One run: a row with a seed; for a study of speed also a mode and a length."""
    row: object
    seed: int
    folder: pathlib.Path  # of the run; for speed the file of the answer
    settings: dict
    mode: str = ""
    length: int = 0

    def words(self):
        words = [self.row.name, f"seed {self.seed}"]
        if self.mode:
            words = [self.row.name, self.mode, f"{self.length:,} tokens", f"round {self.seed}"]
        return ", ".join(words)


def jobs_of(study, seeds, out):
    """In the order they are done: every row once, then again, so that a part of a study is fair."""
    jobs = []
    for seed in range(1, seeds + 1):
        if study.measure == "speed":
            jobs += speed_jobs(study, seed, out)
            continue
        for row in study.rows:
            settings = study.settings_of(row) | {"train.seed": seed}
            jobs.append(Job(row, seed, out / f"{row.name}-seed{seed}", settings))
    return jobs


def speed_jobs(study, seed, out):
    jobs = []
    for mode in study.bench.modes:
        for length in study.bench.lengths:
            for row in study.rows:
                # Tables of positions and horizons have the length that is measured.
                settings = study.settings_of(row) | {"data.tokens_per_sample": length}
                file = out / "bench" / f"{row.name}-{mode}-{length}-round{seed}.json"
                jobs.append(Job(row, seed, file, settings, mode, length))
    return jobs


def read_record(file):
    """The object in a file that this script has written; nothing where it is not there."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StudyError(f"{file}: cannot be read ({error}); remove it to have it made again")


def write_whole(file, text):
    """The file appears whole or not at all."""
    unfinished = file.with_name(f".{file.name}.part")
    try:
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, file)
    except OSError as error:
        raise StudyError(f"{file}: {error.strerror}")


def write_record(file, value):
    write_whole(file, json.dumps(value, indent=2) + "\n")


def record_of(job):
    """What is known of a finished job, else nothing."""
    return read_record(job.folder if job.mode else job.folder / RECORD)


def without_immaterial(config):
    kept = {}
    for section, value in config.items():
        if (section,) in IMMATERIAL:
            continue
        kept[section] = ({key: part for key, part in value.items() if (section, key) not in IMMATERIAL}
                         if isinstance(value, dict) else value)
    return kept


def difference(before, now, place=""):
    """The first key whose values differ, and both; nothing where none does. A key that only `now` has
    is one that an earlier build did not know."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before:
            found = difference(before[key], now.get(key), f"{place}.{key}" if place else key)
            if found:
                return found
        return None
    return None if before == now else (place, before, now)


def check(study, jobs, program):
    """Every row can be run and no job has been done otherwise: asked of the program before any starts.
    Gives what each row's records say of it and of the machine."""
    here = {"machine": describe_machine(),
            "program": f"transnormer {program.text('--version').strip()}"}
    facts = {}
    for row in study.rows:
        mine = [job for job in jobs if job.row is row]
        options = [study.config, *as_options(mine[0].settings)]
        try:
            resolved = json.loads(program.text("config", "show", "--json", *options))
            parameters = program.answer("inspect", *options, "--json")["parameters"]
        except ProgramFault as fault:
            raise StudyError(f"{study.name}, row {row.name}: {fault}")
        facts[row.name] = {"parameters": parameters} | here
        for job in mine:
            require_same_job(job, study, resolved)
    if study.measure == "dilution":
        try:
            program.text("analyze", "--help")
        except ProgramFault:
            raise StudyError(f"{study.name}: this build has no command analyze")
    return facts


def require_same_job(job, study, resolved):
    """What an earlier start has made of other settings must not pass for this job."""
    if job.mode:
        record = read_record(job.folder) or {}
        before = {key: record[key] for key in ("settings", "bench") if key in record}
        now = {"settings": job.settings, "bench": as_record(study.bench)}
    else:
        before = without_immaterial(read_record(job.folder / "config.json") or {})
        now = without_immaterial(resolved)
        now["train"]["seed"] = job.seed
    found = difference(before, now) if before else None
    if found:
        key, was, wanted = found
        raise StudyError(f"{job.folder}: was made with {key} {json.dumps(was)}, now it is "
                         f"{json.dumps(wanted)}; remove it, or name another directory by --out")


def as_record(bench):
    return json.loads(json.dumps(dataclasses.asdict(bench)))  # lists, as they are read back


def newest_checkpoint(folder):
    checkpoints = sorted((folder / "checkpoints").glob("step-*"))
    if not checkpoints:
        raise StudyError(f"{folder}: holds no checkpoint")
    return checkpoints[-1]


def do(job, study, program, facts):
    """Does a job and writes what came of it. A training that was stopped goes on."""
    work = measure_speed if job.mode else train_and_ask
    record = work(job, study, program) | facts | {"date": datetime.date.today().isoformat()}
    write_record(job.folder if job.mode else job.folder / RECORD, record)


def train_and_ask(job, study, program):
    options = as_options(job.settings | {"log.level": "warning"})
    status = program.train(study.config, *options, "--run-dir", job.folder)
    if status not in (0, DIVERGED):
        # A fault of the user's was told by the program already.
        raise ProgramFault(status, "" if status == 2 else
                           f"{job.folder}: the training ended with status {status}; the same command "
                           "goes on")
    if status == 0:
        ask(job, study, program)
    return {"ended": "finished" if status == 0 else "diverged"}


def ask(job, study, program):
    """The answers about a trained run, beside it. The last checkpoint: the same budget for all."""
    checkpoint = newest_checkpoint(job.folder)
    questions = {"valid": ["eval", checkpoint, "--split", "valid", "--json"],
                 "test": ["eval", checkpoint, "--split", "test", "--json"]}
    if study.measure == "dilution":
        questions["dilution"] = ["analyze", checkpoint, "--what", "dilution", "--split", "test",
                                 "--out", job.folder / "dilution", "--json"]
    for name, words in questions.items():
        write_record(job.folder / f"{name}.json", program.answer(*words))


def measure_speed(job, study, program):
    """In a process of its own, so that its peak of memory is its own."""
    began = time.monotonic()
    bench = study.bench
    try:
        row = program.answer("bench", study.config, *as_options(job.settings), "--mode", job.mode,
                             "--lengths", job.length, "--batch-size", bench.batch_size, "--repeat",
                             bench.repeat, "--json")["rows"][0]
        ended = "finished"
    except ProgramFault as fault:
        if "memory" not in str(fault):
            raise
        ended, row = OUT_OF_MEMORY, {"reason": str(fault)}
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    return {"ended": ended, "seconds": round(time.monotonic() - began, 1),
            "settings": job.settings, "bench": as_record(bench), "row": row}


def describe_machine():
    """Cores and widest instructions; the GPU where there is one."""
    count = len(os.sched_getaffinity(0))
    words = [f"{count} core{'s' if count > 1 else ''}"]
    cpu = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    fields = dict(line.split(":", 1) for line in cpu.splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    flags = fields.get("flags", "").split()
    names = {"amx_bf16": "AMX", "avx512f": "AVX-512", "avx2": "AVX2"}
    widest = [name for flag, name in names.items() if flag in flags][:2]
    words.append(f"{fields.get('model name', 'unknown processor')} ({', '.join(widest) or 'SSE'})")
    try:
        gpus = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
                              capture_output=True, text=True, check=False).stdout.split("\n")
        words += [gpu.strip() for gpu in gpus[:1] if gpu.strip()]
    except OSError:
        pass
    return ", ".join(words)
