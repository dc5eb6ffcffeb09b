"""A small byte-level BPE vocabulary and what other programs make of texts by it, for the tests.

    python3 -m venv /tmp/bpe && /tmp/bpe/bin/pip install tiktoken tokenizers
    /tmp/bpe/bin/python scripts/make_bpe_fixture.py

Learned from the fixture text and the lines below by the library `tokenizers`, which writes
vocab.json, merges.txt and tokenizer.json; small.tiktoken holds the same. expected.json: texts with
the ids that tiktoken makes of them.
"""

import base64
import json
import pathlib
import random

import tiktoken
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests" / "tokenizer" / "bpe"
END = "<|endoftext|>"
MERGES = 500
PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LINES = [
    "It's what they've said; we're sure he'd say she'll come, I'm told, and don't ask.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Съешь же ещё этих мягких французских булок да выпей чаю.",
    "Η γάτα κοιμάται στον ήλιο και δεν ακούει τίποτα.",
    "白い猫が庭で寝ています。\u3000白い猫が庭で鳴いています。",
    "나는 오늘 아침에 커피를 두 잔 마셨다.",
    "The numbers 12, 345 and 6789 are not ١٢٣ nor १२३, ½ nor Ⅻ.",
    "\tif (a  ==  b) {\r\n\t\treturn a[0];\r\n\t}\n\n\n",
    "e\u0301 a\u0308 o\u0302\u0323 👍🏽 👩\u200d💻 🇫🇷 ☃\ufe0f",
]
TEXTS = [
    "",
    " ",
    "\n",
    "the miller's wife",
    "They've met; I'M late, it'S done, 'tis we'd'll.",
    " 's 're'd '' ''s 'x'",
    "\n\nthe\n \nend \n  of it\n",
    "a\n\nb",
    "a \n b",
    "one  two   three    ",
    "\ttab\t\ttabs \t mixed\r\nlines\r\r\n",
    "12345 678 9a0b १२३४ ½⅓ Ⅻx",
    "<|endoftext|> is text <|endoftext|>",
    "caf\u00e9 cafe\u0301 \u0301\u0308 na\u00efve",
    "no\u00a0break\u00a0 \u00a0spaces\u2003\u2009thin\u3000\u3000wide\u1680ogham",
    "\u0085next\u0085\u0085line\u2028\u2029separators\u180evowel\u200bzero\ufeffmark",
    "control\x01\x02 \x7f\x1b[0m\x1c\x1d\x1e\x1funit",
    "白い猫 が 庭で。漢字かな交じり文",
    "👍🏽👩\u200d💻 🇫🇷🇩🇪 ☃\ufe0f a👍b",
    "\u1c89\u1c8a new \U00010d40\U00010d41 letters \U0002ebf0\U0002ebf1\U00031350",
    "\U0010ffff\ue000 private \ufffd\ufffe",
    "!!! ... --- ?!?! a.b.c, (x) [y] {z} #1 @me 50% $5 e=mc^2",
    "a" * 300,
    " " * 70 + "x" + " " * 70,
    "\n" * 70 + "x" + "\n" * 70,
    "the cat and the dog " * 40,
]
# Characters at which a pattern may go wrong.
LETTERS = ["a", "s", "t", "re", "ve", "ll", "d", "the", "é", "e\u0301", "я", "猫", "\u1c89", "ª"]
OTHERS = ["'", "'", " ", " ", " ", "\n", "\n", "\t", "\r\n", "\u00a0", "\u0085", "\u3000", "\u200b",
          "\u180e", "1", "23", "५", "½", ".", "-", "👍", "\u0301", "\x00", "\x1f", "\ufffd", "_"]


def random_texts(count):
    chance = random.Random(20)
    for _ in range(count):
        yield "".join(chance.choice(LETTERS + 2 * OTHERS) for _ in range(chance.randint(1, 24)))


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + MERGES, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False)
    fixture = sorted((ROOT / "data" / "fixture").glob("*.txt"))
    texts = [path.read_text() for path in fixture] + 3 * LINES
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    return tokenizer


def bytes_by_letter():
    """The characters by which GPT-2 spells bytes."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printing]
    letters = {chr(byte): byte for byte in printing}
    letters.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return letters


def main():
    OUT.mkdir(exist_ok=True)
    tokenizer = train()
    tokenizer.model.save(str(OUT))
    tokenizer.save(str(OUT / "tokenizer.json"))
    letters = bytes_by_letter()
    vocabulary = json.loads((OUT / "vocab.json").read_text())
    ranks = {bytes(letters[c] for c in token): id for token, id in vocabulary.items()}
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()]
    lines.sort(key=lambda line: int(line.split()[1]))
    (OUT / "small.tiktoken").write_text("".join(lines))

    encoding = tiktoken.Encoding("small", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    expected = []
    for text in TEXTS + LINES + list(random_texts(250)):
        ids = encoding.encode_ordinary(text)
        others = tokenizer.encode(text).ids
        if ids != others and END not in text:
            print(f"tokenizers differs from tiktoken: {text!r}")
        expected.append({"text": text, "ids": ids})
    rows = ",\n".join(json.dumps(row) for row in expected)
    (OUT / "expected.json").write_text(f"[\n{rows}\n]\n")


main()
