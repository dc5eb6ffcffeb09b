// A stand-in for machines that this one is not: loaded before the C library, it lets calls of the
// system fail, ends the process at one, and lets the clock jump.
//
// FAULTY_CALLS="symlink:1 flock:38" makes symlink() fail with error 1 and flock() with error 38.
// "write:28@5+3": from the 5th call on 3 times, the first of them after half of what was to be
// written; "rename:kill@2": the process is killed instead of the second call. Where FAULTY_PATH is
// set, calls count for files only whose path holds it.
// FAULTY_CLOCK="-3600@40": from the 40th time that it is asked for, the time of day is an hour
// less.
#include <dlfcn.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

enum class Fate { as_ever, fails_at_first, fails, killed };

// What is to become of one kind of call.
class Rule {
 public:
  explicit Rule(const char* call) {
    const char* rules = std::getenv("FAULTY_CALLS");
    const std::size_t length = std::strlen(call);
    while (rules != nullptr && *rules != '\0') {
      if (std::strncmp(rules, call, length) == 0 && rules[length] == ':') {
        read(rules + length + 1);
        return;
      }
      rules = std::strchr(rules, ' ');
      rules = rules == nullptr ? nullptr : rules + 1;
    }
  }

  [[nodiscard]] bool is_set() const { return error_ != 0 || kills_; }
  [[nodiscard]] int error() const { return error_; }

  Fate next() {
    const long call = ++calls_;
    if (!is_set() || call < first_ || call >= first_ + times_) {
      return Fate::as_ever;
    }
    if (kills_) {
      return Fate::killed;
    }
    return call == first_ ? Fate::fails_at_first : Fate::fails;
  }

 private:
  // "28@5+3"
  void read(const char* text) {
    kills_ = std::strncmp(text, "kill", 4) == 0;
    error_ = kills_ ? 0 : std::atoi(text);
    while (*text != '\0' && *text != ' ') {
      if (*text == '@') {
        first_ = std::atol(text + 1);
      } else if (*text == '+') {
        times_ = std::atol(text + 1);
      }
      ++text;
    }
  }

  int error_ = 0;
  bool kills_ = false;
  long first_ = 1;
  long times_ = 1L << 60;
  std::atomic<long> calls_{0};
};

bool counts(const char* path) {
  static const char* const part = std::getenv("FAULTY_PATH");
  return part == nullptr || std::strstr(path, part) != nullptr;
}

bool counts(int descriptor) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  return ::readlink(link.c_str(), path.data(), path.size() - 1) > 0 && counts(path.data());
}

// The fate of a call about this file, by path or descriptor.
template <typename File>
Fate fate_of(Rule& rule, File file) {
  if (!rule.is_set() || !counts(file)) {
    return Fate::as_ever;
  }
  const Fate fate = rule.next();
  if (fate == Fate::killed) {
    (void)::kill(::getpid(), SIGKILL);
  }
  if (fate != Fate::as_ever) {
    errno = rule.error();
  }
  return fate;
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

template <typename Function, typename File, typename... Arguments>
int call(Rule& rule, const char* name, File file, Arguments... arguments) {
  return fate_of(rule, file) == Fate::as_ever ? next<Function>(name)(arguments...) : -1;
}

// What the time of day is off by now.
time_t jump() {
  static const char* const text = std::getenv("FAULTY_CLOCK");
  static std::atomic<long> calls{0};
  if (text == nullptr) {
    return 0;
  }
  const char* const from = std::strchr(text, '@');
  return from == nullptr || ++calls >= std::atol(from + 1) ? std::atol(text) : 0;
}

}  // namespace

extern "C" {

int symlink(const char* target, const char* link) noexcept {
  static Rule rule("symlink");
  return call<int (*)(const char*, const char*)>(rule, "symlink", link, target, link);
}

int flock(int descriptor, int operation) noexcept {
  static Rule rule("flock");
  return call<int (*)(int, int)>(rule, "flock", descriptor, descriptor, operation);
}

int fsync(int descriptor) {
  static Rule rule("fsync");
  return call<int (*)(int)>(rule, "fsync", descriptor, descriptor);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static Rule rule("mkdir");
  return call<int (*)(const char*, mode_t)>(rule, "mkdir", path, path, mode);
}

int remove(const char* path) noexcept {
  static Rule rule("remove");
  return call<int (*)(const char*)>(rule, "remove", path, path);
}

int rename(const char* from, const char* to) noexcept {
  static Rule rule("rename");
  return call<int (*)(const char*, const char*)>(rule, "rename", to, from, to);
}

int renameat2(int from_place, const char* from, int to_place, const char* to,
              unsigned int flags) noexcept {
  static Rule rule("renameat2");
  return call<int (*)(int, const char*, int, const char*, unsigned int)>(
      rule, "renameat2", to, from_place, from, to_place, to, flags);
}

ssize_t write(int descriptor, const void* data, size_t size) {
  static Rule rule("write");
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  switch (fate_of(rule, descriptor)) {
    case Fate::as_ever:
      return real(descriptor, data, size);
    case Fate::fails_at_first:
      return size > 1 ? real(descriptor, data, size / 2) : -1;
    default:
      return -1;
  }
}

int clock_gettime(clockid_t clock, struct timespec* now) noexcept {
  static const auto real = next<int (*)(clockid_t, struct timespec*)>("clock_gettime");
  const int failed = real(clock, now);
  if (clock == CLOCK_REALTIME && failed == 0) {
    now->tv_sec += jump();
  }
  return failed;
}

time_t time(time_t* now) noexcept {
  struct timespec seconds {};
  (void)clock_gettime(CLOCK_REALTIME, &seconds);
  if (now != nullptr) {
    *now = seconds.tv_sec;
  }
  return seconds.tv_sec;
}

int gettimeofday(struct timeval* now, void* /*zone*/) noexcept {
  struct timespec exact {};
  (void)clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}
}
