"""Which code points are letters, numbers and white space, as src/tokenizer/unicode_ranges.h.

    python3 -m venv /tmp/unicode && /tmp/unicode/bin/pip install unicodedata2==16.0.0
    /tmp/unicode/bin/python scripts/make_unicode_ranges.py > src/tokenizer/unicode_ranges.h

The version is fixed, and the table committed, so that the same text makes the same tokens on every
machine, whatever its libraries know of Unicode.
"""

import unicodedata2

VERSION = "16.0.0"
COLUMNS = 100
HEADER = f"""\
// Code points by general category, first to last of each run: Unicode {VERSION}. Made by
// scripts/make_unicode_ranges.py; not to be edited.
#pragma once

#include <array>

namespace transnormer {{

struct CodePointRange {{
  char32_t first;
  char32_t last;
}};
"""


def runs(category):
    """(first, last) of each run of code points whose general category starts so."""
    found = []
    for point in range(0x110000):
        if unicodedata2.category(chr(point)).startswith(category):
            if found and found[-1][1] == point - 1:
                found[-1][1] = point
            else:
                found.append([point, point])
    return found


def declaration(name, ranges):
    lines = [f"inline constexpr std::array<CodePointRange, {len(ranges)}> {name}{{{{"]
    line = "   "
    for number, (first, last) in enumerate(ranges, 1):
        item = f" {{0x{first:X}, 0x{last:X}}}" + ("," if number < len(ranges) else "}};")
        if len(line + item) > COLUMNS:
            lines.append(line)
            line = "   "
        line += item
    return "\n".join(lines + [line])


def main():
    if unicodedata2.unidata_version != VERSION:
        raise SystemExit(f"unicodedata2 knows Unicode {unicodedata2.unidata_version}; {VERSION} is wanted")
    print(HEADER)
    print("// clang-format off")
    print(declaration("kLetters", runs("L")))
    print()
    print(declaration("kNumbers", runs("N")))
    print("// clang-format on")
    print("\n}  // namespace transnormer")


main()
