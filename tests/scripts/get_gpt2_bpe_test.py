"""scripts/get_gpt2_bpe.sh takes the vocabulary out of either kind of archive, if it is the one."""

import hashlib
import io
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest
import zipfile

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
NAME = "whisper/assets/gpt2.tiktoken"
WORDS = b"IQ== 0\nIg== 1\n"


class AnArchive(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        (self.root / "scripts").mkdir()
        shutil.copy(SCRIPTS / "common.sh", self.root / "scripts")
        self.expect(hashlib.sha256(WORDS).hexdigest())
        self.file = self.root / "data/gpt2/gpt2.tiktoken"

    def expect(self, digest):
        text, changed = re.subn("^digest=.*", f"digest={digest}",
                                (SCRIPTS / "get_gpt2_bpe.sh").read_text(), flags=re.M)
        self.assertEqual(changed, 1)
        (self.root / "scripts/get_gpt2_bpe.sh").write_text(text)

    def wheel(self, name=NAME):
        path = self.root / "a.whl"
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr(name, WORDS)
        return path

    def source(self):
        path = self.root / "a.tar.gz"
        with tarfile.open(path, "w:gz") as packed:
            info = tarfile.TarInfo(f"openai_whisper-1/{NAME}")
            info.size = len(WORDS)
            packed.addfile(info, io.BytesIO(WORDS))
        return path

    def get(self, archive):
        return subprocess.run(["bash", self.root / "scripts/get_gpt2_bpe.sh", archive], text=True,
                              capture_output=True, check=False)

    def assert_refused(self, archive, pattern):
        done = self.get(archive)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, pattern)
        self.assertFalse(self.file.exists())

    def test_is_unpacked(self):
        for archive in (self.wheel(), self.source()):
            self.assertEqual(self.get(archive).returncode, 0)
            self.assertEqual(self.file.read_bytes(), WORDS)
            self.assertIn("is there", self.get("/nowhere").stdout)
            self.file.unlink()

    def test_is_refused_where_it_is_another(self):
        self.expect("0" * 64)
        self.assert_refused(self.wheel(), "is not the one expected")

    def test_is_refused_where_it_holds_none(self):
        self.assert_refused(self.wheel("other"), f"holds no {NAME}")
        text = self.root / "text"
        text.write_text("text")
        self.assert_refused(text, "neither a wheel nor a source distribution")

    def test_replaces_no_other_file(self):
        self.file.parent.mkdir(parents=True)
        self.file.write_text("mine")
        done = self.get(self.wheel())
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "is not GPT-2's vocabulary, or damaged; remove it")
        self.assertEqual(self.file.read_text(), "mine")


if __name__ == "__main__":
    unittest.main()
