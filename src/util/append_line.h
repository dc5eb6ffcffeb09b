// A file of lines to which several processes may add.
#pragma once

#include <filesystem>
#include <string_view>

namespace transnormer {

// Adds the line, with its end, behind what is there: whole or not at all, also beside other
// processes that do the same, and behind a torn line that a killed one has left. The file is made
// where it is missing. `beginning`: with what a file of this kind begins; one that begins otherwise
// is left as it is. Throws WriteError.
void append_line(const std::filesystem::path& path, std::string_view line,
                 std::string_view beginning);

}  // namespace transnormer
