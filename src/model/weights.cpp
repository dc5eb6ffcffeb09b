#include "model/weights.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "model/attention/random_features.h"
#include "model/block.h"
#include "model/initializer.h"
#include "model/transnormer.h"
#include "util/error.h"
#include "util/signal.h"

namespace transnormer {
namespace {

void collect(const torch::nn::Module& module, const std::string& prefix,
             std::vector<NamedTensor>& result) {
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    result.push_back({prefix + parameter.key(), parameter.value(), true});
  }
  for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
    result.push_back({.name = prefix + buffer.key(),
                      .tensor = buffer.value(),
                      .trainable = false,
                      .counted = buffer.key() != RandomFeatures::kName});
  }
  for (const auto& child : module.named_children()) {
    collect(*child.value(), prefix + child.key() + ".", result);
  }
}

void initialize_under(torch::nn::Module& module, const std::string& prefix,
                      const Initializer& initializer) {
  throw_if_stopped();  // large tables take seconds
  if (auto* leaf = dynamic_cast<Initializable*>(&module)) {
    leaf->initialize(initializer, prefix);
  }
  for (const auto& child : module.named_children()) {
    initialize_under(*child.value(), prefix + child.key() + ".", initializer);
  }
}

// The names of the tensors that hold what is not finite. One pass over each, one wait for all.
std::vector<std::string> nonfinite_tensors(const TransNormer& model) {
  const at::NoGradGuard no_grad;
  const std::vector<NamedTensor> weights = named_tensors(model);
  std::vector<at::Tensor> extremes;
  for (const NamedTensor& weight : weights) {
    const auto [least, most] = at::aminmax(weight.tensor);  // not-a-number wins both
    extremes.push_back(most.to(at::kDouble) - least.to(at::kDouble));
  }
  const at::Tensor spans = at::stack(extremes).to(at::kCPU);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(spans[static_cast<std::int64_t>(i)].item<double>())) {
      names.push_back(weights[i].name);
    }
  }
  return names;
}

}  // namespace

bool has_finite_weights(const TransNormer& model) {
  return nonfinite_tensors(model).empty();
}

void require_finite_weights(const TransNormer& model, const std::string& name) {
  const std::vector<std::string> broken = nonfinite_tensors(model);
  if (!broken.empty()) {
    const std::size_t more = broken.size() - 1;
    throw UserError(name + ": the weights of " + broken.front() +
                    (more > 0 ? " and " + std::to_string(more) + " more tensors" : "") +
                    " are not finite, as after a training that diverged; choose an earlier one");
  }
}

std::vector<NamedTensor> named_tensors(const TransNormer& model) {
  std::vector<NamedTensor> result;
  collect(model, "", result);
  return result;
}

bool is_hidden_matrix(const NamedTensor& tensor) {
  return tensor.trainable && tensor.tensor.dim() == 2 && tensor.name.starts_with("layers.") &&
         tensor.name.ends_with(".weight");
}

std::vector<ParameterGroup> parameter_groups(const TransNormer& model) {
  std::vector<ParameterGroup> groups;
  std::size_t index = 0;
  for (const auto& block : model.blocks()) {
    const std::string layer = "layers." + std::to_string(index++);
    groups.push_back({layer, block->parameters()});
    for (ParameterGroup& part : block->groups()) {
      groups.push_back({layer + '.' + part.name, std::move(part.parameters)});
    }
  }
  return groups;
}

void initialize(TransNormer& model, std::uint64_t seed) {
  initialize_under(model, "", Initializer(seed));
}

at::Tensor room_for(const at::Tensor& tensor) {
  at::Tensor room = at::empty(tensor.sizes(), at::dtype(tensor.scalar_type()));
  std::memset(room.data_ptr(), 0, room.nbytes());  // by this thread alone
  return room;
}

}  // namespace transnormer
