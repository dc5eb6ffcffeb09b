#include "analyze/scale.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "analyze/recorder.h"
#include "analyze/subjects.h"
#include "model/attention/diag.h"
#include "model/attention/norm.h"
#include "model/models.h"

namespace transnormer {
namespace {

TEST(Scale, OnlyWhatHasAnotherFormGetsOne) {
  const ModelConfig t2 = test::small_config(ModelVariant::t2);
  const std::vector<ModelConfig> forms = forms_of(t2, {.vocab_size = 41, .max_positions = 64});
  ASSERT_EQ(forms.size(), 2);
  EXPECT_EQ(forms[0], t2);
  EXPECT_EQ(forms[1].early, t2.early);  // softmax
  EXPECT_EQ(forms[1].late.get<NormAttentionConfig>().output_norm, NormKind::none);
  EXPECT_EQ(forms_of(forms[1], {.vocab_size = 41, .max_positions = 64})[1].late, t2.late);
  EXPECT_EQ(forms_of(test::small_config(ModelVariant::transformer),
                     {.vocab_size = 41, .max_positions = 64})
                .size(),
            1);
}

TEST(Scale, RowsAreThoseOfBothFormsWithTheSameWeights) {
  const ModelConfig config = test::small_config(ModelVariant::t2);
  const Subject subject = test::make_subject(config);
  const std::vector<ScaleRow> rows = measure_scale(subject, test::everything(config));
  ASSERT_EQ(rows.size(), 5);  // diag once, norm twice in each of two layers
  EXPECT_EQ(rows[0].attention, "diag");
  EXPECT_EQ(rows[0].denominator, true);
  EXPECT_EQ(rows[1].norm, "srms");
  EXPECT_EQ(rows[2].norm, "none");
  EXPECT_FALSE(rows[2].as_configured);
  for (const std::size_t row : {1, 2, 3, 4}) {
    EXPECT_EQ(rows[row].denominator, false);
  }
  // The first norm layer gets the same stream in both forms; its gradients differ.
  EXPECT_NEAR(rows[1].output_rms, rows[2].output_rms, 1e-5 * rows[1].output_rms);
  EXPECT_NEAR(rows[1].output_max, rows[2].output_max, 1e-5 * rows[1].output_max);
  EXPECT_NE(rows[1].gradient_rms, rows[2].gradient_rms);
}

TEST(Scale, FiguresAreThoseOfTheRecordedTensors) {
  const ModelConfig config = test::small_config(ModelVariant::t2);
  const Subject subject = test::make_subject(config);
  const ScaleRow row = measure_scale(subject, {.layers = {2}}).at(0);
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> gradients;
  for (const Window& window : subject.windows) {
    const auto records = record_pass(*subject.model, window, true);
    const AttentionInside& inside = records[2].attentions.at(0).inside;
    outputs.push_back(inside.merged.detach().flatten());
    for (const at::Tensor& tensor : {inside.q, inside.k, inside.v}) {
      gradients.push_back(tensor.grad().flatten());
    }
  }
  const at::Tensor output = at::cat(outputs);
  const at::Tensor gradient = at::cat(gradients);
  EXPECT_NEAR(row.output_rms, output.square().mean().sqrt().item<double>(), 1e-5 * row.output_rms);
  EXPECT_NEAR(row.output_max, output.abs().max().item<double>(), 1e-6 * row.output_max);
  EXPECT_NEAR(row.gradient_rms, gradient.square().mean().sqrt().item<double>(),
              1e-5 * row.gradient_rms);
  EXPECT_NEAR(row.gradient_max, gradient.abs().max().item<double>(), 1e-6 * row.gradient_max);
  EXPECT_GT(row.gradient_max, 0);
}

TEST(Scale, ModelsThatAreNotCausalAreMeasuredToo) {
  ModelConfig config = test::small_config(ModelVariant::t2);
  config.causal = false;
  const auto rows = measure_scale(test::make_subject(config), test::everything(config));
  ASSERT_EQ(rows.size(), 5);
  EXPECT_GT(rows[4].gradient_rms, 0);
}

}  // namespace
}  // namespace transnormer
