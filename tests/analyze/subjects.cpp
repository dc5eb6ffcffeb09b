#include "analyze/subjects.h"

#include "model/models.h"

namespace transnormer::test {

Subject make_subject(const ModelConfig& model, std::int64_t windows, std::int64_t length) {
  Subject subject;
  subject.config.model = model;
  subject.model = make_model(model);
  subject.rebuild = [](const ModelConfig& other) { return make_model(other); };
  subject.length = length;
  subject.text = "random tokens";
  for (std::int64_t i = 0; i < windows; ++i) {
    const at::Tensor tokens = random_tokens(1, length + 1, i + 1);
    subject.windows.push_back(
        {tokens.narrow(1, 0, length).contiguous(), tokens.narrow(1, 1, length).contiguous()});
  }
  return subject;
}

Selection everything(const ModelConfig& model) {
  Selection all;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    all.layers.push_back(layer);
  }
  return all;
}

}  // namespace transnormer::test
