#include "dist/world.h"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "dist/engine.h"
#include "dist/gloo.h"
#include "dist/meeting.h"
#include "dist/watch.h"

namespace transnormer::dist {
namespace {

using Milliseconds = std::chrono::milliseconds;
using namespace std::chrono_literals;

bool is_of_loop(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

// Of the collectives that were begun; empty: none so far.
std::string fault_of_gpu(const Engine& engine) {
  switch (engine.backend->getError()) {
    case c10d::ErrorType::SUCCESS:
      return "";
    case c10d::ErrorType::TIMEOUT:
      return "a collective of the GPUs timed out";
    case c10d::ErrorType::COMM_ERROR:
    case c10d::ErrorType::REMOTE_ERROR:
      break;
  }
  return "a collective of the GPUs failed (NCCL_DEBUG=WARN tells more)";
}

}  // namespace

struct World::Others {
  Store store;
  Store whole_store;    // with what other programs of the same launch have left
  std::string ends;     // key of the orderly ends of this rank, in the whole
  std::string address;  // of this machine, towards the others
  Milliseconds timeout;
  std::shared_ptr<Progress> progress = std::make_shared<Progress>();
  std::int64_t words = 0;  // of the first, so far
  std::unique_ptr<Watch> watch;
  EngineMaker for_gpu = {};          // empty: the device is a CPU
  std::shared_ptr<Engine> all = {};  // that of the group of all
  std::vector<std::shared_ptr<Engine>> on_gpu = {};
  std::jthread gpu_watch = {};

  template <typename Make>
  [[nodiscard]] static std::shared_ptr<Engine> made(const Make& make) {
    try {
      return make();
    } catch (const UserError&) {
      throw;
    } catch (const std::exception& error) {
      throw CollectiveError(first_line(error.what()));
    }
  }
  [[nodiscard]] std::shared_ptr<Engine> host_engine(const std::string& name, int rank,
                                                    int size) const {
    return made([&] {
      return gloo_engine(c10::make_intrusive<c10d::PrefixStore>(name, store), rank, size, address,
                         timeout);
    });
  }
  void add_gpu(Engine& engine, const std::string& name, int rank, int size) {
    if (for_gpu) {
      engine.of_device = made([&] {
        return for_gpu({.store = c10::make_intrusive<c10d::PrefixStore>("gpu/" + name, store),
                        .rank = rank,
                        .size = size,
                        .timeout = timeout});
      });
      on_gpu.push_back(engine.of_device);
    }
  }
  [[nodiscard]] Group group(const std::string& name, int rank, int size) {
    if (size == 1) {
      return {};
    }
    const std::shared_ptr<Engine> engine = host_engine(name, rank, size);
    add_gpu(*engine, name, rank, size);
    return {rank, size, engine, progress};
  }

  // The host waits for a GPU that waits in vain, and is told nothing; c10d's own thread finds out.
  void watch_gpu() {
    if (on_gpu.empty()) {
      return;
    }
    gpu_watch = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        for (const std::shared_ptr<Engine>& engine : on_gpu) {
          if (const std::string fault = fault_of_gpu(*engine); !fault.empty()) {
            watch->end_by_collective(fault);
          }
        }
        std::this_thread::sleep_for(kLook);
      }
    });
  }
};

World& alone() {
  static World world;
  return world;
}

World::World() = default;
World::World(World&&) noexcept = default;
World& World::operator=(World&&) noexcept = default;
World::~World() = default;

World::World(const Launch& launch, Milliseconds timeout, const std::string& identity)
    : launch_(launch) {
  if (launch.size == 1) {
    return;
  }
  if (!has_gloo()) {
    throw UserError(
        "this program was built without Gloo, so it runs in one process only; install libgloo-dev "
        "and build again");
  }
  others_ = std::make_unique<Others>();
  others_->timeout = timeout;
  others_->address = address_towards(launch.host);
  if (launch.local_size < launch.size && is_of_loop(others_->address)) {
    throw UserError("MASTER_ADDR: " + launch.host + " is " + others_->address +
                    " here, which other machines cannot reach; give the address or name by which "
                    "they reach rank 0's machine");
  }
  const Store all_attempts = open_store(launch, timeout);
  others_->ends = "transnormer/" + launch.attempt + "/ended/" + std::to_string(launch.rank);
  // A launcher's store outlives a program that has ended, and another may follow.
  const std::int64_t before = all_attempts->add(others_->ends, 0);
  others_->whole_store = all_attempts;
  others_->store = c10::make_intrusive<c10d::PrefixStore>(
      "transnormer/" + launch.attempt + '/' + std::to_string(before), all_attempts);
  const Arrival self{.member = {.rank = launch.rank,
                                .local_rank = launch.local_rank,
                                .host = machine_name(),
                                .process = ::getpid(),
                                .speaks = launch.launcher != "--nproc" &&
                                          (launch.rank == 1 || launch.local_rank == 0)},
                     .size = launch.size,
                     .identity = identity};
  others_->watch = meet({.store = others_->store,
                         .address = others_->address,
                         .progress = others_->progress,
                         .timeout = timeout},
                        self);
  try {
    others_->all = others_->host_engine("all", launch.rank, launch.size);
    all_ = Group(launch.rank, launch.size, others_->all, others_->progress);
  } catch (const CollectiveError& error) {
    end_by_collective(error.what());
  }
}

void World::leave() {
  if (others_) {
    all_.meet();
    others_->whole_store->add(others_->ends, 1);
    all_.meet();  // the store is rank 0's, perhaps
  }
}

std::string World::name() const {
  return rank_name(rank(), machine_name());
}

std::string World::describe() const {
  const bool spread = launch_.local_size < launch_.size;
  return dist::describe(launch_) + (spread ? ", over the interface of " + others_->address : "");
}

void World::form_groups(const DistributedConfig& config, at::Device device,
                        const EngineMaker& for_gpu) {
  const int share = static_cast<int>(config.sequence_parallel);
  if (size() % share != 0) {
    throw UserError("distributed.sequence_parallel: " + std::to_string(share) +
                    " ranks cannot share a sequence where there " +
                    (size() == 1 ? "is one; start a multiple of "
                                 : "are " + std::to_string(size()) + "; start a multiple of ") +
                    std::to_string(share) + " processes (--nproc)");
  }
  if (!others_) {
    return;
  }
  if (config.backend == DistributedBackend::nccl && device.is_cpu()) {
    throw UserError(
        "distributed.backend: \"nccl\" is for GPUs; on a CPU it is \"gloo\" (or \"auto\")");
  }
  if (config.backend == DistributedBackend::gloo && !device.is_cpu()) {
    throw UserError(
        "distributed.backend: \"gloo\" is for CPUs; on a GPU it is \"nccl\" (or \"auto\")");
  }
  others_->for_gpu = for_gpu;
  others_->add_gpu(*others_->all, "all", rank(), size());
  const int sequences = size() / share;
  const std::string sequence = "sequence/" + std::to_string(rank() / share);
  const std::string samples = "samples/" + std::to_string(rank() % share);
  sequence_ = others_->group(sequence, rank() % share, share);
  samples_ = share == 1 ? all_ : others_->group(samples, rank() / share, sequences);
  others_->watch_gpu();
}

std::string World::word_of_first(const std::function<std::string()>& word, Stops stops) {
  if (!others_) {
    return word();
  }
  const std::string key = "word/" + std::to_string(others_->words++);
  if (is_first()) {
    std::string said = word();
    set(others_->store, key, said);
    return said;
  }
  try {
    return await(others_->store, key, "", std::nullopt, stops);
  } catch (const c10::Error& error) {
    throw CollectiveError(first_line(error.what_without_backtrace()));
  }
}

int World::count_alike(const std::string& text) const {
  const std::vector<std::string> all = all_.gather(text);
  return static_cast<int>(std::ranges::count(all, text));
}

void World::require_same(
    const std::string& value,
    const std::function<std::string(const std::string&, const std::string&)>& difference) const {
  const std::vector<std::string> values = all_.gather(value);
  const auto other = std::ranges::find_if(
      values, [&values](const std::string& each) { return each != values.front(); });
  if (other != values.end()) {  // seen alike by all
    const auto rank = other - values.begin();
    const std::string host = all_.gather(machine_name())[static_cast<std::size_t>(rank)];
    throw UserError(rank_name(static_cast<int>(rank), host) + ": " +
                    difference(values.front(), *other));
  }
}

bool World::report(ExitStatus status, const std::vector<std::string>& faults) {
  return !others_ || !others_->watch || others_->watch->report(status, faults);
}

void World::end_by_collective(const std::string& what) {
  others_->watch->end_by_collective(what);
}

void World::set_last_words(std::function<void()> last_words) {
  if (others_) {
    others_->watch->set_last_words(std::move(last_words));
  }
}

}  // namespace transnormer::dist
