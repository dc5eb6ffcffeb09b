// The exit statuses of the program, and the exceptions that lead to them.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace transnormer {

enum class ExitStatus : int {
  done = 0,
  our_fault = 1,
  user_fault = 2,
  diverged = 3,
  save_failed = 4,
  interrupted = 130,  // SIGINT
  terminated = 143,   // SIGTERM
};

// What an error number of the system means, and the limit that is to be raised where it is one.
[[nodiscard]] std::string system_reason(int error_number);

// Something the user can put right: an option, a config, data, a checkpoint, permissions, space.
// Each fault is one line that says what is wrong, where, and what would be right.
class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& fault) : UserError(std::vector<std::string>{fault}) {}
  explicit UserError(std::vector<std::string> faults);

  [[nodiscard]] const std::vector<std::string>& faults() const { return faults_; }

 private:
  std::vector<std::string> faults_;
};

// A file could not be written: no space, no permission, gone. At start-up it is the user's fault;
// while training runs it is logged and training goes on.
class WriteError : public UserError {
 public:
  using UserError::UserError;
};

// A signal asked to stop where there is nothing to save. What was begun is undone on the way out.
class StoppedError : public std::runtime_error {
 public:
  explicit StoppedError(ExitStatus status);
  [[nodiscard]] ExitStatus status() const { return status_; }

 private:
  ExitStatus status_;
};

// Training met more non-finite updates than the config allows, or losses far above guessing.
class DivergedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What LibTorch throws goes on with where it was thrown: what is for people stands before that.
[[nodiscard]] std::string first_line(const std::string& text);

}  // namespace transnormer
