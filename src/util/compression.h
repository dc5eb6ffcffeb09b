// Reads what gzip, xz and zstd wrote, piece by piece, so that memory does not grow with the size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace transnormer {

enum class Compression { none, gzip, xz, zstd };
[[nodiscard]] const char* to_string(Compression kind);

// By how the bytes begin; "none" also where too few are given.
inline constexpr std::size_t kMagicBytes = 6;
[[nodiscard]] Compression compression_of(std::string_view beginning);

// Whether these are all the bytes of a file that was cut off within its first ones: the beginning
// of compressed data that no text has, or of the kind that the name's ending tells.
[[nodiscard]] bool is_cut_magic(std::string_view whole, std::string_view name);

// The most memory that the window of a file may take. xz -9 takes 64 MiB, zstd -22 128 MiB.
inline constexpr int kLargestWindowLog = 29;
inline constexpr std::int64_t kLargestWindow = std::int64_t{1} << kLargestWindowLog;

// One member of a file: of gzip a member, of xz a stream, of zstd a frame.
class Member {
 public:
  struct Step {
    std::size_t taken = 0;    // bytes of the input
    std::size_t written = 0;  // bytes of the output
    bool ended = false;       // the member is whole, and its checks agree
  };

  Member() = default;
  virtual ~Member() = default;
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // Starts anew. Throws UserError where there is no memory.
  virtual void begin() = 0;
  // Throws UserError, which begins with the name, for data that is damaged, of a kind not known, or
  // wants a larger window. Takes and writes nothing only where it needs more input or output.
  virtual Step step(std::string_view input, std::span<char> output) = 0;
};

[[nodiscard]] std::unique_ptr<Member> make_gzip_member(const std::string& name);
[[nodiscard]] std::unique_ptr<Member> make_xz_member(const std::string& name);
[[nodiscard]] std::unique_ptr<Member> make_zstd_member(const std::string& name);

// A whole file: one member or several, one after another, and zeros where the format has padding
// (gzip: at the end; xz: in fours). Anything else is a fault: a UserError of one line that begins
// with `name`.
class Decompressor {
 public:
  Decompressor(Compression kind, std::string name);

  // Decodes from the front of `input`, which it shortens, and returns how many bytes of `output` it
  // filled. Fewer than all, 0 too, where it needs more input; then `input` is empty. `is_last`: no
  // more input comes after this; then 0 is the end of the text.
  [[nodiscard]] std::size_t decode(std::string_view& input, bool is_last, std::span<char> output);

 private:
  [[nodiscard]] bool begin_member(std::string_view& input, bool is_last);
  void skip_padding(std::string_view& input);
  void check_end() const;
  [[noreturn]] void fail_cut() const;

  Compression kind_;
  std::string name_;
  std::unique_ptr<Member> member_;
  std::int64_t consumed_ = 0;  // bytes of the file
  std::int64_t members_ = 0;   // that are whole
  std::int64_t zeros_ = 0;     // behind the last of them
  std::string beginning_;      // of a member whose magic is not complete, or not decoded, yet
  bool in_member_ = false;
};

}  // namespace transnormer
