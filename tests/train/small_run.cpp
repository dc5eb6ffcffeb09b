#include "train/small_run.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "config/load.h"
#include "log/console.h"
#include "train/training_loop.h"
#include "util/file.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

class Recorder : public log::EventSink {
 public:
  explicit Recorder(Recorded& recorded) : recorded_(recorded) {}
  void on(const log::TrainEvent& event) override { recorded_.train.push_back(event); }
  void on(const log::ValidEvent& event) override { recorded_.valid.push_back(event); }
  void on(const log::NoteEvent& event) override {
    recorded_.notes.push_back(event);
    if (recorded_.on_note) {
      recorded_.on_note(event);
    }
  }

 private:
  Recorded& recorded_;
};

class Silence : public log::EventSink {
 public:
  void on(const log::TrainEvent&) override {}
  void on(const log::ValidEvent&) override {}
  void on(const log::NoteEvent&) override {}
};

// 23 samples of 16: no multiple of a batch, and six updates see more than one epoch.
std::string config_json(const fs::path& path, bool validates) {
  return R"({"run_name": "small",
    "model": {"variant": "custom", "layers": 2, "dim": 16, "heads": 2,
              "early": {"attention": "diag", "block": 8},
              "dropout": 0.1},
    "data": {"train": ")" +
         (path / "train.txt").string() + R"(", "cache_dir": ")" + (path / "cache").string() +
         R"(", "tokens_per_sample": 16},
    "optimizer": {"lr": 0.01},
    "schedule": {"name": "inverse_sqrt", "warmup_steps": 4},
    "train": {"steps": 6, "global_batch_size": 4, "device": "cpu", "threads": 1},
    )" + (validates ? R"("validation": {"every": 2},)" : "") +
         R"(
    "checkpoint": {"every": 2, "keep_last": 100},
    "log": {"every": 1, "grad_stats_every": 1, "tensorboard": false, "level": "error"}})";
}

}  // namespace

std::vector<std::string> Recorded::names() const {
  std::vector<std::string> names;
  for (const log::NoteEvent& note : notes) {
    names.push_back(note.name);
  }
  return names;
}

SmallRun::SmallRun() {
  std::string name = (fs::temp_directory_path() / "transnormer-train-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error("no temporary directory");
  }
  path_ = name;
  write("train.txt", small_text(23 * 16 - 5, 1));
  write("valid.txt", small_text(90, 2));
  log::set_level(log::Level::error);
}

SmallRun::~SmallRun() {
  log::close_file();
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void SmallRun::write(const std::string& name, const std::string& text) const {
  std::ofstream(path_ / name, std::ios::binary) << text;
}

TrainRequest SmallRun::request(const std::string& name,
                               const std::vector<std::string>& sets) const {
  const bool validates = std::ranges::any_of(sets, [](const std::string& set) {
    return set.starts_with("data.valid=") || set.starts_with("data.holdout=");
  });
  return {.loaded = parse_config(config_json(path_, validates), "small.json", sets),
          .run_dir = path_ / name};
}

ExitStatus SmallRun::train(const std::string& name, const std::vector<std::string>& sets) const {
  const ExitStatus status = transnormer::train(request(name, sets));
  log::close_file();
  return status;
}

fs::path SmallRun::checkpoint(const std::string& name, std::int64_t step) const {
  char directory[32];
  std::snprintf(directory, sizeof directory, "step-%08d", static_cast<int>(step));
  return path_ / name / "checkpoints" / directory;
}

bool SmallRun::has_checkpoint(const std::string& name, std::int64_t step) const {
  return fs::exists(checkpoint(name, step) / "manifest.json");
}

std::string SmallRun::file_of(const std::string& name, std::int64_t step,
                              const std::string& file) const {
  return read_file(checkpoint(name, step) / file);
}

ExitStatus run_loop(TrainingRun& run, Recorded& recorded) {
  std::vector<std::unique_ptr<log::EventSink>> files;
  files.push_back(std::make_unique<Recorder>(recorded));
  Events events(std::make_unique<Silence>(), std::move(files));
  return TrainingLoop(run, events).run();
}

// Operators gather the gradients of weights themselves, so the hook does not see them pass.
void poison_gradients(TrainingRun& run, std::int64_t first, std::int64_t last) {
  const auto& state = run.state;
  const at::Tensor parameter = run.optimizer->parameters()[1].tensor;
  parameter.register_hook([&state, first, last, gathered = parameter.grad()](const at::Tensor&) {
    if (state.step >= first && state.step < last) {
      gathered.fill_(std::numeric_limits<double>::quiet_NaN());
    }
  });
}

void expect_same_state(const SmallRun& runs, const std::string& first, const std::string& second,
                       std::int64_t step) {
  const auto state_of = [&](const std::string& name) {
    std::string json = runs.file_of(name, step, "state.json");
    const std::size_t line = json.find("\"elapsed_s\"");
    return json.erase(line, json.find('\n', line) - line);
  };
  EXPECT_EQ(state_of(first), state_of(second)) << "step " << step;
}

void expect_same_weights(const SmallRun& runs, const std::string& first, const std::string& second,
                         std::int64_t step) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_TRUE(runs.file_of(first, step, file) == runs.file_of(second, step, file))
        << file << " of step " << step << " differs between " << first << " and " << second;
  }
}

std::string small_text(int tokens, unsigned seed) {
  static const std::vector<std::string> words{"the", "river", "ran", "over", "stones",
                                              "and", "sang",  "to",  "hill", "at"};
  std::string text;
  unsigned state = seed;
  for (int token = 1; token <= tokens; ++token) {
    state = state * 1103515245U + 12345U;
    const bool line_ends = token % 9 == 0 || token == tokens;
    text += line_ends ? "\n" : words[(state >> 16) % words.size()] + ' ';
  }
  return text;
}

}  // namespace transnormer
