// data.holdout: the two parts of a training text, one to learn from, one to validate on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace transnormer {

// Which part of a text is meant.
struct Holdout {
  double share = 0;          // data.holdout; 0: the text is whole
  bool is_held_out = false;  // the part kept for validation, else the rest
  bool operator==(const Holdout&) const = default;

  [[nodiscard]] bool splits() const { return share > 0; }
  [[nodiscard]] std::string share_text() const;  // all of its digits
  // Unique to the part; empty for the whole text.
  [[nodiscard]] std::string name() const;
};

// The text, all of its files in their order, is cut at line ends into runs. A run ends with the
// first line that makes it as long as 1/256 of what stands before it, and 64 KiB at most: single
// lines at first, so that short texts have two parts, too. Which runs are held out is drawn by
// their numbers, so that after n runs it is n * share of them to less than one. All of this is a
// function of the text's bytes and the share alone, and what is added at the end of a text leaves
// the parts of what stood before as they were.
class HoldoutRuns {
 public:
  explicit HoldoutRuns(const Holdout& wanted) : wanted_(wanted) {}

  // `lines`: the text's next lines; the last may go on in the next call, if end_line() does not
  // come before. Calls `take` with the pieces that they fall into, in turn, and whether each is of
  // the part that is wanted.
  void split(std::string_view lines,
             const std::function<void(std::string_view piece, bool is_wanted)>& take);
  // A file has ended: what comes next is another line.
  void end_line() { at_line_start_ = true; }

 private:
  void begin_run();

  Holdout wanted_;
  std::int64_t position_ = 0;     // where the present run began
  std::int64_t run_bytes_ = 0;    // of it so far
  std::int64_t least_bytes_ = 0;  // of it; 0 before the first
  std::uint64_t runs_ = 0;
  double due_ = 0;  // runs that should have been held out by now, less those that were
  bool is_held_out_ = false;
  bool at_line_start_ = true;
};

}  // namespace transnormer
