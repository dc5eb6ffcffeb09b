#include "model/transnormer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "model/attention/registry.h"
#include "model/block.h"
#include "model/footprint.h"
#include "model/linear.h"
#include "model/norm.h"
#include "ops/dropout.h"
#include "ops/weights/embedding.h"
#include "ops/weights/linear.h"
#include "util/error.h"

namespace transnormer {
namespace {

// The embedding's place in the random keys.
constexpr std::int64_t kBeforeLayers = -1;

void require_that_parts_fit(const ModelConfig& config, const ModelSize& size) {
  std::vector<std::string> faults;
  const auto require = [&faults](bool holds, const std::string& fault) {
    if (!holds) {
      faults.push_back(fault);
    }
  };
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  require(size.vocab_size >= 1,
          "model.vocab_size: expected at least 1, got " + number(size.vocab_size));
  require(config.layers >= 1, "model.layers: expected at least 1, got " + number(config.layers));
  require(config.heads >= 1 && config.dim >= 1 && config.dim % config.heads == 0,
          "model.heads: expected a divisor of model.dim (" + number(config.dim) + "), got " +
              number(config.heads));
  require(config.early_layers >= -1 && config.early_layers <= config.layers,
          "model.early_layers: expected -1 to model.layers (" + number(config.layers) + "), got " +
              number(config.early_layers));
  if (config.position == PositionKind::learned) {
    require(size.max_positions >= 1,
            "data.tokens_per_sample: expected at least 1, got " + number(size.max_positions));
  }
  if (faults.empty()) {
    faults = unfit_attentions(config, size);
  }
  if (!faults.empty()) {
    throw UserError(faults);
  }
}

// The gradients behind the stream are whole when its own is: weights' gradients are made with it,
// and what autograd adds to others itself comes first.
void tell_watcher(const at::Tensor& stream, const ForwardContext& context, std::size_t layer) {
  if (context.watcher != nullptr && stream.requires_grad()) {
    stream.register_hook([watcher = context.watcher, layer](const at::Tensor&) {
      watcher->on_gradients_behind(static_cast<std::int64_t>(layer));
    });
  }
}

std::shared_ptr<Norm> make_norm(NormKind kind, const ModelConfig& config, at::Device device) {
  return std::make_shared<Norm>(kind, config.dim, config.norm_eps, device);
}

}  // namespace

TransNormer::TransNormer(const ModelConfig& config, const ModelSize& size, at::Device device)
    : config_(config), size_(size), sinusoid_(config.dim) {
  require_that_parts_fit(config, size);
  require_memory_for_weights(config, size, device);
  embedding_ =
      register_module("embed", std::make_shared<Table>(size.vocab_size, config.dim, device));
  if (config.position == PositionKind::learned) {
    position_table_ = register_module(
        "position", std::make_shared<Table>(size.max_positions, config.dim, device));
  }
  if (const NormKind kind = config.resolved_embed_norm(); kind != NormKind::none) {
    embed_norm_ = register_module("embed_norm", make_norm(kind, config, device));
  }
  const auto layers = register_module("layers", std::make_shared<torch::nn::Module>());
  for (std::int64_t index = 0; index < config.layers; ++index) {
    blocks_.push_back(
        layers->register_module(std::to_string(index), make_layer(config, size, index, device)));
  }
  if (config.norm_placement == NormPlacement::pre) {
    final_norm_ = register_module("final_norm", make_norm(config.norm, config, device));
  }
  if (!config.tie_embeddings || config.output_bias) {
    output_ = register_module(
        "output", std::make_shared<OutputTable>(size.vocab_size, config.dim,
                                                OutputTable::Has{.weight = !config.tie_embeddings,
                                                                 .bias = config.output_bias},
                                                device));
  }
}

TransNormer::~TransNormer() = default;

at::Tensor TransNormer::positions(std::int64_t time, const ForwardContext& context) {
  const at::Tensor& named = context.positions;
  const std::int64_t first = context.first_position;
  if (config_.position == PositionKind::sinusoidal) {
    return named.defined() ? sinusoid_.rows(named) : sinusoid_.rows(first, time, device());
  }
  const std::int64_t end =
      context.shares_sequences() ? context.sequence->size() * time : first + time;
  const std::int64_t needed = named.defined() ? named.max().item<std::int64_t>() + 1 : end;
  const std::int64_t rows = size_.max_positions;
  if (needed > rows) {
    throw UserError("model.position: the learned table has " + std::to_string(rows) +
                    " positions (data.tokens_per_sample in training), " + std::to_string(needed) +
                    " are needed");
  }
  const at::Tensor& table = position_table_->weight();
  return named.defined() ? at::embedding(table, named) : table.narrow(0, first, time);
}

at::Tensor TransNormer::embed(const at::Tensor& tokens, const ForwardContext& context) {
  at::Tensor x = ops::scaled_embedding(
      embedding_->operand(), tokens, std::sqrt(static_cast<double>(config_.dim)),
      context.watcher ? context.watcher->embedding_rows() : nullptr);
  if (config_.position != PositionKind::none) {
    x.add_(positions(tokens.size(1), context));
  }
  if (embed_norm_) {
    x = embed_norm_->forward(x, at::kFloat);
  }
  return ops::dropout(x, context.training ? config_.dropout : 0,
                      context.dropout_key(kBeforeLayers, DropoutSite::embedding, config_.dim));
}

at::Tensor TransNormer::forward(const at::Tensor& tokens, const ForwardContext& context,
                                ModelState* state) {
  const bool with_gradients = at::GradMode::is_enabled() && state == nullptr;
  at::AutoGradMode grad_mode(with_gradients);
  ForwardContext here = context;
  here.visibility.causal = config_.causal;
  const bool plain = here.visibility.plain() && !here.positions.defined();
  TORCH_CHECK(state == nullptr || plain,
              "padding, segments and positions are for calls without a state");
  TORCH_CHECK(
      !here.shares_sequences() || (state == nullptr && plain),
      "ranks share sequences of a causal model only, without a state, padding, segments and "
      "positions");
  if (state != nullptr) {
    here.first_position = state->position;
  } else {
    here.first_position = here.shares_sequences() ? here.sequence->rank() * tokens.size(1) : 0;
  }
  at::Tensor x = embed(tokens, here);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    ops::throw_if_unwanted(here.should_stop);
    tell_watcher(x, here, i);
    if (here.observer != nullptr) {
      here.observer->on_layer(static_cast<std::int64_t>(i), x, here);
    }
    if (with_gradients && context.activation_checkpointing) {
      x = blocks_[i]->forward_recomputed(x, here);
    } else {
      x = blocks_[i]->forward(x, here, state == nullptr ? nullptr : state->layers[i].get());
    }
    if (with_gradients && here.should_stop != nullptr) {
      x.register_hook([ask = here.should_stop](const at::Tensor&) { ops::throw_if_unwanted(ask); });
    }
  }
  tell_watcher(x, here, blocks_.size());
  if (state != nullptr) {
    state->position += tokens.size(1);
  }
  return final_norm_ ? final_norm_->forward(x, context.compute) : x.to(context.compute);
}

at::Tensor TransNormer::logits(const at::Tensor& hidden, const ForwardContext& context) const {
  return ops::linear(hidden, output_weight(), output_layer().bias, context.compute).to(at::kFloat);
}

const ops::Weight& TransNormer::embedding_weight() const {
  return embedding_->operand();
}

const ops::Weight& TransNormer::output_weight() const {
  return output_ && output_->weight().defined() ? output_->weight() : embedding_->operand();
}

ops::OutputLayer TransNormer::output_layer() const {
  return {output_weight(), output_ ? output_->bias() : ops::Weight()};
}

ModelState TransNormer::make_state(std::int64_t batch) const {
  require_decoding(config_);
  ModelState state;
  for (const auto& block : blocks_) {
    state.layers.push_back(block->make_state(batch));
  }
  return state;
}

std::optional<std::int64_t> TransNormer::most_positions() const {
  std::optional<std::int64_t> most;
  if (config_.position == PositionKind::learned) {
    most = size_.max_positions;
  }
  for (const auto& block : blocks_) {
    if (const auto own = block->most_positions(); own && (!most || *own < *most)) {
      most = own;
    }
  }
  return most;
}

bool TransNormer::can_be_captured() const {
  return std::all_of(blocks_.begin(), blocks_.end(),
                     [](const auto& block) { return block->can_be_captured(); });
}

at::Device TransNormer::device() const {
  return embedding_->weight().device();
}

}  // namespace transnormer
