// How many threads it is of use to have.
#pragma once

#include <cstdint>
#include <string>

namespace transnormer {

// The processors that this process may use at a time: of those its affinity names, as many as the
// control groups' quotas grant, at least 1.
[[nodiscard]] int processors();

// The same, but no more than OMP_NUM_THREADS or OMP_THREAD_LIMIT in the environment ask for.
[[nodiscard]] int allowed_processors();

// Which processors the affinity of this process names, as a list of 0 and 1: processes of one
// machine that say the same share them.
[[nodiscard]] std::string affinity();

// Those of one of so many processes that share this machine: the processors in equal parts, at
// least 1, and no more than OMP_NUM_THREADS asks for. torchrun sets that to 1 where its user said
// nothing, so there a 1 says nothing.
[[nodiscard]] int processors_of_one(int processes);

// For work whose result does not depend on the number of threads: as many as asked (0: all), but no
// more than allowed to one of so many processes.
[[nodiscard]] int useful_threads(std::int64_t asked, int processes = 1);

// Throws UserError where the system does not grant so many threads at a time: the libraries that
// need them would end the process.
void require_threads(int threads);

}  // namespace transnormer
