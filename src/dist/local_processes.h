// Several processes on this machine without a launcher: the program starts itself so many times, is
// their parent, and ends as they end.
#pragma once

namespace transnormer::dist {

// Starts `count` processes with this one's own arguments, each told of its rank, and waits for
// them. Their messages and the answer are those of rank 0. SIGINT, SIGTERM and SIGUSR1 are handed
// on; the end of this process ends them all. Returns rank 0's exit status; 1 where it has none.
// Throws UserError where the system starts no process.
[[nodiscard]] int run_local_processes(int count);

// What such a process calls first: it then ends with its parent. Does nothing in any other.
void follow_starter();

// Whether this is such a process.
[[nodiscard]] bool is_local_process();

}  // namespace transnormer::dist
