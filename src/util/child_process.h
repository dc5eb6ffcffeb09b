// Work in a process of its own, for libraries that may end the process or hold it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace transnormer {

// This very program, started once more with other arguments. What is sent arrives at its standard
// input, what it writes to its standard output is the answer; its stderr goes nowhere. Killed when
// dropped. All that waits throws StoppedError when a signal asks to stop.
class ChildProcess {
 public:
  // Throws UserError where the system starts no process.
  explicit ChildProcess(const std::vector<std::string>& arguments);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // False where the process has ended: receive() and ending() tell.
  bool send(std::string_view bytes);
  // Ends its input, and gives all that it answers until its own end.
  [[nodiscard]] std::string receive();
  enum class Answer { line, ended, late };
  // The next line of its answer, without its end, as it comes; `ended` where there is none any
  // more, `late` where none comes within that time.
  [[nodiscard]] Answer receive_line(std::string& line, std::chrono::milliseconds within);
  // How it ended after that: empty where well, else as "was ended by signal 11 (..)".
  [[nodiscard]] std::string ending();

 private:
  [[nodiscard]] bool is_ready(short events) const;
  void wait_for(short events) const;
  void end();

  int socket_ = -1;
  std::string rest_;  // of what came, behind the last line
  pid_t pid_ = -1;
};

// Called by the process that was started: signals of a terminal are left to the one that started
// it, and its death ends this one, too.
void follow_parent();

}  // namespace transnormer
