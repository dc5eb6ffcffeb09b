#include "cli/outcome.h"

#include <c10/util/Exception.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "ops/runtime/out_of_memory.h"

namespace transnormer::cli {
namespace {

// Without the place in LibTorch's source that stands before it.
std::string_view without_place(std::string_view what) {
  const std::size_t said = what.find("DefaultCPUAllocator");
  return said == std::string_view::npos ? what : what.substr(said);
}

constexpr const char* kAgainstNoMemory =
    "; set a smaller train.micro_batch_size, validation.batch_size, train.global_batch_size, "
    "data.tokens_per_sample or model, or raise the limit on memory, if there is one (ulimit -v)";

// Whoever read stdout had enough. Asked of the system, since errors of writing are long forgotten.
bool reader_has_left() {
  struct pollfd out {
    .fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0
  };
  return ::poll(&out, 1, 0) > 0 && (out.revents & (POLLERR | POLLHUP)) != 0;
}

// Why stdout could not be written, where it could not.
int reason_of_loss = 0;

// 0 once main() returned. A forked process has no main().
std::atomic<pid_t> main_runs_in{0};

[[noreturn]] void explain_termination() {
  std::_Exit(std::current_exception()
                 ? fail_with_exception()
                 : fail(ExitStatus::our_fault, "internal error of an unknown kind"));
}

// A library that exits has told why, but not what is to be done. OpenMP does so where it is refused
// a thread.
void explain_exit() {
  if (main_runs_in == ::getpid()) {
    std::_Exit(fail(ExitStatus::user_fault,
                    "a library ended the program, as it does where a limit of the system is met; "
                    "raise the limits (ulimit -u, -v and -s) or set train.threads lower"));
  }
}

}  // namespace

int fail(ExitStatus status, const std::string& message) {
  std::cerr << "transnormer: " << message << '\n';
  return static_cast<int>(status);
}

Failure failure_of_exception() {
  try {
    throw;
  } catch (const UserError& error) {
    return {ExitStatus::user_fault, error.faults()};
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string path = error.path1().empty() ? "working directory" : error.path1().string();
    return {ExitStatus::user_fault, {path + ": " + system_reason(error.code().value())}};
  } catch (const std::system_error& error) {
    return {ExitStatus::user_fault,
            {"the system refuses a thread: " + error.code().message() +
             "; raise its limits (ulimit -u and -v)"}};
  } catch (const StoppedError& error) {
    return {error.status(), {error.what()}};
  } catch (const DivergedError& error) {
    return {ExitStatus::diverged, {error.what()}};
  } catch (const std::bad_alloc&) {
    return {ExitStatus::user_fault, {std::string("out of memory") + kAgainstNoMemory}};
  } catch (const std::exception& error) {
    const auto* const own = dynamic_cast<const c10::Error*>(&error);
    const std::string what =
        first_line(own != nullptr ? own->what_without_backtrace() : error.what());
    if (ops::is_out_of_memory(error)) {
      return {ExitStatus::user_fault,
              {"out of memory: " + std::string(without_place(what)) + kAgainstNoMemory}};
    }
    return {ExitStatus::our_fault, {"internal error: " + what}};
  } catch (...) {
    return {ExitStatus::our_fault, {"internal error of an unknown kind"}};
  }
}

int fail_with_exception() {
  const Failure failure = failure_of_exception();
  for (const std::string& fault : failure.faults) {
    fail(failure.status, fault);
  }
  return static_cast<int>(failure.status);
}

void explain_every_end() {
  main_runs_in = ::getpid();
  std::set_terminate(explain_termination);
  std::atexit(explain_exit);
}

int returned(int status) {
  main_runs_in = 0;
  return status;
}

bool flush_answer() {
  if (std::cout && !std::cout.flush()) {
    reason_of_loss = errno;
  }
  return static_cast<bool>(std::cout);
}

int finish(ExitStatus status) {
  flush_answer();
  const bool has_arrived = std::cout && std::ferror(stdout) == 0;
  if (status != ExitStatus::done || has_arrived || reader_has_left()) {
    return static_cast<int>(status);
  }
  return fail(ExitStatus::user_fault,
              "standard output: cannot be written: " +
                  system_reason(reason_of_loss != 0 ? reason_of_loss : errno));
}

}  // namespace transnormer::cli
