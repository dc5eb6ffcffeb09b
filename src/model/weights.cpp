// The tensors of a model by name, and how they start.
#include "model/initializer.h"
#include "model/transnormer.h"

namespace transnormer {
namespace {

void collect(const torch::nn::Module& module, const std::string& prefix,
             std::vector<NamedTensor>& result) {
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    result.push_back({prefix + parameter.key(), parameter.value(), true});
  }
  for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
    result.push_back({prefix + buffer.key(), buffer.value(), false});
  }
  for (const auto& child : module.named_children()) {
    collect(*child.value(), prefix + child.key() + ".", result);
  }
}

void initialize_under(torch::nn::Module& module, const std::string& prefix,
                      const Initializer& initializer) {
  if (auto* leaf = dynamic_cast<Initializable*>(&module)) {
    leaf->initialize(initializer, prefix);
  }
  for (const auto& child : module.named_children()) {
    initialize_under(*child.value(), prefix + child.key() + ".", initializer);
  }
}

}  // namespace

std::vector<NamedTensor> named_tensors(const TransNormer& model) {
  std::vector<NamedTensor> result;
  collect(model, "", result);
  return result;
}

void initialize(TransNormer& model, std::uint64_t seed) {
  initialize_under(model, "", Initializer(seed));
}

}  // namespace transnormer
