// A stand-in for file systems that this machine does not have: loaded before the C library, it lets
// calls of the system fail. FAULTY_CALLS="symlink:1 flock:38" makes symlink() fail with error 1 and
// flock() with error 38.
#include <dlfcn.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace {

// The error that a call is to fail with, or 0.
int fault_of(const char* call) {
  const char* faults = std::getenv("FAULTY_CALLS");
  const std::size_t length = std::strlen(call);
  while (faults != nullptr && *faults != '\0') {
    if (std::strncmp(faults, call, length) == 0 && faults[length] == ':') {
      return std::atoi(faults + length + 1);
    }
    faults = std::strchr(faults, ' ');
    faults = faults == nullptr ? nullptr : faults + 1;
  }
  return 0;
}

template <typename Function, typename... Arguments>
int call(const char* name, Arguments... arguments) {
  if (const int fault = fault_of(name)) {
    errno = fault;
    return -1;
  }
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name))(arguments...);
}

}  // namespace

extern "C" {

int symlink(const char* target, const char* link) noexcept {
  return call<int (*)(const char*, const char*)>("symlink", target, link);
}

int flock(int descriptor, int operation) noexcept {
  return call<int (*)(int, int)>("flock", descriptor, operation);
}

int fsync(int descriptor) {
  return call<int (*)(int)>("fsync", descriptor);
}

int renameat2(int from_place, const char* from, int to_place, const char* to,
              unsigned int flags) noexcept {
  return call<int (*)(int, const char*, int, const char*, unsigned int)>("renameat2", from_place,
                                                                         from, to_place, to, flags);
}
}
