#include "dist/meeting.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "log/console.h"
#include "util/signal.h"
#include "util/units.h"

namespace transnormer::dist {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using namespace std::chrono_literals;

constexpr auto kPatience = 5000ms;  // after which people are told who is waited for

std::string text_of(const Arrival& arrival) {
  const Watch::Member& member = arrival.member;
  return nlohmann::json{{"rank", member.rank},  {"local_rank", member.local_rank},
                        {"host", member.host},  {"process", member.process},
                        {"size", arrival.size}, {"identity", arrival.identity}}
      .dump();
}

Arrival arrival_of(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return {.member = {.rank = json.at("rank"),
                     .local_rank = json.at("local_rank"),
                     .host = json.at("host"),
                     .process = json.at("process")},
          .size = json.at("size"),
          .identity = json.at("identity")};
}

std::string key_of(int rank) {
  return "arrived/" + std::to_string(rank);
}

std::string seconds_text(Milliseconds time) {
  return format_significant(static_cast<double>(time.count()) / 1000) + " s";
}

std::string get(const Store& store, const std::string& key) {
  const std::vector<std::uint8_t> bytes = store->get(key);
  return {bytes.begin(), bytes.end()};
}

// Nothing while the key is not there.
std::optional<std::string> look(const Store& store, const std::string& key) {
  return store->check({key}) ? std::optional(get(store, key)) : std::nullopt;
}

bool is_taken(const std::string& what) {
  return what.find("ddress already in use") != std::string::npos ||
         what.find("EADDRINUSE") != std::string::npos;
}

c10d::TCPStoreOptions store_options(const Launch& launch, bool serves, Milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(launch.port);
  options.isServer = serves;
  options.waitWorkers = false;
  options.timeout = timeout;
  return options;
}

std::string place_of(const Launch& launch) {
  return launch.host + ':' + std::to_string(launch.port);
}

Store serve(const Launch& launch) {
  try {
    return c10::make_intrusive<c10d::TCPStore>(launch.host, store_options(launch, true, 10s));
  } catch (const std::exception& error) {
    if (is_taken(error.what())) {
      throw UserError("MASTER_PORT: port " + std::to_string(launch.port) +
                      " is in use on this machine; set MASTER_PORT to another one, the same for "
                      "all processes");
    }
    throw UserError("the processes cannot meet at " + place_of(launch) + ": " +
                    first_line(error.what()) + "; rank 0 must run on the machine of MASTER_ADDR");
  }
}

Store call(const Launch& launch, Milliseconds timeout) {
  const auto until = Clock::now() + timeout;
  while (true) {
    throw_if_stopped();
    try {
      return c10::make_intrusive<c10d::TCPStore>(launch.host, store_options(launch, false, 1s));
    } catch (const std::exception&) {
      if (Clock::now() > until) {
        throw UserError(rank_name(launch.rank, machine_name()) + ": nobody answers at " +
                        place_of(launch) + " for " + seconds_text(timeout) +
                        " (distributed.timeout_s); is rank 0 running, are MASTER_ADDR and "
                        "MASTER_PORT those of its machine?");
      }
    }
  }
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  constexpr std::size_t kMost = 8;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text + (ranks.size() > kMost ? " and others" : "");
}

// The first process: waits for all, and judges whether they fit together.
std::vector<Arrival> receive(const Store& store, const Arrival& self, Milliseconds timeout) {
  const auto began = Clock::now();
  bool told = false;
  std::vector<std::string> texts(static_cast<std::size_t>(self.size));
  while (true) {
    std::vector<int> missing;
    for (int rank = 0; rank < self.size; ++rank) {
      std::string& text = texts[static_cast<std::size_t>(rank)];
      if (text.empty()) {
        text = look(store, key_of(rank)).value_or("");
      }
      if (text.empty()) {
        missing.push_back(rank);
      }
    }
    if (missing.empty()) {
      break;
    }
    throw_if_stopped();
    const auto waited = Clock::now() - began;
    if (waited > timeout) {
      throw UserError(list_of(missing) + " of " + std::to_string(self.size) +
                      (missing.size() == 1 ? " has" : " have") + " not come within " +
                      seconds_text(timeout) +
                      " (distributed.timeout_s); were as many processes started, with the same "
                      "number of them, MASTER_ADDR and MASTER_PORT?");
    }
    if (!told && waited > kPatience) {
      told = true;
      log::info("waiting for " + list_of(missing) + " of " + std::to_string(self.size));
    }
    std::this_thread::sleep_for(kLook);
  }
  std::vector<Arrival> arrivals;
  for (const std::string& text : texts) {
    arrivals.push_back(arrival_of(text));
    const Arrival& other = arrivals.back();
    if (other.size != self.size) {
      throw UserError(other.member.name() + " counts " + std::to_string(other.size) +
                      " processes, rank 0 counts " + std::to_string(self.size) +
                      "; start all with the same number");
    }
    if (other.identity != self.identity) {
      throw UserError(other.member.name() + " runs another program than rank 0: " + other.identity +
                      " there, " + self.identity + " here; start the same build everywhere");
    }
  }
  return arrivals;
}

// Before they watch each other.
[[noreturn]] void end_without_first(const Watch::Member& self) {
  if (self.speaks) {
    std::cerr << "transnormer: " + self.name() +
                     ": rank 0 has ended before all had met; the job ends\n";
  }
  ::_exit(static_cast<int>(ExitStatus::our_fault));
}

// The store ends with the first process, so those who have come must know by then.
void wait_until_heard(const Store& store, int size) {
  const auto until = Clock::now() + 2s;
  std::int64_t others = 0;
  for (int rank = 1; rank < size; ++rank) {
    others += store->check({key_of(rank)}) ? 1 : 0;
  }
  while (store->add("heard", 0) < others && Clock::now() < until) {
    std::this_thread::sleep_for(kLook);
  }
}

// Of the first process.
std::unique_ptr<Watch> open(const Meeting& meeting, const Arrival& self) {
  const Store& store = meeting.store;
  std::vector<Watch::Member> members;
  try {
    for (Arrival& arrival : receive(store, self, meeting.timeout)) {
      members.push_back(std::move(arrival.member));
    }
  } catch (const std::exception&) {
    set(store, "start", "the first process found a fault");
    wait_until_heard(store, self.size);
    throw;
  }
  auto door = std::make_unique<Watch::Door>(meeting.address);
  set(store, "place", door->place());
  set(store, "first", text_of(self));
  set(store, "start", std::to_string(self.size));
  return std::make_unique<Watch>(std::move(door), std::move(members), meeting.progress,
                                 meeting.timeout);
}

// Of the others.
std::unique_ptr<Watch> join(const Meeting& meeting, const Arrival& self) {
  const Store& store = meeting.store;
  const Milliseconds timeout = meeting.timeout;
  const std::string start = await(store, "start",
                                  self.member.name() + ": rank 0 has not come within " +
                                      seconds_text(timeout) + " (distributed.timeout_s)",
                                  timeout + kPatience, Stops::heeded);
  store->add("heard", 1);
  const auto size = parse_integer(start);
  if (!size) {
    throw FirstHasFault();
  }
  if (*size != self.size) {
    throw UserError(self.member.name() + " counts " + std::to_string(self.size) +
                    " processes, rank 0 counts " + start + "; start all with the same number");
  }
  return std::make_unique<Watch>(get(store, "place"), self.member,
                                 arrival_of(get(store, "first")).member, meeting.progress, timeout);
}

}  // namespace

void set(const Store& store, const std::string& key, const std::string& value) {
  store->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
}

std::string await(const Store& store, const std::string& key, const std::string& absent,
                  std::optional<Milliseconds> timeout, Stops stops) {
  const auto began = Clock::now();
  while (true) {
    if (auto text = look(store, key)) {
      return *std::move(text);
    }
    if (stops == Stops::heeded) {
      throw_if_stopped();
    }
    if (timeout && Clock::now() - began > *timeout) {
      throw UserError(absent);
    }
    std::this_thread::sleep_for(kLook);
  }
}

Store open_store(const Launch& launch, Milliseconds timeout) {
  const bool serves = launch.rank == 0 && !launch.store_is_there;
  return serves ? serve(launch) : call(launch, timeout);
}

std::unique_ptr<Watch> meet(const Meeting& meeting, const Arrival& self) {
  const Store& store = meeting.store;
  const int rank = self.member.rank;
  try {
    if (store->add("taken/" + std::to_string(rank), 1) > 1) {
      throw UserError(self.member.name() +
                      ": another process has this rank already; each needs its "
                      "own, from 0 to one less than their number");
    }
    set(store, key_of(rank), text_of(self));
    return rank == 0 ? open(meeting, self) : join(meeting, self);
  } catch (const c10::Error&) {  // of the store, which a launcher keeps, or the first process
    if (rank == 0) {
      throw;
    }
    end_without_first(self.member);
  }
}

}  // namespace transnormer::dist
