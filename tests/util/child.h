// Work in a process of its own, whose settings and end concern no other test.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace transnormer::test {

// What `body` gives, or -1 where a signal ended it. Nothing is cleaned up after it.
inline int status_of_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace transnormer::test
