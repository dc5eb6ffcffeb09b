#include "util/home.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "util/error.h"

namespace transnormer {

bool starts_at_home(const std::string& path) {
  return path == "~" || path.starts_with("~/");
}

std::string home_directory() {
  const char* told = std::getenv("HOME");
  if (told != nullptr && told[0] == '/') {
    return told;
  }
  constexpr std::size_t kEnough = std::size_t{1} << 16;
  std::vector<char> buffer(kEnough);
  passwd entry{};
  passwd* found = nullptr;
  const bool is_known =
      ::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found) == 0 &&
      found != nullptr && found->pw_dir != nullptr && found->pw_dir[0] == '/';
  return is_known ? found->pw_dir : "";
}

std::string expand_home(const std::string& path) {
  if (!starts_at_home(path)) {
    return path;
  }
  const std::string home = home_directory();
  if (home.empty()) {
    throw UserError(path +
                    ": \"~\" is the home directory, and none is known; set HOME, or write the path "
                    "out (a file of this name is ./~)");
  }
  return home + path.substr(1);
}

}  // namespace transnormer
