// analyze as a process: its answers, its files, what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/workspace.h"

namespace transnormer {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::size_t kHeader = 33;  // of a PNG file, to the end of its first chunk

class Analyze : public TrainedRun {
 protected:
  static json answer(const std::string& subject, const std::string& what, Arguments more = {}) {
    Arguments arguments{"analyze", subject, "--what", what, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = workspace().run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const json parsed = json::parse(outcome.out, nullptr, false);
    EXPECT_TRUE(parsed.is_object()) << outcome.out;
    return parsed;
  }
  // Width and height, as the header says.
  static std::pair<int, int> size_of_png(const std::string& file) {
    const std::string bytes = workspace().read(file);
    EXPECT_THAT(bytes, StartsWith("\x89PNG\r\n\x1a\n"));
    EXPECT_GT(bytes.size(), kHeader);
    const auto number = [&](std::size_t at) {
      int value = 0;
      for (std::size_t i = 0; i < 4; ++i) {
        value = value * 256 + static_cast<unsigned char>(bytes[at + i]);
      }
      return value;
    };
    return {number(16), number(20)};
  }
};

TEST_F(Analyze, SaysWhatWasAnalysed) {
  const json trained = answer("run", "dilution", {"--samples", "3"});
  EXPECT_EQ(trained.at("what"), "dilution");
  EXPECT_EQ(trained.at("weights"), "trained");
  EXPECT_EQ(trained.at("text"), "split valid");
  EXPECT_EQ(trained.at("samples"), 3);
  EXPECT_EQ(trained.at("length"), 24);
  EXPECT_EQ(trained.at("causal"), true);
  EXPECT_EQ(trained.at("files"), json::array());
  EXPECT_EQ(answer("run", "dilution", {"--split", "test"}).at("text"), "split test");

  const json initial = answer("tiny.json", "dilution", {"--set", "model.causal=false"});
  EXPECT_EQ(initial.at("weights"), "initial");
  EXPECT_EQ(initial.at("text"), "split valid");
  EXPECT_EQ(initial.at("causal"), false);

  workspace().write("no_data.json", R"({"model": {"layers": 2, "dim": 16, "heads": 2,
      "vocab_size": 50}, "data": {"tokens_per_sample": 24}})");
  EXPECT_EQ(answer("no_data.json", "dilution").at("text"), "random tokens");
}

TEST_F(Analyze, DilutionHasACurveForEachLayer) {
  const json found = answer("run", "dilution", {"--out", "d"});
  const json shares = found.at("shares");
  EXPECT_GE(shares.size(), 20);
  ASSERT_EQ(found.at("layers").size(), 2);
  EXPECT_EQ(found.at("layers")[0].at("attention"), "diag");
  EXPECT_EQ(found.at("layers")[1].at("layer"), 1);
  EXPECT_EQ(found.at("layers")[1].at("attention"), "norm");
  for (const json& curve : {found.at("layers")[0], found.at("layers")[1], found.at("mean")}) {
    ASSERT_EQ(curve.at("curve").size(), shares.size());
    double last = 0;
    for (const double value : curve.at("curve")) {
      EXPECT_GE(value, last);
      last = value;
    }
    EXPECT_LE(last, 1 + 1e-9);
    EXPECT_GT(curve.at("area"), 0);
  }
  // Blocks of eight in windows of 24 tokens are nearer to the diagonal.
  EXPECT_GT(found.at("layers")[0].at("area"), found.at("layers")[1].at("area"));

  ASSERT_EQ(found.at("files").size(), 2);
  EXPECT_EQ(size_of_png("d/dilution.png"), (std::pair{960, 600}));
  const std::vector<std::string> csv = lines_of(workspace().read("d/dilution.csv"));
  EXPECT_EQ(csv[0], "share,layer_0,layer_1,mean");
  EXPECT_EQ(csv.size(), shares.size() + 1);
  // A second call may replace what the first one made.
  EXPECT_EQ(answer("run", "dilution", {"--out", "d"}), found);
}

TEST_F(Analyze, MapsAreAFileForEachLayerAndHead) {
  const json found = answer("run", "maps", {"--layers", "1", "--heads", "0,1", "--out", "m"});
  ASSERT_EQ(found.at("maps").size(), 2);
  EXPECT_EQ(found.at("maps")[1].at("head"), 1);
  EXPECT_EQ(found.at("files").size(), 4);
  for (const std::string name : {"m/map_layer1_head0", "m/map_layer1_head1"}) {
    EXPECT_GT(size_of_png(name + ".png").first, 480);
    const std::vector<std::string> csv = lines_of(workspace().read(name + ".csv"));
    EXPECT_EQ(csv.size(), 25);
    EXPECT_THAT(csv[1], StartsWith("0,1,0,0"));  // the first token sees itself
  }
  EXPECT_FALSE(std::filesystem::exists(workspace() / "m/map_layer0_head0.png"));
}

TEST_F(Analyze, GradientsStandBesideTheirBounds) {
  const json found = answer("run", "gradients", {"--samples", "2", "--out", "g"});
  const json& layers = found.at("layers");
  ASSERT_EQ(layers.size(), 2);
  EXPECT_EQ(layers[0].at("form"), "softmax");
  EXPECT_EQ(layers[0].at("bound"), 0.25);
  EXPECT_EQ(layers[1].at("quantity"), "dL/ds");
  for (const json& layer : layers) {
    EXPECT_GT(layer.at("largest"), 0);
    EXPECT_LE(layer.at("largest"), layer.at("bound"));
  }
  // As the run's log has it.
  double logged = 0;
  for (const std::string& line : lines_of(workspace().read("run/metrics.jsonl"))) {
    const json parsed = json::parse(line);
    if (parsed.contains("gradients")) {
      logged = parsed.at("gradients").at("all").at("relative_std");
    }
  }
  EXPECT_EQ(found.at("iterations").at("all"), logged);
  EXPECT_TRUE(found.at("iterations").contains("layers.0"));
  EXPECT_EQ(size_of_png("g/gradients.png").first, 960);
  EXPECT_TRUE(answer("tiny.json", "gradients").at("iterations").is_null());
}

TEST_F(Analyze, ScaleAndRankAreRows) {
  const json scale = answer("run", "scale", {"--out", "s"});
  ASSERT_EQ(scale.at("rows").size(), 3);
  EXPECT_EQ(scale.at("rows")[1].at("norm"), "srms");
  EXPECT_EQ(scale.at("rows")[2].at("norm"), "none");
  for (const char* key : {"layer", "attention", "denominator", "output_rms", "output_max",
                          "gradient_rms", "gradient_max"}) {
    EXPECT_TRUE(scale.at("rows")[0].contains(key)) << key;
  }
  EXPECT_THAT(workspace().read("s/scale.csv"), StartsWith("layer,attention,denominator,norm,"));

  const json rank = answer("run", "rank", {"--layers", "1", "--heads", "1", "--out", "s"});
  ASSERT_EQ(rank.at("rows").size(), 4 * 2);  // 1, 2, 4, 8 features; 24 tokens, no mask and causal
  for (const json& row : rank.at("rows")) {
    EXPECT_EQ(row.at("head"), 1);
    EXPECT_EQ(row.at("window"), 24);
    if (row.at("masked") == false) {
      EXPECT_LE(row.at("rank"), row.at("key_dim"));
    } else if (row.at("key_dim") == 8) {
      EXPECT_EQ(row.at("rank"), 24);
    }
  }
  EXPECT_EQ(size_of_png("s/rank.png"), (std::pair{960, 600}));
  EXPECT_EQ(lines_of(workspace().read("s/rank.csv")).size(), 9);
}

TEST_F(Analyze, PeopleGetTables) {
  const Outcome outcome =
      workspace().run({"analyze", "run", "--what", "scale", "--layers", "1", "--out", "t"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Trained weights, split valid"));
  EXPECT_THAT(outcome.out, HasSubstr("output_rms"));
  EXPECT_THAT(outcome.out, HasSubstr("t/scale.csv"));
}

TEST_F(Analyze, WhatCannotBeIsRefusedInOneLine) {
  const auto refused = [](const Arguments& more, const std::string& words) {
    Arguments arguments{"analyze", "run", "--what", "maps"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_refused(workspace(), arguments, {words});
  };
  refused({"--samples", "0"}, "--samples is \"0\"; expected an integer, at least 1");
  refused({"--layers", "2"}, "--layers is \"2\"; expected \"all\", or numbers from 0 to 1");
  refused({"--layers", "0,,1"}, "--layers is \"0,,1\"");
  refused({"--heads", "-1"}, "--heads is \"-1\"; expected \"all\", or numbers from 0 to 1");
  refused({"--split", "dev"}, "--split is \"dev\"; it can be train, valid, test");
  refused({"--set", "model.layers=1"}, "--set: only a config can be changed");
  expect_refused(workspace(), {"analyze", "run", "--what", "all"},
                 {"--what is \"all\"; it can be dilution, maps, gradients, scale, rank"});
  expect_refused(workspace(), {"analyze", "run"}, {"--what"});
  expect_refused(workspace(), {"analyze", "none", "--what", "maps"}, {"none"});
  expect_refused(
      workspace(),
      {"analyze", "tiny.json", "--what", "maps", "--split", "test", "--set", "data.test=[]"},
      {"data.test: expected a text to analyse the model on, got none"});
}

TEST_F(Analyze, NoFileThatIsNotItsOwnIsReplaced) {
  workspace().write("mine/dilution.csv", "share of mine\n");
  workspace().write("mine/rank.png", "no picture");
  expect_refused(workspace(), {"analyze", "run", "--what", "dilution", "--out", "mine"},
                 {"mine/dilution.csv exists and is not a file of analyze"});
  expect_refused(workspace(), {"analyze", "run", "--what", "rank", "--out", "mine"},
                 {"mine/rank.png exists and is not a file of analyze"});
  expect_refused(workspace(), {"analyze", "run", "--what", "rank", "--out", "tiny.json"},
                 {"--out: expected a directory, got the file tiny.json"});
}

}  // namespace
}  // namespace transnormer
