// unigram.bin of a checkpoint.
#include "checkpoint/unigram_file.h"
#include "fuzz/fuzzer.h"

namespace fuzz = transnormer::fuzz;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::bytes_of(data, size);
  fuzz::reads([&] {
    const auto counts = transnormer::unigram_from_bytes(bytes, "unigram.bin");
    fuzz::require(transnormer::unigram_to_bytes(counts) == bytes,
                  "counts that are written are what was read");
  });
  return 0;
}
