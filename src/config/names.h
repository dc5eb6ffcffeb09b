// How the choices of the config are spelled in files and messages: one table an enum.
#pragma once

#include <array>
#include <span>

#include "config/config.h"

namespace transnormer {

template <class E>
struct Named {
  E value;
  const char* name;
};
template <class E>
Named(E, const char*) -> Named<E>;  // which clang before 17 does not deduce

inline constexpr std::array kModelVariantNames{
    Named{ModelVariant::t2, "t2"}, Named{ModelVariant::t1, "t1"},
    Named{ModelVariant::transformer, "transformer"}, Named{ModelVariant::custom, "custom"}};
inline constexpr std::array kFfnNames{Named{FfnKind::glu, "glu"}, Named{FfnKind::mlp, "mlp"}};
inline constexpr std::array kActivationNames{
    Named{Activation::silu, "silu"}, Named{Activation::relu, "relu"},
    Named{Activation::gelu, "gelu"}, Named{Activation::none, "none"}};
inline constexpr std::array kNormNames{Named{NormKind::srms, "srms"}, Named{NormKind::rms, "rms"},
                                       Named{NormKind::layer, "layer"}};
inline constexpr std::array kOutputNormNames{
    Named{NormKind::none, "none"}, Named{NormKind::srms, "srms"}, Named{NormKind::rms, "rms"},
    Named{NormKind::layer, "layer"}};
inline constexpr std::array kNormPlacementNames{Named{NormPlacement::pre, "pre"},
                                                Named{NormPlacement::post, "post"}};
inline constexpr std::array kEmbedNormNames{
    Named{EmbedNorm::automatic, "auto"}, Named{EmbedNorm::none, "none"},
    Named{EmbedNorm::srms, "srms"}, Named{EmbedNorm::rms, "rms"}, Named{EmbedNorm::layer, "layer"}};
inline constexpr std::array kPositionNames{Named{PositionKind::sinusoidal, "sinusoidal"},
                                           Named{PositionKind::learned, "learned"},
                                           Named{PositionKind::none, "none"}};
inline constexpr std::array kScoreNames{Named{ScoreKind::softmax, "softmax"},
                                        Named{ScoreKind::relu, "relu"}};
inline constexpr std::array kFeatureMapNames{
    Named{FeatureMap::elu1, "elu1"}, Named{FeatureMap::elu, "elu"}, Named{FeatureMap::relu, "relu"},
    Named{FeatureMap::silu, "silu"}, Named{FeatureMap::exp, "exp"}};
inline constexpr std::array kSampleBreakNames{Named{SampleBreak::none, "none"}};
inline constexpr std::array kLineEndNames{Named{LineEnd::eos, "eos"}, Named{LineEnd::none, "none"},
                                          Named{LineEnd::keep, "keep"}};
inline constexpr std::array kTokenizerNames{Named{TokenizerType::word, "word"},
                                            Named{TokenizerType::sentencepiece, "sentencepiece"},
                                            Named{TokenizerType::bpe, "bpe"}};
inline constexpr std::array kSentencePieceNames{Named{SentencePieceModel::unigram, "unigram"},
                                                Named{SentencePieceModel::bpe, "bpe"}};
inline constexpr std::array kScheduleNames{Named{ScheduleKind::inverse_sqrt, "inverse_sqrt"},
                                           Named{ScheduleKind::cosine, "cosine"},
                                           Named{ScheduleKind::linear, "linear"},
                                           Named{ScheduleKind::polynomial, "polynomial"},
                                           Named{ScheduleKind::constant, "constant"},
                                           Named{ScheduleKind::wsd, "wsd"}};
inline constexpr std::array kPrecisionNames{
    Named{Precision::fp32, "fp32"}, Named{Precision::bf16, "bf16"}, Named{Precision::fp16, "fp16"}};
inline constexpr std::array kDeviceNames{Named{DeviceChoice::automatic, "auto"},
                                         Named{DeviceChoice::cpu, "cpu"},
                                         Named{DeviceChoice::cuda, "cuda"}};
inline constexpr std::array kNonfiniteNames{Named{NonfinitePolicy::skip, "skip"},
                                            Named{NonfinitePolicy::stop, "stop"}};
inline constexpr std::array kLogLevelNames{
    Named{LogLevel::debug, "debug"}, Named{LogLevel::info, "info"},
    Named{LogLevel::warning, "warning"}, Named{LogLevel::error, "error"}};
inline constexpr std::array kBackendNames{Named{DistributedBackend::automatic, "auto"},
                                          Named{DistributedBackend::gloo, "gloo"},
                                          Named{DistributedBackend::nccl, "nccl"}};
inline constexpr std::array kGradientPrecisionNames{Named{GradientPrecision::fp32, "fp32"},
                                                    Named{GradientPrecision::bf16, "bf16"}};

// The spelling of a value, for messages and answers.
template <class E>
[[nodiscard]] constexpr const char* name_of(std::span<const Named<E>> names, E value) {
  for (const Named<E>& named : names) {
    if (named.value == value) {
      return named.name;
    }
  }
  return "?";
}
[[nodiscard]] constexpr const char* to_string(Precision value) {
  return name_of<Precision>(kPrecisionNames, value);
}
[[nodiscard]] constexpr const char* to_string(ModelVariant value) {
  return name_of<ModelVariant>(kModelVariantNames, value);
}

}  // namespace transnormer
