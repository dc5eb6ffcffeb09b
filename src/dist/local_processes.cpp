#include "dist/local_processes.h"

#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "dist/watch.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer::dist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kStarter = "TRANSNORMER_NPROC";  // the starter's process number
// For the others, once one has ended by a fault; and once the first has, whose end they need not
// wait for.
constexpr auto kFarewell = std::chrono::seconds(9);
constexpr auto kLastFarewell = std::chrono::seconds(2);

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> arguments;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find('\0', begin), all.size());
    arguments.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  return arguments;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) {
    pointers.push_back(text.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

// This process's environment, with these variables in the place of those of the same names.
std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('=') + 1);
    if (std::ranges::none_of(variables,
                             [name](const std::string& own) { return own.starts_with(name); })) {
      all.emplace_back(text);
    }
  }
  return all;
}

struct Child {
  int rank = 0;
  pid_t process = -1;
  bool has_ended = false;
  int status = 0;  // as waitpid tells
};

// What a starter hands on.
sigset_t signals_for_all() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    sigaddset(&signals, signal);
  }
  return signals;
}

class Family {
 public:
  Family(int count, int port) {
    for (int rank = 0; rank < count; ++rank) {
      start(rank, count, port);
    }
  }
  ~Family() {
    for (Child& child : children_) {
      if (!child.has_ended) {
        ::kill(child.process, SIGKILL);
        ::waitpid(child.process, &child.status, 0);
      }
    }
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  // A stop is for all; a save is asked for once.
  void hand_on(int signal) {
    for (const Child& child : children_) {
      if (!child.has_ended && (signal != SIGUSR1 || &child == &children_.front())) {
        ::kill(child.process, signal);
      }
    }
  }

  void note_the_ended() {
    for (Child& child : children_) {
      if (!child.has_ended && ::waitpid(child.process, &child.status, WNOHANG) == child.process) {
        child.has_ended = true;
        if (child.status != 0) {
          first_fault_ = first_fault_.value_or(child);
        }
      }
    }
  }

  [[nodiscard]] const Child& first() const { return children_.front(); }
  // That has ended first, of those with another status than 0; if any has.
  [[nodiscard]] const std::optional<Child>& first_fault() const { return first_fault_; }
  [[nodiscard]] bool have_all_ended() const {
    return std::ranges::all_of(children_, &Child::has_ended);
  }

 private:
  void start(int rank, int count, int port) {
    std::vector<std::string> arguments = own_arguments();
    std::vector<std::string> variables = environment_with(
        {std::string(kStarter) + '=' + std::to_string(::getpid()), "RANK=" + std::to_string(rank),
         "WORLD_SIZE=" + std::to_string(count), "LOCAL_RANK=" + std::to_string(rank),
         "LOCAL_WORLD_SIZE=" + std::to_string(count), "MASTER_ADDR=127.0.0.1",
         "MASTER_PORT=" + std::to_string(port), "TORCHELASTIC_USE_AGENT_STORE=True",
         "TORCHELASTIC_RESTART_COUNT=0"});
    // In a group of its own: what a terminal sends is handed on once, by the starter.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    // Until it can answer them: install_signal_handlers().
    const sigset_t blocked = signals_for_all();
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &blocked);
    Child child{.rank = rank};
    const int error = ::posix_spawn(&child.process, "/proc/self/exe", nullptr, &attributes,
                                    pointers_to(arguments).data(), pointers_to(variables).data());
    posix_spawnattr_destroy(&attributes);
    if (error != 0) {
      throw UserError("--nproc: process " + std::to_string(rank + 1) + " of " +
                      std::to_string(count) + " cannot be started: " + system_reason(error));
    }
    children_.push_back(child);
  }

  std::vector<Child> children_;
  std::optional<Child> first_fault_;
};

c10::intrusive_ptr<c10d::TCPStore> open_store() {
  c10d::TCPStoreOptions options;
  options.port = 0;  // any that is free
  options.isServer = true;
  options.waitWorkers = false;
  try {
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  } catch (const std::exception& error) {
    throw UserError("--nproc: the processes have no place to meet: " + first_line(error.what()));
  }
}

int status_of(const Child& child) {
  if (WIFEXITED(child.status)) {
    return WEXITSTATUS(child.status);
  }
  const int signal = WTERMSIG(child.status);
  std::cerr << "transnormer: rank " + std::to_string(child.rank) + " on " + machine_name() +
                   " (process " + std::to_string(child.process) + ") was ended by signal " +
                   std::to_string(signal) + " (" + ::strsignal(signal) + "); the job ends\n";
  return static_cast<int>(ExitStatus::our_fault);
}

}  // namespace

int run_local_processes(int count) {
  // Before any thread: they all inherit it, so that the loop below gets the signals.
  sigset_t signals = signals_for_all();
  sigaddset(&signals, SIGCHLD);
  ::signal(SIGCHLD, SIG_DFL);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const auto store = open_store();
  Family family(count, store->getPort());
  std::optional<Clock::time_point> until;
  while (!family.have_all_ended() && (!until || Clock::now() < *until)) {
    const timespec moment{.tv_sec = 1, .tv_nsec = 0};
    const int signal = ::sigtimedwait(&signals, nullptr, &moment);
    if (signal > 0 && signal != SIGCHLD) {
      family.hand_on(signal);
    }
    family.note_the_ended();
    if (family.first_fault() && !until) {
      until = Clock::now() + kFarewell;
    }
    if (family.first().has_ended) {
      until = std::min(until.value_or(Clock::time_point::max()), Clock::now() + kLastFarewell);
    }
  }
  // Where the first one stands still, or waits for one that never came, the other's end counts.
  return status_of(family.first().has_ended ? family.first() : family.first_fault().value());
}

bool is_local_process() {
  return std::getenv(kStarter) != nullptr;
}

void follow_starter() {
  const char* const starter = std::getenv(kStarter);
  if (starter == nullptr) {
    return;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NAME, "transnormer");          // else it is that of the link it was started by
  if (parse_integer(starter) != ::getppid()) {  // it ended before
    ::_exit(static_cast<int>(ExitStatus::our_fault));
  }
}

}  // namespace transnormer::dist
