// What the fuzzers share. Each reads its input as the program reads a file of that kind: whatever
// the bytes, a value or the program's own error must come of it, and the promises of the reader's
// header must hold. libFuzzer makes inputs (scripts/fuzz.sh); corpus_main.cpp runs those that are
// kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "util/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace transnormer::fuzz {

[[nodiscard]] inline std::string_view bytes_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Throws std::logic_error, which is no error of the program's own, where a promise is broken.
void require(bool holds, const std::string& promise);

// Each fault is one line, and short whatever the input.
void require_readable(const UserError& error);

// A directory of this process that is empty at first, removed when the process ends by itself.
[[nodiscard]] const std::filesystem::path& scratch();

// Overwrites the file; returns its path, in scratch().
std::filesystem::path put(const std::string& name, std::string_view bytes);
[[nodiscard]] std::string contents(const std::filesystem::path& file);

// True where `read` returns, false where it throws a UserError that is readable.
template <typename Read>
bool reads(const Read& read) {
  try {
    read();
    return true;
  } catch (const UserError& error) {
    require_readable(error);
    return false;
  }
}

}  // namespace transnormer::fuzz
