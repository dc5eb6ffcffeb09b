// The processes of a job watch each other: where one ends without having said so, hangs, or has a
// fault of its own, all others end too, and one line says which it was. A thread of its own, over
// connections of its own, so that it sees what a process that computes or waits does not.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/group.h"
#include "util/error.h"

namespace transnormer::dist {

class Watch {
 public:
  struct Member {
    int rank = 0;
    int local_rank = 0;
    std::string host;  // name of its machine
    long process = 0;
    bool speaks = true;                      // where the first one cannot
    [[nodiscard]] std::string name() const;  // rank_name()
  };

  // Where the first one listens, on the interface of that address.
  class Door {
   public:
    explicit Door(const std::string& address);
    ~Door();
    Door(const Door&) = delete;
    Door& operator=(const Door&) = delete;
    // "address port", for the others.
    [[nodiscard]] const std::string& place() const { return place_; }
    [[nodiscard]] int descriptor() const { return descriptor_; }

   private:
    int descriptor_ = -1;
    std::string place_;
  };

  // Of the first one; waits until all others have come. `members`: in the order of ranks.
  Watch(std::unique_ptr<Door> door, std::vector<Member> members,
        std::shared_ptr<const Progress> progress, std::chrono::milliseconds timeout);
  // Of the others, who come to the place where the first one listens.
  Watch(const std::string& place, const Member& self, const Member& first,
        std::shared_ptr<const Progress> progress, std::chrono::milliseconds timeout);
  // Leaves in order: then its end is none that anybody minds.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // What is called before the process is ended by another's fault; not for long.
  void set_last_words(std::function<void()> last_words);

  // This process ends by a fault of its own: all others end with the same status. The first one has
  // told its faults itself; those of another are told by the first. False where that cannot be
  // reached, so that the caller must speak.
  bool report(ExitStatus status, const std::vector<std::string>& faults);

  // A collective failed, or took too long: ends this process with status 1, once it is known, or
  // can be guessed, whose fault that is.
  [[noreturn]] void end_by_collective(const std::string& what);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The address of the interface by which this machine reaches another; that of the loop where the
// other is this one. Throws UserError where its name is not known.
[[nodiscard]] std::string address_towards(const std::string& host);
[[nodiscard]] std::string machine_name();
[[nodiscard]] std::string rank_name(int rank, const std::string& host);  // "rank 2 on node7"

}  // namespace transnormer::dist
