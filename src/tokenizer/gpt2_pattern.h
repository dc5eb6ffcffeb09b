// How GPT-2 cuts a text into the pieces within which bytes are merged. Its pattern, the first
// alternative that matches at each place:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// (Radford et al., 2019), with the letters, numbers and white space of Unicode 16. A byte that
// belongs to no character of UTF-8 counts as one that is neither letter, number nor white space: a
// text is cut as if U+FFFD stood in its place, and no byte is lost.
#pragma once

#include <cstddef>
#include <string_view>

namespace transnormer {

// Where the piece that begins at `at`, which is inside of the text, ends.
[[nodiscard]] std::size_t gpt2_piece_end(std::string_view text, std::size_t at);

// The last place, but not the text's start, before a space or a line end at or behind `from`, where
// a text may be cut in two whose pieces, one after the other, are those of the whole: the character
// before is no white space. npos where there is none.
//
// Why: a piece that holds a character other than white space holds none behind it, so one ends
// there. What stands before is cut the same at the text's end as before white space: runs end
// either way, no contraction holds white space, and `(?!\S)` looks at the characters that follow
// white space only. What stands behind is cut from there on without a look back.
//
// Between a line end and the next line would be wrong: "\n\n" before "a" is cut into two, at the
// end of a text it is one piece.
[[nodiscard]] std::size_t last_gpt2_cut(std::string_view text, std::size_t from);

}  // namespace transnormer
