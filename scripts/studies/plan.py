"""What a study compares: configs/studies/NAME.json, read, checked, and resolved for one scale."""

import dataclasses
import difflib
import json
import pathlib
import re

MEASURES = ("perplexity", "gradients", "dilution", "speed")
SCALES = ("cpu", "gpu", "paper")
OUT_OF_MEMORY = "out of memory"
TEXTS = {"bible": "the King James Bible, word level", "wikitext-103": "WikiText-103, word level"}

# What stands at each place of the file, and of which type; True: must be there.
STUDY_KEYS = {"title": (str, True), "question": (str, True), "measure": (str, True),
              "set": (dict, False), "rows": (list, True), "published": (dict, False),
              "expected": (list, False), "notes": (list, False), "scales": (dict, True)}
ROW_KEYS = {"name": (str, True), "label": (str, True), "set": (dict, False),
            "at": (dict, False), "published": (dict, False), "unconfirmed": (list, False)}
PUBLISHED_KEYS = {"source": (str, True), "what": (str, True)}
EXPECTED_KEYS = {"columns": (list, True), "better": (str, True), "worse": (str, True),
                 "source": (str, True)}
SCALE_KEYS = {"config": (str, True), "what": (str, True), "text": (str, False),
              "set": (dict, False), "bench": (dict, False)}
BENCH_KEYS = {"modes": (list, True), "lengths": (list, True), "batch_size": (int, True),
              "repeat": (int, True)}


class StudyError(Exception):
    """A fault of the user's, told in one line."""


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    label: str
    settings: dict     # model.* only, so that every row has the same budget
    published: dict    # by column: a number, or OUT_OF_MEMORY
    unconfirmed: tuple  # those columns of `published` that a second source gave


@dataclasses.dataclass(frozen=True)
class Bench:
    modes: tuple
    lengths: tuple
    batch_size: int
    repeat: int


@dataclasses.dataclass(frozen=True)
class Study:
    file: pathlib.Path
    name: str
    title: str
    question: str
    measure: str
    scale: str
    scale_what: str    # text and size, in words
    text: str          # a key of TEXTS; empty where none is read
    config: pathlib.Path
    settings: dict     # what all rows share
    rows: tuple
    published: dict    # source, what; empty where the paper has a picture only
    expected: tuple    # orders that the paper tells in words
    notes: tuple
    bench: Bench | None

    def row(self, name):
        return next(row for row in self.rows if row.name == name)

    def settings_of(self, row):
        """A row's `--set`s, apart from the seed."""
        return self.settings | row.settings


def as_options(settings):
    """{"model.layers": 4} -> ["--set", "model.layers=4"]."""
    words = []
    for key, value in settings.items():
        text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        words += ["--set", f"{key}={text}"]
    return words


def known_studies(folder):
    names = [path.stem for path in folder.glob("*.json")]
    return sorted(names, key=lambda name: [int(word) if word.isdigit() else word
                                           for word in re.split(r"(\d+)", name)])


def find_study(name, folder):
    """The file of a study of ours, or one that is named by its path."""
    if name.endswith(".json"):
        return pathlib.Path(name)
    file = folder / f"{name}.json"
    if "/" in name or not file.is_file():
        raise StudyError(f'there is no study "{name}"; known are {", ".join(known_studies(folder))}')
    return file


def read_json(file):
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StudyError(f"{file}: {error.strerror}")
    except ValueError as error:
        raise StudyError(f"{file}: {error}")


def load_study(file, scale):
    """The study in a file as it is run at a scale."""
    reader = Reader(file)
    top = reader.section("", read_json(file), STUDY_KEYS)
    reader.choice("measure", top["measure"], MEASURES)
    scales = reader.part("scales", top["scales"], dict)
    for name in scales:
        reader.choice("scales", name, SCALES)
    if scale not in scales:
        reader.fail(f"has no scale \"{scale}\"; it has {', '.join(scales)}")
    at_scale = {name: read_scale(reader, name, part, top["measure"]) for name, part in scales.items()}
    chosen = at_scale[scale]
    rows = read_rows(reader, top["rows"], scale)
    return Study(
        file=file.resolve(), name=file.stem, title=top["title"], question=top["question"], measure=top["measure"],
        scale=scale, scale_what=chosen["what"], text=chosen.get("text", ""),
        config=(file.parent / chosen["config"]).resolve(),
        settings=reader.settings("set", top.get("set", {})) | chosen.get("set", {}), rows=rows,
        published=reader.section("published", top["published"], PUBLISHED_KEYS)
        if "published" in top else {},
        expected=read_expected(reader, top.get("expected", []), rows),
        notes=tuple(top.get("notes", [])), bench=read_bench(chosen.get("bench")))


def read_scale(reader, name, part, measure):
    where = f"scales.{name}"
    scale = reader.section(where, part, SCALE_KEYS)
    reader.settings(f"{where}.set", scale.get("set", {}))
    if "text" in scale:
        reader.choice(f"{where}.text", scale["text"], tuple(TEXTS))
    if ("bench" in scale) != (measure == "speed"):
        reader.fail(f'{where}: "bench" belongs to the measure "speed", and only there')
    if "bench" in scale:
        bench = reader.section(f"{where}.bench", scale["bench"], BENCH_KEYS)
        for mode in bench["modes"]:
            reader.choice(f"{where}.bench.modes", mode, ("train", "infer", "decode"))
    return scale


def read_bench(part):
    if part is None:
        return None
    return Bench(tuple(part["modes"]), tuple(part["lengths"]), part["batch_size"], part["repeat"])


def read_rows(reader, parts, scale):
    rows = []
    for index, part in enumerate(parts):
        where = f"rows[{index}]"
        row = reader.section(where, part, ROW_KEYS)
        settings = reader.model_settings(f"{where}.set", row.get("set", {}))
        for name, more in row.get("at", {}).items():
            reader.choice(f"{where}.at", name, SCALES)
            more = reader.model_settings(f"{where}.at.{name}", more)
            settings |= more if name == scale else {}
        published = row.get("published", {})
        unconfirmed = row.get("unconfirmed", [])
        for column, value in published.items():
            if value != OUT_OF_MEMORY and not is_number(value):
                reader.fail(f'{where}.published.{column}: expected a number or "{OUT_OF_MEMORY}"')
        if not set(unconfirmed) <= set(published):
            reader.fail(f"{where}.unconfirmed: expected columns of published, got {unconfirmed}")
        rows.append(Row(row["name"], row["label"], settings, published, tuple(unconfirmed)))
    names = [row.name for row in rows]
    if len(rows) < 2 or len(set(names)) < len(names):
        reader.fail("rows: expected two or more, each of another name")
    for name in names:
        if not re.fullmatch(r"[a-z0-9_-]+", name):
            reader.fail(f'rows: expected names of a-z, 0-9, "_" and "-", got "{name}"')
    return tuple(rows)


def read_expected(reader, parts, rows):
    expected = []
    for index, part in enumerate(parts):
        order = reader.section(f"expected[{index}]", part, EXPECTED_KEYS)
        for side in ("better", "worse"):
            reader.choice(f"expected[{index}].{side}", order[side], tuple(row.name for row in rows))
        expected.append(order)
    return tuple(expected)


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Reader:
    """Faults are told with the file and the place in it."""

    def __init__(self, file):
        self.file = file

    def fail(self, text):
        raise StudyError(f"{self.file}: {text}")

    def part(self, where, value, kind):
        if not isinstance(value, kind) or isinstance(value, bool):
            self.fail(f"{where}: expected {kind.__name__}, got {json.dumps(value)[:60]}")
        return value

    def section(self, where, value, keys):
        prefix = f"{where}." if where else ""
        self.part(where or "the file", value, dict)
        for key in value:
            if key not in keys:
                near = difflib.get_close_matches(key, keys, 1)
                hint = f'; did you mean "{near[0]}"?' if near else ""
                self.fail(f'{prefix}{key}: unknown key{hint}')
        for key, (kind, needed) in keys.items():
            if key in value:
                self.part(prefix + key, value[key], kind)
            elif needed:
                self.fail(f"{prefix}{key}: is missing")
        return value

    def choice(self, where, value, choices):
        if value not in choices:
            self.fail(f'{where}: expected one of {", ".join(choices)}, got "{value}"')

    def settings(self, where, value):
        for key in self.part(where, value, dict):
            if key == "train.seed":
                self.fail(f"{where}: train.seed is told by --seeds")
        return dict(value)

    def model_settings(self, where, value):
        for key in self.part(where, value, dict):
            if not key.startswith("model."):
                self.fail(f"{where}: {key} would give this row another budget than the others; "
                          "a row sets model.* only")
        return dict(value)
