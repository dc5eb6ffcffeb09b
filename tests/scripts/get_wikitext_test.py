"""scripts/get_wikitext.py unpacks what it can vouch for, and leaves nothing behind otherwise."""

import contextlib
import dataclasses
import hashlib
import io
import pathlib
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import get_wikitext as wikitext  # noqa: E402

TEXTS = {"wiki.train.tokens": b" \n = One = \n two three \n", "wiki.valid.tokens": b"four\n"}


class AnArchive(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = pathlib.Path(directory.name)
        self.archive = self.folder / "small.zip"
        self.out = self.folder / "data/small"
        with zipfile.ZipFile(self.archive, "w") as packed:
            for name, text in TEXTS.items():
                packed.writestr(f"small/{name}", text)
        self.corpus = wikitext.Corpus(
            url="http://127.0.0.1:9/small.zip",  # nothing listens at the discard port
            md5=hashlib.md5(self.archive.read_bytes()).hexdigest(), folder="small",
            texts={"wiki.train.tokens": wikitext.Text(8),
                   "wiki.valid.tokens": wikitext.Text(2, hashlib.sha256(b"four\n").hexdigest())})

    def get(self, archive, corpus):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            wikitext.get(archive, corpus, self.out)
        return said.getvalue()

    def assert_refused(self, archive, corpus, pattern):
        with self.assertRaisesRegex(wikitext.Fault, pattern):
            self.get(archive, corpus)
        left = [p for p in self.folder.rglob("*") if p.is_file() and p != self.archive]
        self.assertEqual(left, [])

    def with_texts(self, **changes):
        name = changes.pop("name")
        changed = dataclasses.replace(self.corpus.texts[name], **changes)
        return dataclasses.replace(self.corpus, texts={**self.corpus.texts, name: changed})

    def test_is_unpacked_and_counted(self):
        said = self.get(self.archive, self.corpus)
        self.assertIn("wiki.train.tokens: 8 tokens", said)
        self.assertEqual({p.name: p.read_bytes() for p in self.out.iterdir()}, TEXTS)

    def test_is_not_needed_where_the_texts_are_whole(self):
        self.get(self.archive, self.corpus)
        self.assertIn("there already", self.get(None, self.corpus))

    def test_replaces_a_damaged_text(self):
        self.get(self.archive, self.corpus)
        (self.out / "wiki.valid.tokens").write_bytes(b"five\n")
        self.get(self.archive, self.corpus)
        self.assertEqual((self.out / "wiki.valid.tokens").read_bytes(), b"four\n")

    def test_of_another_digest_is_refused(self):
        with open(self.archive, "ab") as file:
            file.write(b"x")
        self.assert_refused(self.archive, self.corpus, "has MD5 [0-9a-f]{32}, not [0-9a-f]{32}")

    def test_with_another_number_of_tokens_is_refused(self):
        self.assert_refused(self.archive, self.with_texts(name="wiki.train.tokens", tokens=9),
                            "wiki.train.tokens has 8 tokens, not 9")

    def test_with_another_text_is_refused(self):
        self.assert_refused(self.archive, self.with_texts(name="wiki.valid.tokens", sha256="0" * 64),
                            "wiki.valid.tokens has SHA-256")

    def test_without_a_text_is_refused(self):
        corpus = dataclasses.replace(self.corpus, folder="other")
        self.assert_refused(self.archive, corpus, "could not be unpacked")

    def test_that_is_not_there_is_named(self):
        self.assert_refused(self.folder / "none.zip", self.corpus, "none.zip: no such file")

    def test_that_cannot_be_fetched_says_what_to_do(self):
        self.assert_refused(None, self.corpus, "could not fetch http://127.0.0.1:9/small.zip.*"
                                               "fetch it elsewhere and name it")


class TheProgram(unittest.TestCase):
    def test_fails_in_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            wrong = pathlib.Path(folder) / "wrong.zip"
            wrong.write_bytes(b"no archive")
            sys.argv = ["get_wikitext.py", str(wrong), "--out", folder + "/out"]
            with contextlib.redirect_stdout(io.StringIO()), \
                    contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(wikitext.main(), 1)
        self.assertRegex(said.getvalue(), r"^get_wikitext: .*has MD5 .*\n$")
        self.assertEqual(said.getvalue().count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
