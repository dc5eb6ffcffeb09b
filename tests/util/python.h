// Runs the Python of the set-up, to check files against other people's readers. Needs the
// definition TRANSNORMER_PYTHON.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace transnormer::test {

struct PythonResult {
  int status = -1;
  std::string output;  // stdout
};

// `arguments` as a shell reads them: a script and what it gets, or -c "..".
inline PythonResult run_python(const std::string& arguments) {
  PythonResult result;
  const std::string command = "'" TRANSNORMER_PYTHON "' " + arguments;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) {
    return result;
  }
  char buffer[4096];
  for (std::size_t got = 0; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    result.output.append(buffer, got);
  }
  const int status = ::pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

inline bool python_has(const std::string& module) {
  return run_python("-c 'import importlib.util as u, sys; sys.exit(u.find_spec(\"" + module +
                    "\") is None)' 2>/dev/null")
             .status == 0;
}

}  // namespace transnormer::test
