"""scripts/get_bible.py turns verses into lines of words and punctuation, whole books apart."""

import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import get_bible  # noqa: E402


class AVerse(unittest.TestCase):
    def test_has_its_punctuation_apart_and_its_words_whole(self):
        for text, line in {
            "Art thou for us?": "Art thou for us ?",
            "(the same is Zoar;) and": "( the same is Zoar ; ) and",
            "people to God-ward, that": "people to God-ward , that",
            "forgive their sin--; and": "forgive their sin -- ; and",
            "the LORD's and his fathers' house.": "the LORD's and his fathers' house .",
        }.items():
            self.assertEqual(" ".join(get_bible.TOKEN.findall(text)), line)

    def test_without_a_reference_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "not a verse: 'In the beginning'"):
            get_bible.split_by_book(["In the beginning"])

    def test_missing_from_the_book_is_noticed(self):
        with self.assertRaisesRegex(SystemExit, "expected 66 books and 31102 verses, got 2 and 2"):
            get_bible.split_by_book(["Ge1:1 In the beginning.", "1Sm1:1 Now there was."])


@unittest.skipUnless(shutil.which("bible"), "the program bible is not installed")
class TheBook(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.splits = get_bible.split_by_book(get_bible.read_verses())

    def test_is_split_without_loss(self):
        self.assertEqual({name: len(lines) for name, lines in self.splits.items()},
                         {"train": 29053, "valid": 802, "test": 1247})

    def test_holds_out_whole_books(self):
        self.assertEqual(self.splits["train"][0],
                         "In the beginning God created the heaven and the earth .")
        self.assertTrue(self.splits["valid"][0].startswith("Now it came to pass in the days when"))
        self.assertTrue(self.splits["test"][-1].startswith("And there are also many other things"))
        self.assertFalse(any("In the beginning was the Word" in l for l in self.splits["train"]))

    def test_has_no_empty_line_and_single_spaces(self):
        for lines in self.splits.values():
            self.assertFalse(any("  " in line or line != line.strip() or not line for line in lines))


if __name__ == "__main__":
    unittest.main()
