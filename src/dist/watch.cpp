#include "dist/watch.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "log/console.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer::dist {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kBeat = 1000ms;
// From a fault to its verdict: others' words may be on their way, and the first one's own come
// first.
constexpr auto kGrace = 1500ms;
constexpr auto kAnswer = 10s;
constexpr auto kVerdict = 5s;  // of the first one, after which it is at fault itself
constexpr int kSilence = 8;    // seconds after which a machine that answers nothing is lost

constexpr char kBetweenFaults = '\x1f';

[[noreturn]] void fail(const std::string& what, int error) {
  throw UserError("the processes cannot watch each other: " + what + ": " + system_reason(error));
}

// The kernel notices a machine that is gone, though nothing is sent; one that is stopped answers.
void notice_lost_machines(int socket) {
  const auto set = [socket](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, kSilence - 2);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kSilence * 1000);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

class Address {
 public:
  Address(const std::string& host, const std::string& port, int type) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = type;
    const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &list_);
    if (error != 0) {
      throw UserError("MASTER_ADDR: the address of \"" + host +
                      "\" is not known: " + ::gai_strerror(error));
    }
  }
  ~Address() { ::freeaddrinfo(list_); }
  Address(const Address&) = delete;
  Address& operator=(const Address&) = delete;
  [[nodiscard]] const addrinfo& first() const { return *list_; }

 private:
  addrinfo* list_ = nullptr;
};

std::pair<std::string, std::string> address_and_port_of(int socket) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &size);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  ::getnameinfo(reinterpret_cast<sockaddr*>(&name), size, host.data(), host.size(), port.data(),
                port.size(), NI_NUMERICHOST | NI_NUMERICSERV);
  return {host.data(), port.data()};
}

std::string join(const std::vector<std::string>& faults) {
  std::string text;
  for (const std::string& fault : faults) {
    text += (text.empty() ? "" : std::string(1, kBetweenFaults)) + fault;
  }
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(kBetweenFaults, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_late(const std::string& what) {
  return what.find("imed out") != std::string::npos || what.find("imeout") != std::string::npos;
}

}  // namespace

std::string Watch::Member::name() const {
  return rank_name(rank, host);
}

std::string rank_name(int rank, const std::string& host) {
  return "rank " + std::to_string(rank) + " on " + host;
}

std::string machine_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string address_towards(const std::string& host) {
  const Address address(host, "9", SOCK_DGRAM);
  const addrinfo& to = address.first();
  const int socket = ::socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool reaches = socket >= 0 && ::connect(socket, to.ai_addr, to.ai_addrlen) == 0;
  const int error = errno;
  const std::string own = reaches ? address_and_port_of(socket).first : "";
  ::close(socket);
  if (!reaches) {
    throw UserError("MASTER_ADDR: " + host + " cannot be reached: " + system_reason(error));
  }
  return own;
}

Watch::Door::Door(const std::string& address) {
  const Address at(address, "0", SOCK_STREAM);
  descriptor_ = ::socket(at.first().ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor_ < 0 || ::bind(descriptor_, at.first().ai_addr, at.first().ai_addrlen) != 0 ||
      ::listen(descriptor_, SOMAXCONN) != 0) {
    const int error = errno;
    ::close(descriptor_);
    fail("listening at " + address, error);
  }
  place_ = address + ' ' + address_and_port_of(descriptor_).second;
}

Watch::Door::~Door() {
  ::close(descriptor_);
}

struct Watch::State {
  struct Peer {
    Member member;
    int socket = -1;
    std::string received = {};  // of a line that is not whole yet
    std::int64_t begun = 0;     // collectives, by its last word
    bool has_left = false;      // in order
  };

  std::vector<Peer> peers;  // of the first: all others; of another: the first
  Member self;
  std::shared_ptr<const Progress> progress;
  std::chrono::milliseconds timeout{};
  int wake = -1;  // the thread
  std::thread thread;

  std::mutex mutex;  // of all below, and of sending
  std::function<void()> last_words;
  std::optional<Clock::time_point> leaving_since;
  bool reported = false;  // this process has told of its own end
  // Another's fault, told when the grace is over.
  std::optional<Clock::time_point> verdict_at;
  ExitStatus verdict_status = ExitStatus::our_fault;
  std::vector<std::string> verdict;
  bool by_collective = false;  // the verdict is only that a collective failed

  [[nodiscard]] bool is_first() const { return self.rank == 0; }

  static void send(const Peer& peer, const std::string& line) {
    const std::string text = line + '\n';
    // What cannot be sent goes to one who has ended; that is seen by receiving.
    (void)::send(peer.socket, text.data(), text.size(), MSG_NOSIGNAL);
  }
  void send_all(const std::string& line) const {
    for (const Peer& peer : peers) {
      if (!peer.has_left) {
        send(peer, line);
      }
    }
  }

  // Ends this process now; with `mutex` held.
  [[noreturn]] void end(ExitStatus status, const std::vector<std::string>& faults) {
    if (is_first()) {
      for (const std::string& fault : faults) {
        log::error(fault);
      }
      send_all("end " + std::to_string(static_cast<int>(status)));
      if (last_words) {
        last_words();
      }
    }
    ::_exit(static_cast<int>(status));
  }

  void decide_later(ExitStatus status, std::vector<std::string> faults, bool collective) {
    if (verdict_at && !by_collective) {
      return;  // the first word counts
    }
    verdict_at = verdict_at.value_or(Clock::now() + kGrace);
    verdict_status = status;
    verdict = std::move(faults);
    by_collective = collective;
  }

  // Who a collective failed for: one that has begun fewer than others.
  [[nodiscard]] std::string culprit(const std::string& what) const {
    const Peer* last = nullptr;
    std::int64_t most = progress->begun;
    for (const Peer& peer : peers) {
      most = std::max(most, peer.begun);
      if (last == nullptr || peer.begun < last->begun) {
        last = &peer;
      }
    }
    const bool is_self = last == nullptr || progress->begun < last->begun;
    const std::int64_t least = is_self ? progress->begun.load() : last->begun;
    if (least == most) {
      return "the processes can no longer talk to each other: " + what;
    }
    return (is_self ? self : last->member).name() + fault_of_collective(what);
  }
  // Of the one that it failed for.
  [[nodiscard]] std::string fault_of_collective(const std::string& what) const {
    return is_late(what) ? " has not answered for " +
                               format_significant(static_cast<double>(timeout.count()) / 1000) +
                               " s (distributed.timeout_s); the job ends"
                         : " no longer takes part: " + what;
  }

  void on_line(Peer& peer, const std::string& line) {
    const std::string word = line.substr(0, line.find(' '));
    const std::string rest = line.size() > word.size() ? line.substr(word.size() + 1) : "";
    if (word == "beat") {
      peer.begun = parse_integer(rest).value_or(peer.begun);
    } else if (word == "bye") {
      peer.has_left = true;
    } else if (word == "end") {
      end(static_cast<ExitStatus>(parse_integer(rest).value_or(1)), {});
    } else if (word == "lost") {
      decide_later(ExitStatus::our_fault, {rest}, true);
    } else if (word == "fault") {
      const std::size_t space = rest.find(' ');
      std::vector<std::string> faults = split(rest.substr(space + 1));
      for (std::string& fault : faults) {
        fault = peer.member.name() + ": " + fault;
      }
      decide_later(static_cast<ExitStatus>(parse_integer(rest.substr(0, space)).value_or(1)),
                   std::move(faults), false);
    }
  }

  void on_end_of(Peer& peer) {
    ::close(std::exchange(peer.socket, -1));
    if (peer.has_left || leaving_since || reported) {
      peer.has_left = true;
      return;
    }
    peer.has_left = true;
    const std::string fault = peer.member.name() + " (process " +
                              std::to_string(peer.member.process) +
                              ") has ended without a word, killed or lost; the job ends";
    if (is_first()) {
      // A fault of its own that it told before counts more.
      decide_later(ExitStatus::our_fault, {fault}, false);
      return;
    }
    // Nobody is there to speak for all.
    if (const auto status = stop_requested()) {
      ::_exit(static_cast<int>(*status));
    }
    if (self.speaks) {
      std::cerr << "transnormer: " + self.name() + ": " + fault + '\n';
    }
    ::_exit(static_cast<int>(ExitStatus::our_fault));
  }

  void receive(Peer& peer) {
    std::array<char, 4096> piece{};
    const ssize_t got = ::recv(peer.socket, piece.data(), piece.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) {
      return;
    }
    if (got <= 0) {
      on_end_of(peer);
      return;
    }
    peer.received.append(piece.data(), static_cast<std::size_t>(got));
    std::size_t end_of_line = 0;
    while ((end_of_line = peer.received.find('\n')) != std::string::npos) {
      const std::string line = peer.received.substr(0, end_of_line);
      peer.received.erase(0, end_of_line + 1);
      on_line(peer, line);
    }
  }

  // The thread.
  void run() {
    while (true) {
      std::vector<pollfd> sockets{{.fd = wake, .events = POLLIN, .revents = 0}};
      for (const Peer& peer : peers) {
        sockets.push_back({.fd = peer.socket, .events = POLLIN, .revents = 0});
      }
      (void)::poll(sockets.data(), sockets.size(), static_cast<int>(kBeat.count() / 4));
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < peers.size(); ++i) {
        if (peers[i].socket >= 0 && sockets[i + 1].revents != 0) {
          receive(peers[i]);
        }
      }
      if (leaving_since && (!is_first() || std::ranges::all_of(peers, &Peer::has_left) ||
                            Clock::now() > *leaving_since + kAnswer)) {
        return;
      }
      if (verdict_at && Clock::now() >= *verdict_at && !reported && !leaving_since) {
        if (by_collective) {
          verdict = {culprit(verdict.front())};
        }
        end(verdict_status, verdict);
      }
      beat();
    }
  }

  Clock::time_point next_beat{};
  void beat() {
    if (is_first() || Clock::now() < next_beat) {
      return;
    }
    next_beat = Clock::now() + kBeat;
    send_all("beat " + std::to_string(progress->begun));
  }

  void start() {
    wake = ::eventfd(0, EFD_CLOEXEC);
    thread = std::thread([this] { run(); });
  }
  void wake_up() const {
    const std::uint64_t one = 1;
    (void)!::write(wake, &one, sizeof one);
  }
};

Watch::Watch(std::unique_ptr<Door> door, std::vector<Member> members,
             std::shared_ptr<const Progress> progress, std::chrono::milliseconds timeout)
    : state_(std::make_unique<State>()) {
  state_->self = members.front();
  state_->progress = std::move(progress);
  state_->timeout = timeout;
  for (std::size_t rank = 1; rank < members.size(); ++rank) {
    state_->peers.push_back({.member = std::move(members[rank])});
  }
  const auto until = Clock::now() + kAnswer;
  for (std::size_t come = 0; come < state_->peers.size();) {
    throw_if_stopped();
    pollfd socket{.fd = door->descriptor(), .events = POLLIN, .revents = 0};
    if (::poll(&socket, 1, 100) <= 0) {
      if (Clock::now() > until) {
        throw UserError("the processes cannot watch each other: not all of them come to " +
                        door->place() + "; is a firewall between the machines?");
      }
      continue;
    }
    const int peer = ::accept4(door->descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
    std::int32_t rank = 0;
    pollfd greeting{.fd = peer, .events = POLLIN, .revents = 0};
    if (peer < 0 || ::poll(&greeting, 1, 2000) <= 0 ||
        ::recv(peer, &rank, sizeof rank, MSG_WAITALL) != sizeof rank || rank < 1 ||
        rank > std::ssize(state_->peers) ||
        state_->peers[static_cast<std::size_t>(rank) - 1].socket >= 0) {
      ::close(peer);  // a stranger
      continue;
    }
    notice_lost_machines(peer);
    state_->peers[static_cast<std::size_t>(rank) - 1].socket = peer;
    ++come;
  }
  state_->start();
}

Watch::Watch(const std::string& place, const Member& self, const Member& first,
             std::shared_ptr<const Progress> progress, std::chrono::milliseconds timeout)
    : state_(std::make_unique<State>()) {
  state_->self = self;
  state_->progress = std::move(progress);
  state_->timeout = timeout;
  const std::size_t space = place.find(' ');
  const Address to(place.substr(0, space), place.substr(space + 1), SOCK_STREAM);
  const int socket = ::socket(to.first().ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto rank = static_cast<std::int32_t>(self.rank);
  if (socket < 0 || ::connect(socket, to.first().ai_addr, to.first().ai_addrlen) != 0 ||
      ::send(socket, &rank, sizeof rank, MSG_NOSIGNAL) != sizeof rank) {
    const int error = errno;
    ::close(socket);
    fail("rank 0 at " + place + " is not reached", error);
  }
  notice_lost_machines(socket);
  state_->peers.push_back({.member = first, .socket = socket});
  state_->start();
}

Watch::~Watch() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->leaving_since = Clock::now();
    state_->send_all("bye");
  }
  state_->wake_up();
  state_->thread.join();
  for (const State::Peer& peer : state_->peers) {
    if (peer.socket >= 0) {
      ::close(peer.socket);
    }
  }
  ::close(state_->wake);
}

void Watch::set_last_words(std::function<void()> last_words) {
  const std::lock_guard lock(state_->mutex);
  state_->last_words = std::move(last_words);
}

bool Watch::report(ExitStatus status, const std::vector<std::string>& faults) {
  {
    const std::lock_guard lock(state_->mutex);
    const std::string number = std::to_string(static_cast<int>(status));
    if (state_->is_first()) {
      state_->reported = true;
      state_->send_all("end " + number);
      return true;
    }
    if (state_->peers.front().has_left) {
      return false;
    }
    state_->send_all("fault " + number + ' ' + join(faults));
  }
  std::this_thread::sleep_for(kAnswer);  // the thread ends the process when the first one says so
  return false;
}

void Watch::end_by_collective(const std::string& what) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->is_first()) {
      state_->decide_later(ExitStatus::our_fault, {what}, true);
    } else {
      state_->send_all("lost " + join({what}));
    }
  }
  state_->wake_up();
  if (state_->is_first()) {
    std::this_thread::sleep_for(kAnswer);  // the thread ends the process, with last words before
  } else {
    std::this_thread::sleep_for(kVerdict);
    if (state_->self.speaks || state_->self.rank == 1) {
      std::cerr << "transnormer: " + state_->self.name() + ": " +
                       state_->peers.front().member.name() + state_->fault_of_collective(what) +
                       '\n';
    }
  }
  ::_exit(static_cast<int>(ExitStatus::our_fault));
}

}  // namespace transnormer::dist
