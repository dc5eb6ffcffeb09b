// Runs the program as its users do: a process with arguments, files and an exit status.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace transnormer {

using Arguments = std::vector<std::string>;

struct Outcome {
  int status = -1;  // -1: killed by a signal
  std::string out;
  std::string err;
};

struct ResourceLimit {
  int resource;  // RLIMIT_..
  std::uint64_t value;
};

struct ProgramOptions {
  std::filesystem::path directory = ".";
  std::string input;
  std::filesystem::path output = {};  // where stdout goes; it is kept for the outcome unless told
  std::vector<ResourceLimit> limits = {};
};

// A started program; its output goes to files in `directory`. Killed when dropped.
class Program {
 public:
  Program(const Arguments& arguments, const ProgramOptions& options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] bool running();
  void send(int signal) const;
  [[nodiscard]] Outcome wait();

 private:
  std::filesystem::path scratch_;
  pid_t pid_ = -1;
  int wait_status_ = 0;
};

[[nodiscard]] Outcome run_program(const Arguments& arguments, const ProgramOptions& options);

[[nodiscard]] std::vector<std::string> lines_of(const std::string& text);

}  // namespace transnormer
