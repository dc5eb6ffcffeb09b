#include "model/attention/gated_unit.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "model/attention/unit_values.h"
#include "ops/activation.h"
#include "ops/attention/groups.h"
#include "ops/norm.h"
#include "ops/residual.h"

namespace transnormer {
namespace {

constexpr double kNormEps = 1e-5;
constexpr double kStd = 0.02;

// x: [rows, time, dim], fp32; angles are formed in double.
at::Tensor rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

}  // namespace

void GatedUnitConfig::visit_unit(FieldVisitor& visitor, const char* chunk_help) {
  visitor.integer({"expansion", "Width of values and gate in widths of the model"}, expansion,
                  {1, 64});
  visitor.integer({"key_dim", "Width of queries and keys, even"}, key_dim, {2, kMaxSize});
  visitor.integer({"chunk", chunk_help, OnResume::refuse, "tokens"}, chunk, {1, kMaxSize});
}

std::vector<std::string> GatedUnitConfig::faults(const AttentionSettings& settings) const {
  std::vector<std::string> found;
  if (key_dim % 2 != 0) {
    found.push_back("key_dim: expected an even number, got " + std::to_string(key_dim));
  }
  if (settings.max_positions < 1) {
    found.push_back(
        "attention: its table of offsets needs data.tokens_per_sample; expected at "
        "least 1, got " +
        std::to_string(settings.max_positions));
  }
  return found;
}

GatedUnitParts::GatedUnitParts(const GatedUnitConfig& config, const BlockSettings& settings,
                               const std::vector<std::string>& pairs)
    : width_(config.expansion * settings.model.dim),
      key_dim_(config.key_dim),
      positions_(settings.max_positions),
      uvz_(*this, settings.model.dim,
           {{"u_proj", width_, {}}, {"v_proj", width_, {}}, {"z_proj", key_dim_, {}}},
           settings.device),
      out_(register_module("out_proj", std::make_shared<Linear>(width_, settings.model.dim,
                                                                LinearStart{}, settings.device))) {
  const auto vector = [&](const std::string& name, std::int64_t size) {
    return register_parameter(name, at::empty({size}, at::device(settings.device)));
  };
  norm_scale_ = vector("norm_scale", 1);
  for (const std::string& pair : pairs) {
    scales_.push_back(vector(pair + "_scale", key_dim_));
    offsets_.push_back(vector(pair + "_offset", key_dim_));
  }
  offset_bias_ = vector("offset_bias", 2 * positions_ - 1);
  unused_scale_ = vector("unused_scale", key_dim_);
  unused_offset_ = vector("unused_offset", key_dim_);
}

void GatedUnitParts::initialize(const Initializer& initializer, const std::string& prefix) {
  const at::NoGradGuard no_gradients;
  norm_scale_.fill_(1);
  for (const auto& parameter : named_parameters(/*recurse=*/false)) {
    const std::string& name = parameter.key();
    if (name != "norm_scale") {
      initializer.normal(parameter.value(), prefix + name, kStd);
    }
  }
  for (const at::Tensor& offset : offsets_) {
    at::Tensor(offset).zero_();
  }
}

GatedUnitParts::Projected GatedUnitParts::project(const at::Tensor& x,
                                                  at::ScalarType compute) const {
  const at::Tensor y = ops::rms_norm(x, norm_scale_.expand({x.size(-1)}), kNormEps, compute);
  const std::vector<at::Tensor> parts = ops::activate(uvz_.forward(y, compute), Activation::silu)
                                            .split_with_sizes({width_, width_, key_dim_}, -1);
  return {.u = parts[0], .v = parts[1], .z = parts[2]};
}

at::Tensor GatedUnitParts::out(const at::Tensor& gated, at::ScalarType compute) const {
  return out_->forward(gated.to(compute), compute);
}

std::vector<at::Tensor> GatedUnitParts::turned(const at::Tensor& z,
                                               const at::Tensor& positions) const {
  const auto doubles = z.options().dtype(at::kDouble);
  const at::Tensor angle = positions.to(at::kDouble).unsqueeze(-1) *
                           at::exp(at::arange(key_dim_ / 2, doubles) *
                                   (-2 * std::log(1e4) / static_cast<double>(key_dim_)));
  const at::Tensor cos = at::cos(angle).to(at::kFloat);
  const at::Tensor sin = at::sin(angle).to(at::kFloat);
  const at::Tensor wide = z.to(at::kFloat);
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < scales_.size(); ++i) {
    all.push_back(rotary(at::addcmul(offsets_[i], wide, scales_[i]), cos, sin));
  }
  return all;
}

at::Tensor GatedUnitParts::offsets(std::int64_t queries, std::int64_t keys) const {
  const at::Tensor distance =
      at::arange(1 - keys, queries, offset_bias_.options().dtype(at::kLong));
  return offset_bias_.index_select(
      0, distance.clamp(1 - positions_, positions_ - 1).add_(positions_ - 1));
}

GatedUnit::GatedUnit(const GatedUnitConfig& config, const BlockSettings& settings,
                     const std::vector<std::string>& pairs)
    : config_(config),
      layer_(settings.layer),
      dim_(settings.model.dim),
      width_(config.expansion * settings.model.dim),
      max_positions_(settings.max_positions),
      pairs_(static_cast<std::int64_t>(pairs.size())),
      causal_(settings.model.causal),
      device_(settings.device),
      parts_(register_module("attn", std::make_shared<GatedUnitParts>(config, settings, pairs))) {}

at::Tensor GatedUnit::forward(const at::Tensor& x, const ForwardContext& context,
                              AttentionState* state) {
  const auto [u, v, z] = parts_->project(x, context.compute);
  const at::Tensor attended = state == nullptr ? attend(z, v, context) : go_on(z, v, *state);
  return ops::residual(x, parts_->out(u * attended, context.compute),
                       {0, context.dropout_key(layer_, DropoutSite::attention, dim_)});
}

at::Tensor GatedUnit::attend(const at::Tensor& z, const at::Tensor& v,
                             const ForwardContext& context) const {
  std::vector<at::Tensor> tensors{z.unsqueeze(2), v.unsqueeze(2)};
  if (context.positions.defined()) {
    tensors.push_back(context.positions.to(at::kLong).unsqueeze(-1).unsqueeze(-1));
  }
  return ops::by_rows(context.visibility, tensors,
                      [&](const std::vector<at::Tensor>& rows, const at::Tensor&) {
                        const at::Tensor positions =
                            rows.size() > 2
                                ? rows[2].squeeze(-1).squeeze(-1)
                                : at::arange(rows[0].size(1), rows[0].options().dtype(at::kLong));
                        return attend_rows(rows[0].squeeze(2), rows[1].squeeze(2), positions,
                                           context.visibility.causal)
                            .unsqueeze(2);
                      })
      .squeeze(2);
}

at::Tensor GatedUnit::attention_weights(const at::Tensor& x, const ForwardContext& context) {
  const at::NoGradGuard no_gradients;
  const at::Tensor z = parts_->project(x, context.compute).z;
  return weights_of_values(x.size(0), x.size(1), 1, width_, x.device(), [&](const at::Tensor& v) {
    return attend(z, v.squeeze(2), context).unsqueeze(2);
  });
}

double GatedUnit::mean_seen(std::int64_t tokens) const {
  return causal_ ? static_cast<double>(tokens + 1) / 2 : static_cast<double>(tokens);
}

BlockFlops GatedUnit::flops_per_token(std::int64_t length) const {
  return {.products = product_flops(*this), .attention = attention_flops(length)};
}

double GatedUnit::kept_bytes_per_token(at::ScalarType compute) const {
  // The stream, its norm; u, v, z before and behind silu; u times what was attended; and in fp32 z,
  // the queries and keys and what was attended.
  const auto element = static_cast<double>(c10::elementSize(compute));
  const auto dim = static_cast<double>(dim_);
  const auto width = static_cast<double>(width_);
  const auto key = static_cast<double>(config_.key_dim);
  return 4 * dim + element * (dim + 2 * (2 * width + key) + width) +
         4 * (key * static_cast<double>(1 + pairs_) + width);
}

std::vector<ParameterGroup> GatedUnit::groups() const {
  std::vector<ParameterGroup> groups;
  for (const char* name : {"u_proj", "v_proj", "z_proj", "out_proj"}) {
    groups.push_back({name, parts_->named_children()[name]->parameters()});
  }
  return groups;
}

}  // namespace transnormer
