// All processes of the job: how they meet, the groups that they form, what they tell each other
// before, and how they end together. A process by itself is a world of one, in which all of this
// does nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "dist/group.h"
#include "dist/launch.h"
#include "util/error.h"

namespace transnormer::dist {

struct EngineRequest;  // dist/engine.h

// Makes a group's engine for tensors of a GPU; all of the group call it, and wait for each other in
// it. Throws UserError where there is none, and what c10d throws.
using EngineMaker = std::function<std::shared_ptr<Engine>(const EngineRequest&)>;

// The first process has found, while they met, that they do not fit together, and tells it.
class FirstHasFault : public std::runtime_error {
 public:
  FirstHasFault() : std::runtime_error("rank 0 found a fault") {}
};

enum class Stops { heeded, ignored };

class World {
 public:
  World();  // of one

  // Meets the others. `identity`: of the program; it must be the same everywhere. Throws UserError:
  // who is late, which numbers do not fit together, that the port is taken, who is of another
  // program; and FirstHasFault.
  World(const Launch& launch, std::chrono::milliseconds timeout, const std::string& identity);
  ~World();
  World(World&&) noexcept;
  World& operator=(World&&) noexcept;

  [[nodiscard]] int rank() const { return all_.rank(); }
  [[nodiscard]] int size() const { return all_.size(); }
  [[nodiscard]] bool is_first() const { return rank() == 0; }
  [[nodiscard]] const Launch& launch() const { return launch_; }
  [[nodiscard]] std::string name() const;  // "rank 2 on node7"
  // For people: who started the processes, where they met, what they talk over.
  [[nodiscard]] std::string describe() const;

  // --- Groups, for tensors on the CPU and, from form_groups() on, of its device. That of all is
  // there from the start; before form_groups() the others are this process alone.
  [[nodiscard]] const Group& all() const { return all_; }
  // Those that hold neighbouring parts of the same sequences; and, one of each such group, those
  // that share out the samples.
  [[nodiscard]] const Group& sequence() const { return sequence_; }
  [[nodiscard]] const Group& samples() const { return samples_; }

  // `sequence_parallel` neighbouring ranks share a sequence. On a GPU the groups get engines of
  // for_gpu, and where a collective there fails or takes too long, this process ends as by
  // end_by_collective(), since its host would wait without end. Throws UserError where the ranks
  // cannot be divided so, or the backend does not fit the device.
  void form_groups(const DistributedConfig& config, at::Device device,
                   const EngineMaker& for_gpu = {});

  // --- Words of the first process, however long it takes it to say them: the others wait without
  // limit, and throw StoppedError when a signal asks to stop, unless that is to be ignored.
  [[nodiscard]] std::string word_of_first(const std::function<std::string()>& word,
                                          Stops stops = Stops::heeded);

  // Throws UserError, naming the first process that differs, where `value` is not the same for all.
  // difference: says how two values differ.
  void require_same(const std::string& value,
                    const std::function<std::string(const std::string& first,
                                                    const std::string& other)>& difference) const;

  // How many processes, this one too, say the same.
  [[nodiscard]] int count_alike(const std::string& text) const;

  // All leave in order, and the job is over: another program may follow by the same launcher.
  void leave();

  // --- The end. Where another process fails, is killed, lost or hangs, this one ends on the way.
  // Watch::report; true in a world of one.
  bool report(ExitStatus status, const std::vector<std::string>& faults);
  // Watch::end_by_collective.
  [[noreturn]] void end_by_collective(const std::string& what);
  // Called before the process is ended by another's fault.
  void set_last_words(std::function<void()> last_words);

 private:
  struct Others;

  Launch launch_;
  std::unique_ptr<Others> others_;  // null in a world of one
  Group all_;
  Group sequence_;
  Group samples_;
};

// The world of one.
[[nodiscard]] World& alone();

}  // namespace transnormer::dist
