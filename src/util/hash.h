// SHA-256 digests, as lower-case hexadecimal.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "util/input_file.h"

namespace transnormer {

// A digest built piece by piece.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(const void* data, std::size_t size);
  void update(std::string_view bytes) { update(bytes.data(), bytes.size()); }
  [[nodiscard]] std::string hex();  // ends the digest

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

[[nodiscard]] std::string sha256(std::string_view bytes);

// Of the file's bytes from `offset` on. Throws UserError where it cannot be read, StoppedError when
// a signal asks to stop meanwhile.
[[nodiscard]] std::string sha256(const InputFile& file, std::int64_t offset = 0);

}  // namespace transnormer
