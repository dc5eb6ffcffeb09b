#include "model/ffn.h"

#include "ops/activation.h"

namespace transnormer {
namespace {

class Glu : public Ffn {
 public:
  Glu(std::int64_t dim, std::int64_t width, Activation activation, at::Device device)
      : activation_(activation),
        gate_up_(*this, dim, {{"gate_proj", width, {}}, {"up_proj", width, {}}}, device),
        down_(register_module("down_proj",
                              std::make_shared<Linear>(width, dim, LinearStart{}, device))) {}

  [[nodiscard]] at::Tensor forward(const at::Tensor& x, at::ScalarType compute) const override {
    return down_->forward_gated(gate_up_.forward(x, compute), activation_, compute);
  }

 private:
  Activation activation_;
  LinearGroup gate_up_;
  std::shared_ptr<Linear> down_;
};

class Mlp : public Ffn {
 public:
  Mlp(std::int64_t dim, std::int64_t width, Activation activation, at::Device device)
      : activation_(activation),
        fc1_(register_module("fc1", std::make_shared<Linear>(dim, width, LinearStart{}, device))),
        fc2_(register_module("fc2", std::make_shared<Linear>(width, dim, LinearStart{}, device))) {}

  [[nodiscard]] at::Tensor forward(const at::Tensor& x, at::ScalarType compute) const override {
    return fc2_->forward(ops::activate(fc1_->forward(x, compute), activation_), compute);
  }

 private:
  Activation activation_;
  std::shared_ptr<Linear> fc1_;
  std::shared_ptr<Linear> fc2_;
};

}  // namespace

std::shared_ptr<Ffn> make_ffn(const ModelConfig& config, at::Device device) {
  const std::int64_t width = config.resolved_ffn_dim();
  if (config.ffn == FfnKind::glu) {
    return std::make_shared<Glu>(config.dim, width, config.ffn_activation, device);
  }
  return std::make_shared<Mlp>(config.dim, width, config.ffn_activation, device);
}

}  // namespace transnormer
