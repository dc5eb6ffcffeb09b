#include "util/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "util/error.h"
#include "util/signal.h"

namespace transnormer {
namespace {

[[noreturn]] void fail(int error) {
  throw UserError(std::string("a second process cannot be started: ") + system_reason(error));
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    fail(errno);
  }
  socket_ = ends[0];
  std::vector<std::string> all{"transnormer"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : all) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  std::signal(SIGCHLD, SIG_DFL);  // ignored, as some starters leave it, no ending could be told
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const int error = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) {
    ::close(socket_);
    fail(error);
  }
}

ChildProcess::~ChildProcess() {
  end();
}

void ChildProcess::end() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
  }
  ::close(socket_);
}

// Whether the socket is, or its other end is gone; asked for a moment.
bool ChildProcess::is_ready(short events) const {
  constexpr int kMilliseconds = 100;
  throw_if_stopped();
  pollfd socket{.fd = socket_, .events = events, .revents = 0};
  return ::poll(&socket, 1, kMilliseconds) > 0;
}

void ChildProcess::wait_for(short events) const {
  while (!is_ready(events)) {
  }
}

bool ChildProcess::send(std::string_view bytes) {
  while (!bytes.empty()) {
    wait_for(POLLOUT);
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno != EINTR && errno != EAGAIN) {
      return false;
    }
  }
  return true;
}

std::string ChildProcess::receive() {
  ::shutdown(socket_, SHUT_WR);
  std::string answer;
  std::array<char, 1 << 16> piece{};
  while (true) {
    wait_for(POLLIN);
    const ssize_t got = ::recv(socket_, piece.data(), piece.size(), MSG_DONTWAIT);
    if (got > 0) {
      answer.append(piece.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      return answer;
    }
  }
}

ChildProcess::Answer ChildProcess::receive_line(std::string& line,
                                                std::chrono::milliseconds within) {
  const auto until = std::chrono::steady_clock::now() + within;
  std::array<char, 1 << 12> piece{};
  std::size_t end = 0;
  while ((end = rest_.find('\n')) == std::string::npos) {
    if (!is_ready(POLLIN)) {
      if (std::chrono::steady_clock::now() >= until) {
        return Answer::late;
      }
      continue;
    }
    const ssize_t got = ::recv(socket_, piece.data(), piece.size(), MSG_DONTWAIT);
    if (got > 0) {
      rest_.append(piece.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      return Answer::ended;
    }
  }
  line = rest_.substr(0, end);
  rest_.erase(0, end + 1);
  return Answer::line;
}

std::string ChildProcess::ending() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return "was ended by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ')';
  }
  const int code = WEXITSTATUS(status);
  return code == 0 ? "" : "ended with status " + std::to_string(code);
}

void follow_parent() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGUSR1, SIG_IGN);
}

}  // namespace transnormer
