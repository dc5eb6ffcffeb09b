#include "util/signal.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace transnormer {
namespace {

std::atomic<int> stop_signal{0};
std::atomic<bool> save_asked{false};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  if (number == SIGUSR1) {
    save_asked = true;
    return;
  }
  if (number == SIGINT && stop_signal == SIGINT) {
    ::_exit(static_cast<int>(ExitStatus::interrupted));
  }
  stop_signal = number;
}

}  // namespace

void outlive_refused_writes() {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGPIPE, SIGXFSZ}) {
    sigaction(number, &action, nullptr);
  }
}

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigset_t answered;
  sigemptyset(&answered);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {
    sigaction(number, &action, nullptr);
    sigaddset(&answered, number);
  }
  ::pthread_sigmask(SIG_UNBLOCK, &answered, nullptr);
}

std::optional<ExitStatus> stop_requested() {
  switch (stop_signal.load()) {
    case SIGINT:
      return ExitStatus::interrupted;
    case SIGTERM:
      return ExitStatus::terminated;
    default:
      return std::nullopt;
  }
}

void throw_if_stopped() {
  if (const std::optional<ExitStatus> status = stop_requested()) {
    throw StoppedError(*status);
  }
}

bool take_save_request() {
  return save_asked.exchange(false);
}

}  // namespace transnormer
