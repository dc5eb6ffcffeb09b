"""Fetches WikiText-103, checks the archive, unpacks it into data/wikitext-103/, checks the texts.

usage: get_wikitext.py [ARCHIVE] [--out DIRECTORY]

The archive's MD5 is checked before it is unpacked; of each text the number of tokens (words, and
one end of line a line), and the SHA-256 where it is known. Nothing is left behind on a fault.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHUNK = 1 << 20


class Fault(Exception):
    """Something that the user can see to."""


@dataclasses.dataclass
class Text:
    tokens: int
    sha256: str = ""


@dataclasses.dataclass
class Corpus:
    url: str
    md5: str
    folder: str  # inside the archive
    texts: dict  # file name -> Text


WIKITEXT_103 = Corpus(
    url="https://wikitext.smerity.com/wikitext-103-v1.zip",
    md5="9ddaacaf6af0710eda8c456decff7832",
    folder="wikitext-103",
    texts={
        "wiki.train.tokens": Text(103_227_021),
        "wiki.valid.tokens": Text(
            217_646, "9aee9f52d6e77de6c7751fc5e7c44287db3ec0eaf15477098acc6b93c1c4250b"),
        "wiki.test.tokens": Text(
            245_569, "56db52eb157b1ab5c89646eef70510c1eca6e12a3bfdb99f0d6b05b4eacb75b9"),
    })


def digest(path, kind):
    state = hashlib.new(kind)
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            state.update(chunk)
    return state.hexdigest()


def count_tokens(path):
    """Words separated by spaces, and one end of line a line."""
    with open(path, "rb") as file:
        return sum(len(line.split()) + 1 for line in file)


def fault_of(path, text):
    """What is wrong with an unpacked text, or "" where nothing is."""
    if not path.is_file():
        return "is missing"
    if text.sha256 and (got := digest(path, "sha256")) != text.sha256:
        return f"has SHA-256 {got}, not {text.sha256}"
    if (got := count_tokens(path)) != text.tokens:
        return f"has {got:,} tokens, not {text.tokens:,}"
    return ""


def download(url, path):
    try:
        with urllib.request.urlopen(url, timeout=60) as answer, open(path, "wb") as file:
            total = int(answer.headers.get("Content-Length") or 0)
            done = 0
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                if sys.stderr.isatty():
                    of_total = f" of {total / 1e6:.0f}" if total else ""
                    print(f"\r  {done / 1e6:.0f}{of_total} MB", end="", file=sys.stderr)
            if sys.stderr.isatty():
                print(file=sys.stderr)
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise Fault(f"could not fetch {url}: {reason}. On a machine without a network, fetch it "
                    f"elsewhere and name it: scripts/get_wikitext.sh {url.rsplit('/', 1)[1]}")


def unpack(archive, corpus, out):
    """The checked texts of `archive` in the folder `out`, which appears whole or not at all."""
    if not pathlib.Path(archive).is_file():
        raise Fault(f"{archive}: no such file")
    if (got := digest(archive, "md5")) != corpus.md5:
        raise Fault(f"{archive} has MD5 {got}, not {corpus.md5}: it is damaged or another archive")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as unfinished:
        unfinished = pathlib.Path(unfinished)
        try:
            with zipfile.ZipFile(archive) as packed:
                for name in corpus.texts:
                    with packed.open(f"{corpus.folder}/{name}") as source, \
                            open(unfinished / name, "wb") as target:
                        shutil.copyfileobj(source, target, CHUNK)
        except (zipfile.BadZipFile, KeyError) as error:
            raise Fault(f"{archive} could not be unpacked: {error}")
        for name, text in corpus.texts.items():
            if fault := fault_of(unfinished / name, text):
                raise Fault(f"{archive}: {name} {fault}")
        out.mkdir(exist_ok=True)
        for name in corpus.texts:
            os.replace(unfinished / name, out / name)


def get(archive, corpus, out):
    if all(not fault_of(out / name, text) for name, text in corpus.texts.items()):
        print(f"{out} is there already, and whole.")
        return
    with contextlib.ExitStack() as stack:
        if archive is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            archive = pathlib.Path(folder) / corpus.url.rsplit("/", 1)[1]
            print(f"Fetching {corpus.url}", flush=True)
            download(corpus.url, archive)
        print(f"Checking and unpacking {archive}", flush=True)
        unpack(archive, corpus, out)
    for name, text in corpus.texts.items():
        print(f"  {out / name}: {text.tokens:,} tokens")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("archive", nargs="?", help="a copy of wikitext-103-v1.zip")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "data/wikitext-103")
    arguments = parser.parse_args()
    try:
        get(arguments.archive, WIKITEXT_103, arguments.out)
    except Fault as fault:
        print(f"get_wikitext: {fault}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"get_wikitext: {error.strerror}: {error.filename}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
