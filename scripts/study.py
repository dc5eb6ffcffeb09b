"""Runs a study of the paper's tables and figures, goes on where it was stopped, and writes its table.

usage: study.py NAME [--scale cpu|gpu|paper] [--seeds N] [--out DIR] [--table-only]

NAME is one of configs/studies/*.json (configs/studies/README.md says what each compares), or a file
of that kind. Every run is a run directory of its own in DIR (runs/studies/NAME); DIR/table.md is
written anew after each, DIR/results.json and the PNGs at the end. --table-only makes them from what
is there. TRANSNORMER_PROGRAM in the environment names another program than build/transnormer.
"""

import argparse
import contextlib
import fcntl
import os
import pathlib
import shlex
import subprocess
import sys
import time

from studies import pictures, report, results, runs
from studies.plan import SCALES, StudyError, find_study, load_study
from studies.program import Program, ProgramFault, Stopped

ROOT = pathlib.Path(__file__).resolve().parent.parent
STUDIES = ROOT / "configs/studies"
STATE = "state.json"  # of a study's directory: which study it holds
TEXT_MAKERS = {"bible": [sys.executable, ROOT / "scripts/get_bible.py"],
               "wikitext-103": [ROOT / "scripts/get_wikitext.sh"]}
TEXT_FILES = {"bible": "data/bible/train.txt", "wikitext-103": "data/wikitext-103/wiki.train.tokens"}


class OneLine(argparse.ArgumentParser):
    def error(self, message):
        raise StudyError(f"{message} (see --help)")


def parse_arguments():
    parser = OneLine(prog="study.sh", description=__doc__.split("\n")[0])
    parser.add_argument("name", metavar="NAME",
                        help="a study of configs/studies/, or a file of that kind")
    parser.add_argument("--scale", choices=SCALES, help="cpu (unless told): minutes on two cores; "
                        "gpu: an hour or so on one; paper: the published sizes and recipe")
    parser.add_argument("--seeds", type=at_least_one, metavar="N",
                        help="runs of each row, with the seeds 1 to N (3 unless told)")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR",
                        help="where the study lives (runs/studies/NAME unless told)")
    parser.add_argument("--table-only", action="store_true",
                        help="run nothing; make table, results and pictures from what is there")
    return parser.parse_args()


def at_least_one(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'expected a whole number from 1, got "{text}"')
    return int(text)


def lock(out):
    """Held while this process or a child of it lives; a second process of the study is refused."""
    out.mkdir(parents=True, exist_ok=True)
    file = os.open(out / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise StudyError(f"{out}: another process is at work on this study; wait for it, or name "
                         "another directory by --out")
    return file


def settle(options, out):
    """Scale and seeds: as asked for, else as the directory was begun with, else cpu and 3. A directory
    holds one study at one scale."""
    begun = runs.read_record(out / STATE) or {}
    if (begun and not {"study", "scale", "seeds"} <= begun.keys()) or (
            not begun and out.exists() and (not out.is_dir() or any(
                not file.name.startswith(".") for file in out.iterdir()))):
        raise StudyError(f"{out}: holds what is no study's; name a new or an empty directory by --out")
    name = pathlib.Path(options.name).stem
    scale = options.scale or begun.get("scale", "cpu")
    if begun and (begun["study"], begun["scale"]) != (name, scale):
        raise StudyError(f"{out}: holds {begun['study']} at scale {begun['scale']}; name another "
                         "directory by --out")
    return scale, options.seeds or begun.get("seeds", 3)


def get_text(study):
    """What scripts/quickstart.sh does for its text."""
    if study.text and not (ROOT / TEXT_FILES[study.text]).is_file():
        if subprocess.run(TEXT_MAKERS[study.text], stdout=sys.stderr, check=False).returncode != 0:
            raise StudyError(f"the text could not be made (see above): {TEXT_FILES[study.text]}")


def say(text):
    print(text, file=sys.stderr, flush=True)


def run_all(study, jobs, seeds, program, out):
    """What is not done yet, one after another; the table follows each."""
    facts = runs.check(study, jobs, program)
    runs.write_record(out / STATE, {"study": study.name, "scale": study.scale, "seeds": seeds})
    get_text(study)
    to_do = [job for job in jobs if runs.record_of(job) is None]
    if len(to_do) < len(jobs):
        say(f"{len(jobs) - len(to_do)} of {len(jobs)} are done already")
    began = time.monotonic()
    for done, job in enumerate(to_do):
        left = (time.monotonic() - began) / done * (len(to_do) - done) if done else None
        say(f"[{len(jobs) - len(to_do) + done + 1}/{len(jobs)}] {job.words()}"
            + ("" if left is None else f"   (about {left / 60:.0f} min left)"))
        runs.do(job, study, program, facts[job.row.name])
        write_table(results.gather(study, jobs, seeds), out)


def write_table(found, out, drawn=()):
    runs.write_whole(out / "table.md", report.to_markdown(found, command_of(found, out),
                                                          from_root(found.study.config), drawn))


def command_of(found, out):
    """By which the study is run again or gone on with."""
    study = found.study
    name = study.name if study.file.parent == STUDIES else str(study.file)
    words = ["scripts/study.sh", name, "--scale", study.scale, "--seeds", str(found.seeds)]
    if out.resolve() != ROOT / "runs/studies" / study.name:
        words += ["--out", str(out)]
    return shlex.join(words)


def from_root(path):
    """As it is named from the project's folder."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(ROOT))
    return str(path)


def finish(study, jobs, seeds, out):
    found = results.gather(study, jobs, seeds)
    if not found.outcomes:
        raise StudyError(f"{out}: no run of {study.name} is finished yet")
    drawn = pictures.draw_all(found, out)
    write_table(found, out, drawn)
    runs.write_record(out / "results.json", report.to_json(found, command_of(found, out),
                                                           from_root(study.config)))
    print((out / "table.md").read_text(encoding="utf-8"), end="")
    for file in (out / "table.md", out / "results.json", *drawn):
        say(str(file))


def work():
    options = parse_arguments()
    file = find_study(options.name, STUDIES)
    out = options.out or ROOT / "runs/studies" / file.stem
    with contextlib.suppress(ValueError):
        out = out.resolve().relative_to(pathlib.Path.cwd())
    scale, seeds = settle(options, out)
    study = load_study(file, scale)
    if options.table_only and not (out / STATE).is_file():
        raise StudyError(f"{out}: holds no study yet")
    held = lock(out)
    jobs = runs.jobs_of(study, seeds, out)
    if not options.table_only:
        path = os.environ.get("TRANSNORMER_PROGRAM", ROOT / "build/transnormer")
        run_all(study, jobs, seeds, Program(path, held), out)
    finish(study, jobs, seeds, out)


def main():
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        work()
    except Stopped as stopped:
        say("stopped, and saved; the same command goes on from there")
        return stopped.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # a reader of the table that has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ProgramFault as fault:
        if str(fault):
            say(f"study.py: {fault}")
        return fault.status
    except StudyError as fault:
        say(f"study.py: {fault}")
        return 2
    except OSError as error:
        say(f"study.py: {error.filename or 'a file'}: {error.strerror}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
