#include "checkpoint/fixture.h"

#include <ATen/ATen.h>

#include <cstring>

#include "checkpoint/save.h"
#include "optim/registry.h"
#include "util/error.h"

namespace transnormer::test {

TinyTraining::TinyTraining(std::uint64_t seed)
    : tokenizer(parse_tokenizer("light 30\nand 20\nday 10\nnight 1\n", "dictionary")) {
  config.run_name = "tiny";
  config.data.cache_dir = "/cache";  // absolute, as in every resolved config
  config.model.layers = 2;
  config.model.dim = 8;
  config.model.heads = 2;
  config.data.tokens_per_sample = 16;
  config.optimizer.lr = 0.1 + 0.2;  // a number with many digits
  const ModelSize size = model_size(config, tokenizer.get());
  model = std::make_shared<TransNormer>(config.model, size, at::kCPU);
  initialize(*model, seed);
  optimizer = make_optimizer(named_tensors(*model), config.optimizer);
  for (const at::Tensor& gradient : optimizer->gradients()) {
    gradient.copy_(at::arange(gradient.numel()).view(gradient.sizes()).sin());
  }
  optimizer->step(1e-3);
  state.tokens = 12345;
  state.optimizer_updates = optimizer->updates();
  state.best_valid_loss = 1.0 / 3;
  state.gradient_moments["all"].add(0.1);
  unigram_counts = {0, 0, 7, 0, 30, 20, 10, 1};
}

CheckpointContent TinyTraining::content() const {
  return {.config = config,
          .model = named_tensors(*model),
          .optimizer = optimizer->named_state(),
          .state = state,
          .tokenizer = *tokenizer,
          .unigram_counts = unigram_counts};
}

std::filesystem::path TinyTraining::save(const std::filesystem::path& run_dir, std::int64_t step,
                                         const std::function<void(SaveStage)>& on_stage) {
  state.step = step;
  std::filesystem::create_directories(run_dir);
  return save_checkpoint(run_dir, content(), on_stage);
}

std::string first_difference(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  if (a.size() != b.size()) {
    return "number of tensors";
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    const at::Tensor x = a[i].tensor.detach().contiguous();
    const at::Tensor y = b[i].tensor.detach().contiguous();
    if (a[i].name != b[i].name || x.sizes() != y.sizes() || x.scalar_type() != y.scalar_type() ||
        (x.nbytes() > 0 && std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) != 0)) {
      return a[i].name;
    }
  }
  return "";
}

std::string user_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace transnormer::test
