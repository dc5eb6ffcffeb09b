#include "dist/world.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "dist/engine.h"
#include "dist/gloo.h"
#include "dist/watch.h"
#include "log/console.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer::dist {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using Store = c10::intrusive_ptr<c10d::Store>;
using namespace std::chrono_literals;

constexpr auto kLook = 50ms;        // between two looks at the store
constexpr auto kPatience = 5000ms;  // after which people are told who is waited for

// What each process says of itself, under its rank.
struct Arrival {
  Watch::Member member;
  int size = 1;
  std::string identity;

  [[nodiscard]] std::string text() const {
    return nlohmann::json{{"rank", member.rank}, {"local_rank", member.local_rank},
                          {"host", member.host}, {"process", member.process},
                          {"size", size},        {"identity", identity}}
        .dump();
  }
  static Arrival of(const std::string& text) {
    const auto json = nlohmann::json::parse(text);
    return {.member = {.rank = json.at("rank"),
                       .local_rank = json.at("local_rank"),
                       .host = json.at("host"),
                       .process = json.at("process")},
            .size = json.at("size"),
            .identity = json.at("identity")};
  }
};

std::string key_of(int rank) {
  return "arrived/" + std::to_string(rank);
}

std::string seconds_text(Milliseconds time) {
  return format_significant(static_cast<double>(time.count()) / 1000) + " s";
}

std::string get(const Store& store, const std::string& key) {
  const std::vector<std::uint8_t> bytes = store->get(key);
  return {bytes.begin(), bytes.end()};
}

void set(const Store& store, const std::string& key, const std::string& value) {
  store->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
}

bool is_of_loop(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

// Nothing while the key is not there.
std::optional<std::string> look(const Store& store, const std::string& key) {
  return store->check({key}) ? std::optional(get(store, key)) : std::nullopt;
}

bool is_taken(const std::string& what) {
  return what.find("ddress already in use") != std::string::npos ||
         what.find("EADDRINUSE") != std::string::npos;
}

c10d::TCPStoreOptions store_options(const Launch& launch, bool serves, Milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(launch.port);
  options.isServer = serves;
  options.waitWorkers = false;
  options.timeout = timeout;
  return options;
}

std::string place_of(const Launch& launch) {
  return launch.host + ':' + std::to_string(launch.port);
}

Store serve(const Launch& launch) {
  try {
    return c10::make_intrusive<c10d::TCPStore>(launch.host, store_options(launch, true, 10s));
  } catch (const std::exception& error) {
    if (is_taken(error.what())) {
      throw UserError("MASTER_PORT: port " + std::to_string(launch.port) +
                      " is in use on this machine; set MASTER_PORT to another one, the same for "
                      "all processes");
    }
    throw UserError("the processes cannot meet at " + place_of(launch) + ": " +
                    first_line(error.what()) + "; rank 0 must run on the machine of MASTER_ADDR");
  }
}

Store call(const Launch& launch, Milliseconds timeout) {
  const auto until = Clock::now() + timeout;
  while (true) {
    throw_if_stopped();
    try {
      return c10::make_intrusive<c10d::TCPStore>(launch.host, store_options(launch, false, 1s));
    } catch (const std::exception&) {
      if (Clock::now() > until) {
        throw UserError("rank " + std::to_string(launch.rank) + " on " + machine_name() +
                        ": nobody answers at " + place_of(launch) + " for " +
                        seconds_text(timeout) +
                        " (distributed.timeout_s); is rank 0 running, are MASTER_ADDR and "
                        "MASTER_PORT those of its machine?");
      }
    }
  }
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  constexpr std::size_t kMost = 8;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text + (ranks.size() > kMost ? " and others" : "");
}

// The first process: waits for all, and judges whether they fit together.
std::vector<Arrival> receive(const Store& store, const Arrival& self, Milliseconds timeout) {
  const auto began = Clock::now();
  bool told = false;
  std::vector<std::string> texts(static_cast<std::size_t>(self.size));
  while (true) {
    std::vector<int> missing;
    for (int rank = 0; rank < self.size; ++rank) {
      std::string& text = texts[static_cast<std::size_t>(rank)];
      if (text.empty()) {
        text = look(store, key_of(rank)).value_or("");
      }
      if (text.empty()) {
        missing.push_back(rank);
      }
    }
    if (missing.empty()) {
      break;
    }
    throw_if_stopped();
    const auto waited = Clock::now() - began;
    if (waited > timeout) {
      throw UserError(list_of(missing) + " of " + std::to_string(self.size) +
                      (missing.size() == 1 ? " has" : " have") + " not come within " +
                      seconds_text(timeout) +
                      " (distributed.timeout_s); were as many processes started, with the same "
                      "number of them, MASTER_ADDR and MASTER_PORT?");
    }
    if (!told && waited > kPatience) {
      told = true;
      log::info("waiting for " + list_of(missing) + " of " + std::to_string(self.size));
    }
    std::this_thread::sleep_for(kLook);
  }
  std::vector<Arrival> arrivals;
  for (const std::string& text : texts) {
    arrivals.push_back(Arrival::of(text));
    const Arrival& other = arrivals.back();
    if (other.size != self.size) {
      throw UserError(other.member.name() + " counts " + std::to_string(other.size) +
                      " processes, rank 0 counts " + std::to_string(self.size) +
                      "; start all with the same number");
    }
    if (other.identity != self.identity) {
      throw UserError(other.member.name() + " runs another program than rank 0: " + other.identity +
                      " there, " + self.identity + " here; start the same build everywhere");
    }
  }
  return arrivals;
}

std::string await(const Store& store, const std::string& key, const std::string& absent,
                  std::optional<Milliseconds> timeout, Stops stops = Stops::heeded) {
  const auto began = Clock::now();
  while (true) {
    if (auto text = look(store, key)) {
      return *std::move(text);
    }
    if (stops == Stops::heeded) {
      throw_if_stopped();
    }
    if (timeout && Clock::now() - began > *timeout) {
      throw UserError(absent);
    }
    std::this_thread::sleep_for(kLook);
  }
}

// Before they watch each other.
[[noreturn]] void end_without_first(const Watch::Member& self) {
  if (self.speaks) {
    std::cerr << "transnormer: " + self.name() +
                     ": rank 0 has ended before all had met; the job ends\n";
  }
  ::_exit(static_cast<int>(ExitStatus::our_fault));
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

struct World::Meeting {
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

  void meet(const Launch& launch, const Arrival& self) {
    if (store->add("taken/" + std::to_string(launch.rank), 1) > 1) {
      throw UserError(self.member.name() +
                      ": another process has this rank already; each needs its "
                      "own, from 0 to one less than their number");
    }
    set(store, key_of(launch.rank), self.text());
    if (launch.rank == 0) {
      open(launch, self);
    } else {
      join(launch, self);
    }
  }

  // Of the first process.
  void open(const Launch& launch, const Arrival& self) {
    std::vector<Watch::Member> members;
    try {
      for (Arrival& arrival : receive(store, self, timeout)) {
        members.push_back(std::move(arrival.member));
      }
    } catch (const std::exception&) {
      set(store, "start", "the first process found a fault");
      wait_until_heard(launch.size);
      throw;
    }
    auto door = std::make_unique<Watch::Door>(address);
    set(store, "place", door->place());
    set(store, "first", self.text());
    set(store, "start", std::to_string(launch.size));
    watch = std::make_unique<Watch>(std::move(door), std::move(members), progress, timeout);
  }

  // The store ends with the first process, so those who have come must know by then.
  void wait_until_heard(int size) const {
    const auto until = Clock::now() + 2s;
    std::int64_t others = 0;
    for (int rank = 1; rank < size; ++rank) {
      others += store->check({key_of(rank)}) ? 1 : 0;
    }
    while (store->add("heard", 0) < others && Clock::now() < until) {
      std::this_thread::sleep_for(kLook);
    }
  }

  // Of the others.
  void join(const Launch& launch, const Arrival& self) {
    const std::string start = await(store, "start",
                                    self.member.name() + ": rank 0 has not come within " +
                                        seconds_text(timeout) + " (distributed.timeout_s)",
                                    timeout + kPatience);
    store->add("heard", 1);
    const auto size = parse_integer(start);
    if (!size) {
      throw FirstHasFault();
    }
    if (*size != launch.size) {
      throw UserError(self.member.name() + " counts " + std::to_string(launch.size) +
                      " processes, rank 0 counts " + start + "; start all with the same number");
    }
    watch = std::make_unique<Watch>(get(store, "place"), self.member,
                                    Arrival::of(get(store, "first")).member, progress, timeout);
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
  meeting_ = std::make_unique<Meeting>();
  meeting_->timeout = timeout;
  meeting_->address = address_towards(launch.host);
  if (launch.local_size < launch.size && is_of_loop(meeting_->address)) {
    throw UserError("MASTER_ADDR: " + launch.host + " is " + meeting_->address +
                    " here, which other machines cannot reach; give the address or name by which "
                    "they reach rank 0's machine");
  }
  const bool serves = launch.rank == 0 && !launch.store_is_there;
  const Store all_attempts = serves ? serve(launch) : call(launch, timeout);
  meeting_->ends = "transnormer/" + launch.attempt + "/ended/" + std::to_string(launch.rank);
  // A launcher's store outlives a program that has ended, and another may follow.
  const std::int64_t before = all_attempts->add(meeting_->ends, 0);
  meeting_->whole_store = all_attempts;
  meeting_->store = c10::make_intrusive<c10d::PrefixStore>(
      "transnormer/" + launch.attempt + '/' + std::to_string(before), all_attempts);
  const Arrival self{.member = {.rank = launch.rank,
                                .local_rank = launch.local_rank,
                                .host = machine_name(),
                                .process = ::getpid(),
                                .speaks = launch.launcher != "--nproc" &&
                                          (launch.rank == 1 || launch.local_rank == 0)},
                     .size = launch.size,
                     .identity = identity};
  try {
    meeting_->meet(launch, self);
  } catch (const c10::Error&) {  // of the store, which a launcher keeps, or the first process
    if (launch.rank == 0) {
      throw;
    }
    end_without_first(self.member);
  }
  try {
    meeting_->all = meeting_->host_engine("all", launch.rank, launch.size);
    all_ = Group(launch.rank, launch.size, meeting_->all, meeting_->progress);
  } catch (const CollectiveError& error) {
    end_by_collective(error.what());
  }
  on_device_ = all_;
}

void World::leave() {
  if (meeting_) {
    all_.meet();
    meeting_->whole_store->add(meeting_->ends, 1);
    all_.meet();  // the store is rank 0's, perhaps
  }
}

std::string World::name() const {
  return Watch::Member{
      .rank = rank(), .local_rank = 0, .host = machine_name(), .process = 0, .speaks = false}
      .name();
}

std::string World::describe() const {
  const bool spread = launch_.local_size < launch_.size;
  return dist::describe(launch_) + (spread ? ", over the interface of " + meeting_->address : "");
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
  if (!meeting_) {
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
  meeting_->for_gpu = for_gpu;
  meeting_->add_gpu(*meeting_->all, "all", rank(), size());
  const int sequences = size() / share;
  const std::string sequence = "sequence/" + std::to_string(rank() / share);
  const std::string samples = "samples/" + std::to_string(rank() % share);
  sequence_ = meeting_->group(sequence, rank() % share, share);
  samples_ = share == 1 ? all_ : meeting_->group(samples, rank() / share, sequences);
  meeting_->watch_gpu();
}

std::string World::word_of_first(const std::function<std::string()>& word, Stops stops) {
  if (!meeting_) {
    return word();
  }
  const std::string key = "word/" + std::to_string(meeting_->words++);
  if (is_first()) {
    std::string said = word();
    set(meeting_->store, key, said);
    return said;
  }
  try {
    return await(meeting_->store, key, "", std::nullopt, stops);
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
  const std::vector<std::string> hosts = all_.gather(machine_name());
  for (std::size_t rank = 1; rank < values.size(); ++rank) {
    if (values[rank] != values[0]) {
      throw UserError("rank " + std::to_string(rank) + " on " + hosts[rank] + ": " +
                      difference(values[0], values[rank]));
    }
  }
}

bool World::report(ExitStatus status, const std::vector<std::string>& faults) {
  return !meeting_ || !meeting_->watch || meeting_->watch->report(status, faults);
}

void World::end_by_collective(const std::string& what) {
  meeting_->watch->end_by_collective(what);
}

void World::set_last_words(std::function<void()> last_words) {
  if (meeting_) {
    meeting_->watch->set_last_words(std::move(last_words));
  }
}

}  // namespace transnormer::dist
