#include "dist/launch.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "util/error.h"
#include "util/units.h"

namespace transnormer::dist {
namespace {

// Reads the variables of one launcher, and says what is wrong in its terms.
class Reader {
 public:
  Reader(const Environment& variable, std::string launcher)
      : variable_(variable), launcher_(std::move(launcher)) {}

  [[nodiscard]] bool has(const char* name) const { return variable_(name).has_value(); }

  [[nodiscard]] std::optional<std::string> text(const char* name) const {
    const auto value = variable_(name);
    return value && !value->empty() ? value : std::nullopt;
  }

  [[nodiscard]] std::optional<int> number(const char* name) const {
    const auto value = text(name);
    if (!value) {
      return std::nullopt;
    }
    const auto parsed = parse_integer(*value);
    if (!parsed || *parsed < 0 || *parsed > std::numeric_limits<int>::max()) {
      throw UserError(launcher_ + ": " + name + " is \"" + *value + "\"; expected a number from 0");
    }
    return static_cast<int>(*parsed);
  }

  // `because`: what was found that makes it needed.
  [[nodiscard]] int needed_number(const char* name, const char* because) const {
    const auto value = number(name);
    if (!value) {
      lack(name, because);
    }
    return *value;
  }

  [[nodiscard]] std::string needed_text(const char* name, const std::string& because) const {
    const auto value = text(name);
    if (!value) {
      lack(name, because);
    }
    return *value;
  }

  void require(bool holds, const std::string& fault) const {
    if (!holds) {
      throw UserError(launcher_ + ": " + fault);
    }
  }

 private:
  [[noreturn]] void lack(const char* name, const std::string& because) const {
    throw UserError(launcher_ + ": " + because + ", but " + name +
                    " is not; set it, or unset what tells of other processes");
  }

  const Environment& variable_;
  std::string launcher_;
};

std::string pair_text(const char* a, int x, const char* b, int y) {
  return std::string(a) + " is " + std::to_string(x) + " and " + b + " is " + std::to_string(y);
}

struct Names {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

void check(const Reader& reader, const Launch& launch, const Names& names) {
  reader.require(launch.size >= 1, std::string(names.size) + " is 0; expected at least 1");
  reader.require(launch.rank < launch.size,
                 pair_text(names.rank, launch.rank, names.size, launch.size) +
                     "; ranks go from 0 to one less than the size");
  reader.require(launch.local_size >= 1 && launch.local_size <= launch.size,
                 pair_text(names.local_size, launch.local_size, names.size, launch.size) +
                     "; a machine has at least one of them and at most all");
  reader.require(
      launch.local_rank < launch.local_size,
      pair_text(names.local_rank, launch.local_rank, names.local_size, launch.local_size) +
          "; local ranks go from 0 to one less than the local size");
}

// From a name of the job, so that all of its processes find the same.
int port_of(const std::string& job) {
  constexpr int kFirst = 20000;
  constexpr int kPorts = 12000;
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : job) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  }
  return kFirst + static_cast<int>(hash % kPorts);
}

int checked_port(const Reader& reader, int port) {
  reader.require(port >= 1 && port <= 65535,
                 "MASTER_PORT is " + std::to_string(port) + "; expected 1 to 65535");
  return port;
}

// Where they meet: as the environment says, else `host` (empty: unknown) and a port of the job's.
void meet(const Reader& reader, Launch& launch, const std::string& host, const std::string& job) {
  if (const auto address = reader.text("MASTER_ADDR")) {
    launch.host = *address;
  } else if (launch.local_size < launch.size) {
    reader.require(!host.empty(),
                   "the processes are on several machines, and MASTER_ADDR is not set; set it to "
                   "the address of rank 0's machine");
    launch.host = host;
  }
  const auto port = reader.number("MASTER_PORT");
  launch.port = port ? checked_port(reader, *port) : port_of(job);
}

std::optional<Launch> of_torchrun(const Environment& variable) {
  constexpr Names kNames{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  const bool by_torchrun = variable("TORCHELASTIC_RUN_ID").has_value();
  const bool ours = variable("TRANSNORMER_NPROC").has_value();
  const std::string name = ours          ? "--nproc"
                           : by_torchrun ? "torchrun"
                                         : "RANK and WORLD_SIZE in the environment";
  const Reader reader(variable, by_torchrun ? "torchrun" : "environment");
  if (!reader.text("RANK") && reader.number("WORLD_SIZE").value_or(1) == 1) {
    return std::nullopt;  // left over, and says nothing
  }
  Launch launch{.launcher = name};
  launch.size = reader.needed_number("WORLD_SIZE", "RANK is set");
  launch.rank = reader.needed_number("RANK", "WORLD_SIZE is set");
  const auto local_size = reader.number("LOCAL_WORLD_SIZE");
  const auto local_rank = reader.number("LOCAL_RANK");
  launch.local_size = local_size.value_or(launch.size);
  launch.local_rank = local_rank.value_or(launch.rank % std::max(launch.local_size, 1));
  check(reader, launch, kNames);
  launch.host = reader.needed_text("MASTER_ADDR", "RANK and WORLD_SIZE are set");
  launch.port =
      checked_port(reader, reader.needed_number("MASTER_PORT", "RANK and WORLD_SIZE are set"));
  launch.store_is_there = reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  launch.attempt = reader.text("TORCHELASTIC_RESTART_COUNT").value_or("");
  return launch;
}

std::optional<Launch> of_openmpi(const Environment& variable) {
  constexpr Names kNames{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                         "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
  const Reader reader(variable, "mpirun");
  if (!reader.has(kNames.rank) && !reader.has(kNames.size)) {
    return std::nullopt;
  }
  Launch launch{.launcher = "mpirun"};
  launch.rank = reader.needed_number(kNames.rank, "OMPI_COMM_WORLD_SIZE is set");
  launch.size = reader.needed_number(kNames.size, "OMPI_COMM_WORLD_RANK is set");
  launch.local_rank = reader.needed_number(kNames.local_rank, "OMPI_COMM_WORLD_RANK is set");
  launch.local_size = reader.needed_number(kNames.local_size, "OMPI_COMM_WORLD_RANK is set");
  check(reader, launch, kNames);
  meet(reader, launch, "",
       reader.text("PMIX_NAMESPACE")
           .value_or(reader.text("OMPI_MCA_ess_base_jobid").value_or("openmpi")));
  return launch;
}

// The steps that are no srun's: the job's script, and what salloc and the like start.
bool is_step_of_srun(const Reader& reader) {
  constexpr std::int64_t kReserved = 4294967280;  // from here on the numbers stand for others
  const auto step = reader.text("SLURM_STEP_ID");
  const auto number = step ? parse_integer(*step) : std::nullopt;
  return number && *number < kReserved && reader.has("SLURM_PROCID");
}

// Tasks of this machine, from a list as "2(x3),1": the number for each machine in order.
int tasks_of_machine(const Reader& reader, const std::string& list, int machine) {
  std::string_view rest = list;
  int first = 0;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    const std::size_t times = item.find("(x");
    const auto tasks = parse_integer(item.substr(0, times));
    const auto repeat = times == std::string_view::npos
                            ? std::optional<std::int64_t>(1)
                            : parse_integer(item.substr(times + 2, item.size() - times - 3));
    if (!tasks || !repeat || *tasks < 0 || *repeat < 1) {
      break;
    }
    first += static_cast<int>(*repeat);
    if (machine < first) {
      return static_cast<int>(*tasks);
    }
  }
  reader.require(false, "SLURM_STEP_TASKS_PER_NODE is \"" + list +
                            "\", which says nothing of machine " + std::to_string(machine));
  return 1;
}

std::optional<Launch> of_slurm(const Environment& variable) {
  constexpr Names kNames{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                         "SLURM_STEP_TASKS_PER_NODE"};
  const Reader reader(variable, "srun");
  if (!is_step_of_srun(reader)) {
    return std::nullopt;
  }
  Launch launch{.launcher = "srun"};
  launch.rank = reader.needed_number(kNames.rank, "SLURM_STEP_ID is set");
  launch.size = reader.needed_number(kNames.size, "SLURM_STEP_ID is set");
  launch.local_rank = reader.needed_number(kNames.local_rank, "SLURM_STEP_ID is set");
  launch.local_size =
      tasks_of_machine(reader, reader.needed_text(kNames.local_size, "SLURM_STEP_ID is set"),
                       reader.number("SLURM_NODEID").value_or(0));
  check(reader, launch, kNames);
  meet(reader, launch, first_host(reader.text("SLURM_STEP_NODELIST").value_or("")),
       reader.text("SLURM_JOB_ID").value_or("") + '.' + reader.text("SLURM_STEP_ID").value_or(""));
  launch.attempt = reader.text("SLURM_RESTART_COUNT").value_or("");
  return launch;
}

std::optional<Launch> of_pmi(const Environment& variable) {
  constexpr Names kNames{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
  const Reader reader(variable, "PMI");
  if (!reader.has(kNames.rank) && !reader.has(kNames.size)) {
    return std::nullopt;
  }
  Launch launch{.launcher = "an MPI launcher (PMI)"};
  launch.rank = reader.needed_number(kNames.rank, "PMI_SIZE is set");
  launch.size = reader.needed_number(kNames.size, "PMI_RANK is set");
  launch.local_size = reader.number(kNames.local_size).value_or(launch.size);
  launch.local_rank = reader.number(kNames.local_rank).value_or(launch.rank);
  check(reader, launch, kNames);
  meet(reader, launch, "", reader.text("PMI_ID").value_or("pmi"));
  return launch;
}

}  // namespace

Environment environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* const value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

namespace {

// Who sets these variables by hand may have them from another start.
void require_that_mpi_agrees(const Launch& launch, const Environment& variable) {
  const std::optional<Launch> mpi = of_openmpi(variable);
  if (mpi && launch.launcher != "torchrun" && launch.launcher != "--nproc" &&
      (mpi->rank != launch.rank || mpi->size != launch.size)) {
    throw UserError(
        "environment: " + pair_text("RANK", launch.rank, "WORLD_SIZE", launch.size) + ", but " +
        pair_text("OMPI_COMM_WORLD_RANK", mpi->rank, "OMPI_COMM_WORLD_SIZE", mpi->size) +
        "; unset RANK and WORLD_SIZE");
  }
}

}  // namespace

Launch resolve_launch(const Environment& variable) {
  if (const auto launch = of_torchrun(variable)) {
    require_that_mpi_agrees(*launch, variable);
  }
  for (const auto launcher : {of_torchrun, of_openmpi, of_slurm, of_pmi}) {
    if (const auto launch = launcher(variable)) {
      return launch->size > 1 ? *launch : Launch{};
    }
  }
  return {};
}

std::string describe(const Launch& launch) {
  if (launch.size == 1) {
    return "one process";
  }
  const std::string all = format_count(launch.size) + " processes by " + launch.launcher;
  return launch.local_size == launch.size
             ? all
             : all + ", " + format_count(launch.local_size) + " on this machine, meeting at " +
                   launch.host + ':' + std::to_string(launch.port);
}

std::string first_host(const std::string& list) {
  const std::size_t open = list.find_first_of("[,");
  if (open == std::string::npos || list[open] == ',') {
    return list.substr(0, open);
  }
  const std::size_t end = list.find_first_of(",-]", open);
  const std::string number = list.substr(open + 1, end - open - 1);
  const std::size_t close = list.find(']', open);
  const std::string rest = close == std::string::npos ? "" : list.substr(close + 1);
  return list.substr(0, open) + number + first_host(rest);
}

}  // namespace transnormer::dist
