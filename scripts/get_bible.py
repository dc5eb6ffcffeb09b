"""Writes the King James Bible (public domain) as word-level text: data/bible/{train,valid,test}.txt.

The text is that of Debian's package bible-kjv. One verse a line, its reference left out, words and
punctuation separated by spaces, capitals kept. Whole books are held out, chosen from every kind of
text and without passages that other books repeat word for word.

usage: get_bible.py [--out DIRECTORY]
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
VALID_BOOKS = {"Ruth", "Dan", "Zec", "Gal"}
TEST_BOOKS = {"Eccl", "Amos", "John"}
BOOKS, VERSES = 66, 31102

# A word keeps its hyphens and apostrophes ("God-ward", "fathers'"); all else stands alone.
TOKEN = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*'?|--|\S")
REFERENCE = re.compile(r"(\d?[A-Za-z]+)\d+:\d+ ")


def read_verses():
    """The program's output, a verse a line: "Ge1:1 In the beginning .."."""
    try:
        program = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, text=True)
    except FileNotFoundError:
        raise SystemExit("get_bible.py: the program bible is missing: apt-get install bible-kjv")
    if program.returncode != 0:
        raise SystemExit(f"get_bible.py: bible failed: {program.stderr.strip()}")
    return program.stdout.splitlines()


def split_by_book(verses):
    """{"train": [line, ..], "valid": .., "test": ..} of tokens joined by spaces."""
    splits = {"train": [], "valid": [], "test": []}
    books = set()
    for verse in verses:
        reference = REFERENCE.match(verse)
        if not reference:
            raise SystemExit(f"get_bible.py: not a verse: {verse!r}")
        book = reference.group(1)
        books.add(book)
        split = "valid" if book in VALID_BOOKS else "test" if book in TEST_BOOKS else "train"
        splits[split].append(" ".join(TOKEN.findall(verse[reference.end():])))
    if len(books) != BOOKS or len(verses) != VERSES:
        raise SystemExit(f"get_bible.py: expected {BOOKS} books and {VERSES} verses, "
                         f"got {len(books)} and {len(verses)}")
    return splits


def write(path, lines):
    """The file appears whole or not at all."""
    unfinished = path.with_suffix(".part")
    unfinished.write_text("\n".join(lines) + "\n", encoding="ascii")
    os.replace(unfinished, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "data/bible")
    out = parser.parse_args().out
    splits = split_by_book(read_verses())
    out.mkdir(parents=True, exist_ok=True)
    for name, lines in splits.items():
        text = "\n".join(lines) + "\n"
        path = out / f"{name}.txt"
        # An unchanged file is left alone, so that what was made from it stays valid.
        if not path.exists() or path.read_text() != text:
            write(path, lines)
        words = sum(len(line.split(" ")) for line in lines)
        print(f"  {path.name:<10} {len(lines):>6,} verses {words:>8,} words and marks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
