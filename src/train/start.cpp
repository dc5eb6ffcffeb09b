#include "train/start.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "checkpoint/named_run.h"
#include "config/load.h"
#include "config/splits.h"
#include "task/objective.h"
#include "train/initial_weights.h"
#include "util/error.h"
#include "util/file.h"
#include "util/signal.h"

namespace transnormer {
namespace fs = std::filesystem;
namespace {

bool validates(const Config& config) {
  return config.validation.every > 0 && has_valid(config.data);
}

std::unique_ptr<Task> make_task(const Config& config, const StartingPoint& start) {
  TaskRequest request{.config = config, .validates = validates(config)};
  if (start.checkpoint) {
    request.tokenizer = same_tokenizer(start, config);
  } else if (start.initial) {
    request.tokenizer = tokenizer_of(*start.initial, config);
  }
  std::unique_ptr<Task> task = objective(config.train.objective).make_task(request);
  if (start.checkpoint) {
    require_same_data(start, task->data_digest());
  }
  return task;
}

struct Choice {
  RunDirectory directory;
  StartingPoint point;
  Config config;
};

// That of the last start here, as far as it can be read.
std::optional<Config> config_of_last_start(const fs::path& run_dir) {
  try {
    if (look_at_config(run_dir) == RunConfigFile::resolved) {
      const fs::path file = run_dir / kConfigFile;
      return parse_config(read_regular_file(file), file.string()).config;
    }
  } catch (const UserError&) {  // of another version, or damaged
  }
  return std::nullopt;
}

bool is_same_place(const std::string& one, const std::string& other) {
  std::error_code none;
  return one == other || fs::equivalent(one, other, none);
}

// A command that seems to take the run for a fresh one.
void refuse_other_weights(const LoadedConfig& loaded, const StartingPoint& point,
                          const fs::path& run_dir) {
  const std::string& named = loaded.config.train.init_from;
  const auto origin = loaded.origins.find("train.init_from");
  const bool is_asked = origin != loaded.origins.end() && origin->second.starts_with("--");
  const std::string& had = point.checkpoint->config().train.init_from;
  if (is_asked && !named.empty() && !is_same_place(named, had)) {
    const bool is_set = origin->second == "--set";
    throw UserError(origin->second + (is_set ? " train.init_from" : "") + ": " + run_dir.string() +
                    " holds a run, which goes on from " + point.checkpoint->path().string() +
                    " and began with " + (had.empty() ? "new weights" : "those of " + had) +
                    "; to begin one with the weights of " + named + " name --run-dir NEW");
  }
}

// How a run began, and how its text is coded since, is what it was, whatever the config names.
void keep_beginning(const Config& saved, LoadedConfig& loaded) {
  loaded.config.train.init_from = saved.train.init_from;
  if (!saved.train.init_from.empty()) {
    take_coding(saved.tokenizer.type, saved.data.line_end, loaded);
  }
}

// On rank 0.
Choice choose(const TrainRequest& request, const TrainingState& state,
              std::vector<std::string>& warnings) {
  RunDirectory directory(request.run_dir);
  for (std::string& warning : directory.warnings()) {
    warnings.push_back(std::move(warning));
  }
  StartingPoint point = choose_start(request, directory);
  LoadedConfig loaded = request.loaded;
  std::vector<std::string> taken;
  if (point.checkpoint) {
    refuse_other_weights(loaded, point, directory.path());
    keep_beginning(point.checkpoint->config(), loaded);
    const std::vector<std::string> changes = compare_settings(point, loaded, state);
    point.warnings.insert(point.warnings.end(), changes.begin(), changes.end());
  } else if ((point.initial = open_initial_weights(loaded.config))) {
    CodingTaken coding = take_coding(*point.initial, loaded);
    taken = std::move(coding.told);
    std::move(coding.warnings.begin(), coding.warnings.end(), std::back_inserter(point.warnings));
  }
  std::move(point.warnings.begin(), point.warnings.end(), std::back_inserter(warnings));
  point.changes = told_changes(point, config_of_last_start(directory.path()), loaded);
  std::move(taken.begin(), taken.end(), std::back_inserter(point.changes));
  throw_if_stopped();
  return {std::move(directory), std::move(point), std::move(loaded.config)};
}

std::string place_of(const std::optional<Checkpoint>& checkpoint) {
  return checkpoint ? checkpoint->path().string() : "";
}

std::string spelled(const Choice& choice) {
  return nlohmann::json{{"directory", choice.directory.path().string()},
                        {"checkpoint", place_of(choice.point.checkpoint)},
                        {"initial", place_of(choice.point.initial)},
                        {"config", config_to_json(choice.config)},
                        {"is_fork", choice.point.is_fork}}
      .dump();
}

// On any other.
Choice follow(const std::string& of_first) {
  const auto json = nlohmann::json::parse(of_first);
  const auto open = [&json](const char* key) {
    const std::string path = json.at(key);
    return path.empty() ? std::nullopt : std::optional(Checkpoint::open(path));
  };
  StartingPoint point;
  point.checkpoint = open("checkpoint");
  point.initial = open("initial");
  point.is_fork = json.at("is_fork").get<bool>();
  return {RunDirectory::of_another(json.at("directory").get<std::string>()), std::move(point),
          parse_config(json.at("config").get<std::string>(), "the config of rank 0").config};
}

// A file of rank 0 in the run directory, which all others must see.
class SharedMark {
 public:
  SharedMark(fs::path file, bool writes)
      : file_(std::move(file)), is_ours_(writes && !has_entry(file_)) {
    if (is_ours_) {
      write_file(file_, "");
    }
  }
  ~SharedMark() {
    std::error_code ignored;
    if (is_ours_) {
      fs::remove(file_, ignored);
    }
  }
  SharedMark(const SharedMark&) = delete;
  SharedMark& operator=(const SharedMark&) = delete;

  // What other machines write may take a moment to be seen.
  [[nodiscard]] bool is_seen() const {
    constexpr int kTries = 100;
    for (int i = 0; i < kTries; ++i) {
      if (has_entry(file_)) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }

 private:
  fs::path file_;
  bool is_ours_;
};

void require_shared_files(const dist::World& world, const fs::path& directory) {
  if (world.size() == 1) {
    return;
  }
  // Another name for each start: what a killed one has left is not to be taken for this one's.
  const std::string name =
      world.all().broadcast(".shared-by-all-ranks-" + std::to_string(::getpid()), 0);
  const SharedMark mark(directory / name, world.is_first());
  world.all().meet();
  std::string fault;
  if (!mark.is_seen()) {
    fault = world.name() + ": what rank 0 writes into " + directory.string() +
            " is not seen there; the run directory must be in a file system that all ranks share";
  }
  for (const std::string& found : world.all().gather(fault)) {
    if (!found.empty()) {
      throw UserError(found);
    }
  }
}

}  // namespace

Start start_together(const TrainRequest& request, dist::World& world, const TrainingState& now,
                     std::vector<std::string>& warnings) {
  std::optional<Choice> choice;
  const std::string decided = world.word_of_first([&] {
    choice.emplace(choose(request, now, warnings));
    return spelled(*choice);
  });
  if (!choice) {  // at once: a checkpoint of another run may not be there for long
    choice.emplace(follow(decided));
  }
  const Config& config = choice->config;
  std::unique_ptr<Task> task;
  (void)world.word_of_first([&] {
    task = make_task(config, choice->point);
    return "prepared";
  });
  if (!task) {
    task = make_task(config, choice->point);
  }
  require_shared_files(world, choice->directory.path());
  return {std::move(choice->directory), std::move(choice->point), std::move(choice->config),
          std::move(task)};
}

}  // namespace transnormer
