#include "cli/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace transnormer {
namespace {

std::string slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::filesystem::path make_scratch() {
  std::string name = (std::filesystem::temp_directory_path() / "transnormer-io-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error("no temporary directory");
  }
  return name;
}

// A started program takes over the limits of who starts it.
class LimitsFor {
 public:
  explicit LimitsFor(const std::vector<ResourceLimit>& limits) {
    for (const ResourceLimit& limit : limits) {
      struct rlimit former {};
      ::getrlimit(limit.resource, &former);
      former_.emplace_back(limit.resource, former);
      const struct rlimit lower { .rlim_cur = limit.value, .rlim_max = former.rlim_max };
      ::setrlimit(limit.resource, &lower);
    }
  }
  ~LimitsFor() {
    for (const auto& [resource, limit] : former_) {
      ::setrlimit(resource, &limit);
    }
  }
  LimitsFor(const LimitsFor&) = delete;
  LimitsFor& operator=(const LimitsFor&) = delete;

 private:
  std::vector<std::pair<int, struct rlimit>> former_;
};

}  // namespace

Program::Program(const Arguments& arguments, const ProgramOptions& options)
    : scratch_(make_scratch()) {
  std::ofstream(scratch_ / "in", std::ios::binary) << options.input;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int kWrite = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, 0, (scratch_ / "in").c_str(), O_RDONLY, 0);
  const std::filesystem::path out = options.output.empty() ? scratch_ / "out" : options.output;
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), kWrite, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, (scratch_ / "err").c_str(), kWrite, 0600);
  posix_spawn_file_actions_addchdir_np(&actions, options.directory.c_str());
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);  // a limit on files counts all of them

  Arguments all{"transnormer"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : all) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  const LimitsFor limits(options.limits);
  const int failed =
      ::posix_spawn(&pid_, TRANSNORMER_BINARY, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    throw std::runtime_error(std::string("cannot start ") + TRANSNORMER_BINARY);
  }
}

Program::~Program() {
  if (running()) {
    send(SIGKILL);
    (void)::waitpid(pid_, &wait_status_, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(scratch_, ignored);
}

bool Program::running() {
  if (pid_ > 0 && ::waitpid(pid_, &wait_status_, WNOHANG) == pid_) {
    pid_ = -1;
  }
  return pid_ > 0;
}

void Program::send(int signal) const {
  if (pid_ > 0) {
    (void)::kill(pid_, signal);
  }
}

Outcome Program::wait() {
  if (pid_ > 0) {
    (void)::waitpid(pid_, &wait_status_, 0);
    pid_ = -1;
  }
  return {WIFEXITED(wait_status_) ? WEXITSTATUS(wait_status_) : -1, slurp(scratch_ / "out"),
          slurp(scratch_ / "err")};
}

Outcome run_program(const Arguments& arguments, const ProgramOptions& options) {
  return Program(arguments, options).wait();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace transnormer
