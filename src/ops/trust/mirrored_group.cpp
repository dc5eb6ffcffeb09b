#include "ops/trust/mirrored_group.h"

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "dist/engine.h"

namespace transnormer::ops {
namespace {

constexpr int kRank = 1;
constexpr int kRanks = 3;

struct DoneWork : c10d::Work {
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
};

struct MirrorBackend : c10d::Backend {
  MirrorBackend() : Backend(kRank, kRanks) {}

  const std::string getBackendName() const override { return "mirror"; }
  c10::intrusive_ptr<c10d::Work> _allgather_base(
      at::Tensor& all, at::Tensor& own, const c10d::AllgatherOptions& /*options*/) override {
    all.view({kRanks, -1}).copy_(own.view({1, -1}).expand({kRanks, -1}));
    return c10::make_intrusive<DoneWork>();
  }
};

}  // namespace

dist::Group mirrored_group() {
  return {kRank, kRanks,
          std::make_shared<dist::Engine>(dist::Engine{c10::make_intrusive<MirrorBackend>()}),
          std::make_shared<dist::Progress>()};
}

}  // namespace transnormer::ops
