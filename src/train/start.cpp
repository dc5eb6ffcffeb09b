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
#include "config/load.h"
#include "config/splits.h"
#include "task/objective.h"
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
  }
  std::unique_ptr<Task> task = objective(config.train.objective).make_task(request);
  if (start.checkpoint) {
    require_same_data(start, task->data_digest());
  }
  return task;
}

// On rank 0; the caches of the data are whole then.
Start prepare_start(const TrainRequest& request, const TrainingState& state,
                    std::vector<std::string>& warnings) {
  RunDirectory directory(request.run_dir);
  for (std::string& warning : directory.warnings()) {
    warnings.push_back(std::move(warning));
  }
  StartingPoint point = choose_start(request, directory);
  std::move(point.warnings.begin(), point.warnings.end(), std::back_inserter(warnings));
  if (point.checkpoint) {
    const std::vector<std::string> changes = compare_settings(point, request.loaded.config, state);
    warnings.insert(warnings.end(), changes.begin(), changes.end());
  }
  throw_if_stopped();
  std::unique_ptr<Task> task = make_task(request.loaded.config, point);
  return {std::move(directory), std::move(point), std::move(task)};
}

std::string spelled(const Start& start) {
  return nlohmann::json{
      {"directory", start.directory.path().string()},
      {"checkpoint", start.point.checkpoint ? start.point.checkpoint->path().string() : ""}}
      .dump();
}

// On any other.
Start follow_start(const Config& config, const std::string& of_first) {
  const auto json = nlohmann::json::parse(of_first);
  StartingPoint point;
  if (const std::string path = json.at("checkpoint"); !path.empty()) {
    point.checkpoint = Checkpoint::open(path);
  }
  std::unique_ptr<Task> task = make_task(config, point);
  return {RunDirectory::of_another(json.at("directory").get<std::string>()), std::move(point),
          std::move(task)};
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
  std::optional<Start> start;
  const std::string decided = world.word_of_first([&] {
    start.emplace(prepare_start(request, now, warnings));
    return spelled(*start);
  });
  if (!start) {
    start.emplace(follow_start(request.loaded.config, decided));
  }
  require_shared_files(world, start->directory.path());
  return *std::move(start);
}

}  // namespace transnormer
