// PNG files that say which program made them.
#pragma once

#include <gd.h>

#include <string>

#include "util/input_file.h"

namespace transnormer {

// The image as a PNG file with a text chunk, "Software: transnormer analyze". Throws
// std::runtime_error where the library cannot.
[[nodiscard]] std::string to_png(gdImagePtr image);

// Whether the file is a picture that to_png() made.
[[nodiscard]] bool is_own_png(const InputFile& file);

}  // namespace transnormer
