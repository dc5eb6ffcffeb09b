#include "util/compression.h"

#include <algorithm>
#include <array>
#include <utility>

#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

struct Format {
  Compression kind;
  std::string_view ending;
  std::string_view magic;
};
constexpr std::array kFormats{Format{Compression::gzip, ".gz", "\x1F\x8B"},
                              Format{Compression::xz, ".xz", std::string_view("\xFD\x37zXZ\0", 6)},
                              Format{Compression::zstd, ".zst", "\x28\xB5\x2F\xFD"}};

// Frames of zstd that hold no text, which some of its tools write first: 0x184D2A50 to 0x184D2A5F.
bool is_skippable_frame(std::string_view beginning) {
  return beginning.size() >= 4 && (beginning[0] & 0xF0) == 0x50 &&
         beginning.substr(1, 3) == "\x2A\x4D\x18";
}

const Format& format_of(Compression kind) {
  return *std::ranges::find(kFormats, kind, &Format::kind);
}

std::unique_ptr<Member> make_member(Compression kind, const std::string& name) {
  switch (kind) {
    case Compression::gzip:
      return make_gzip_member(name);
    case Compression::xz:
      return make_xz_member(name);
    case Compression::zstd:
      return make_zstd_member(name);
    case Compression::none:
      break;
  }
  return nullptr;
}

}  // namespace

const char* to_string(Compression kind) {
  switch (kind) {
    case Compression::gzip:
      return "gzip";
    case Compression::xz:
      return "xz";
    case Compression::zstd:
      return "zstd";
    case Compression::none:
      break;
  }
  return "plain";
}

Compression compression_of(std::string_view beginning) {
  for (const Format& format : kFormats) {
    if (beginning.starts_with(format.magic)) {
      return format.kind;
    }
  }
  return is_skippable_frame(beginning) ? Compression::zstd : Compression::none;
}

bool is_cut_magic(std::string_view whole, std::string_view name) {
  return std::ranges::any_of(kFormats, [&](const Format& format) {
    const bool is_printable = whole.empty() || whole == "(";
    return whole.size() < format.magic.size() && format.magic.starts_with(whole) &&
           (!is_printable || name.ends_with(format.ending));
  });
}

Decompressor::Decompressor(Compression kind, std::string name)
    : kind_(kind), name_(std::move(name)), member_(make_member(kind, name_)) {}

std::size_t Decompressor::decode(std::string_view& input, bool is_last, std::span<char> output) {
  std::size_t filled = 0;
  while (filled < output.size()) {
    if (!in_member_ && !begin_member(input, is_last)) {
      return filled;
    }
    const bool is_beginning = !beginning_.empty();
    const Member::Step done =
        member_->step(is_beginning ? std::string_view(beginning_) : input, output.subspan(filled));
    filled += done.written;
    if (is_beginning) {
      beginning_.erase(0, done.taken);
    } else {
      input.remove_prefix(done.taken);
      consumed_ += static_cast<std::int64_t>(done.taken);
    }
    if (done.ended) {
      in_member_ = false;
      ++members_;
      zeros_ = 0;
    } else if (done.taken == 0 && done.written == 0) {
      if (!input.empty()) {
        throw UserError(name_ + ": is damaged: its " + to_string(kind_) + " data cannot be read");
      }
      if (is_last) {
        fail_cut();
      }
      return filled;
    }
  }
  return filled;
}

// False where the input ends before a further member has begun.
bool Decompressor::begin_member(std::string_view& input, bool is_last) {
  skip_padding(input);
  const std::string_view magic = format_of(kind_).magic;
  const std::string_view more = input.substr(0, magic.size() - beginning_.size());
  beginning_ += more;
  input.remove_prefix(more.size());
  consumed_ += std::ssize(more);
  const bool may_follow = zeros_ % 4 == 0 && (zeros_ == 0 || kind_ == Compression::xz);
  if (may_follow && compression_of(beginning_) == kind_) {
    member_->begin();
    return in_member_ = true;
  }
  if (beginning_.size() < magic.size() && !is_last) {
    return false;
  }
  if (beginning_.empty()) {
    check_end();
    return false;
  }
  if (may_follow && magic.starts_with(beginning_)) {
    fail_cut();
  }
  throw UserError(name_ + ": holds something else behind its " + to_string(kind_) +
                  " data, from byte " + format_count(consumed_ - std::ssize(beginning_)) +
                  " on; it is damaged, or something was written behind it");
}

void Decompressor::fail_cut() const {
  throw UserError(name_ + ": is cut off: it ends in the middle of its " + to_string(kind_) +
                  " data, after " + format_count(consumed_) + " bytes; fetch or make it again");
}

void Decompressor::skip_padding(std::string_view& input) {
  if (members_ == 0 || kind_ == Compression::zstd || !beginning_.empty()) {
    return;
  }
  const std::size_t zeros = std::min(input.find_first_not_of('\0'), input.size());
  input.remove_prefix(zeros);
  zeros_ += static_cast<std::int64_t>(zeros);
  consumed_ += static_cast<std::int64_t>(zeros);
}

void Decompressor::check_end() const {
  if (kind_ == Compression::xz && zeros_ % 4 != 0) {
    throw UserError(name_ + ": is damaged: its xz data is followed by " + format_count(zeros_) +
                    " zero bytes, and padding comes in fours");
  }
}

}  // namespace transnormer
