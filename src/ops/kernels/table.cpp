#include "ops/kernels/table.h"

#include "ops/kernels/functions.h"
#include "ops/kernels/step_functions.h"

#define TRANSNORMER_TEXT_OF(name) #name
#define TRANSNORMER_TEXT(name) TRANSNORMER_TEXT_OF(name)

namespace transnormer::ops::kernels::TRANSNORMER_ISA {

namespace {

const StepKernels step{product, cached_attention, linear_attention_step};

}  // namespace

const Kernels table{TRANSNORMER_TEXT(TRANSNORMER_ISA),
                    gated,
                    gated_backward,
                    feature,
                    feature_backward,
                    srms_norm,
                    srms_norm_backward,
                    residual,
                    residual_backward,
                    add_column_sums,
                    accumulate,
                    dropout,
                    dropout_mask,
                    lrpe,
                    lrpe_backward,
                    linear_attention,
                    linear_attention_backward,
                    block_attention,
                    block_attention_backward,
                    cross_entropy,
                    &step};

}  // namespace transnormer::ops::kernels::TRANSNORMER_ISA
