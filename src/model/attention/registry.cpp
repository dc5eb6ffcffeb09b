#include "model/attention/registry.h"

#include <map>
#include <utility>

namespace transnormer {
namespace {

std::map<std::string, MakeAttention>& makers() {
  static std::map<std::string, MakeAttention> by_name;
  return by_name;
}

}  // namespace

void add_maker(const std::string& name, MakeAttention make) {
  makers()[name] = std::move(make);
}

std::shared_ptr<Attention> make_attention(const AttentionConfig& config,
                                          const AttentionSettings& settings) {
  return makers().at(config.name())(config, settings);
}

}  // namespace transnormer
