#include "cli/outcome.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>

namespace transnormer::cli {

int fail(ExitStatus status, const std::string& message) {
  std::cerr << "transnormer: " << message << '\n';
  return static_cast<int>(status);
}

int fail_with_exception() {
  try {
    throw;
  } catch (const UserError& error) {
    for (const std::string& fault : error.faults()) {
      fail(ExitStatus::user_fault, fault);
    }
    return static_cast<int>(ExitStatus::user_fault);
  } catch (const std::filesystem::filesystem_error& error) {
    return fail(ExitStatus::user_fault, error.path1().string() + ": " + error.code().message());
  } catch (const StoppedError& error) {
    return fail(error.status(), error.what());
  } catch (const DivergedError& error) {
    return fail(ExitStatus::diverged, error.what());
  } catch (const std::exception& error) {
    return fail(ExitStatus::our_fault, std::string("internal error: ") + error.what());
  }
}

int finish(ExitStatus status) {
  std::cout.flush();
  if (status == ExitStatus::done && (!std::cout || std::ferror(stdout) != 0)) {
    return fail(ExitStatus::user_fault,
                std::string("standard output: cannot be written: ") + std::strerror(errno));
  }
  return static_cast<int>(status);
}

}  // namespace transnormer::cli
