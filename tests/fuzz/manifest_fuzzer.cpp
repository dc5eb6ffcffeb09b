// The manifest of a checkpoint of which nothing else is left.
#include <set>
#include <string>

#include "checkpoint/manifest.h"
#include "fuzz/fuzzer.h"

namespace {

namespace fuzz = transnormer::fuzz;
using transnormer::Manifest;

void check(const Manifest& manifest) {
  fuzz::require(manifest.step >= 0 && manifest.tokens >= 0, "counts are counts");
  std::set<std::string> names;
  for (const auto& [name, file] : manifest.files) {
    fuzz::require((fuzz::scratch() / name).parent_path() == fuzz::scratch(),
                  "a file of a checkpoint lies in it");
    fuzz::require(file.size >= 0, "a size is a count");
    names.insert(name);
  }
  fuzz::reads([&] { static_cast<void>(open_verified(fuzz::scratch(), manifest, names)); });
  const std::string written = manifest_to_json(manifest);
  fuzz::put("manifest.json", written);
  fuzz::require(manifest_to_json(transnormer::read_manifest(fuzz::scratch())) == written,
                "a manifest that is written is read as the same");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::put("manifest.json", fuzz::bytes_of(data, size));
  Manifest manifest;
  if (fuzz::reads([&] { manifest = transnormer::read_manifest(fuzz::scratch()); })) {
    check(manifest);
  }
  return 0;
}
