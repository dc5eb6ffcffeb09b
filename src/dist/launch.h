// How this process was started: alone, or as one of many by a launcher that says so in the
// environment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace transnormer::dist {

struct Launch {
  std::string launcher = {};  // for people; empty: a process by itself
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // on this machine
  int local_size = 1;
  std::string host = "127.0.0.1";  // where the processes meet
  int port = 0;
  bool store_is_there = false;  // the launcher keeps the store; else rank 0 does
  // Apart from another start of the same launcher that meets at the same store.
  std::string attempt = {};
};

// Value of a variable of the environment, if it is set.
using Environment = std::function<std::optional<std::string>(const char* name)>;
[[nodiscard]] Environment environment();

// What the launcher has said: torchrun and whatever sets the same variables (RANK, WORLD_SIZE,
// LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), else OpenMPI (OMPI_COMM_WORLD_*), else a
// step of Slurm's srun (SLURM_*; not the job's script itself), else PMI (PMI_RANK, PMI_SIZE). Where
// all are on one machine, those but torchrun need no MASTER_ADDR, and none of them needs a
// MASTER_PORT: it follows from the job. Throws UserError where parts are missing, no numbers, or
// contradict each other.
[[nodiscard]] Launch resolve_launch(const Environment& variable);

// For people: "4 processes by torchrun, 2 on this machine, meeting at node1:29500".
[[nodiscard]] std::string describe(const Launch& launch);

// The first machine of a list as Slurm writes it: "node[03-05,9],other" -> "node03".
[[nodiscard]] std::string first_host(const std::string& list);

}  // namespace transnormer::dist
