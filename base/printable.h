// What others wrote (a worker, a gateway, a file, a process), for a terminal or a log: nothing that
// a terminal obeys.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace outboard {

// Returns the first `bytes_max` bytes of `text`, with '?' for each byte that is no printable ASCII.
std::string Printable(std::string_view text, size_t bytes_max = std::string_view::npos);
// The same, but lines stay lines.
std::string PrintableLines(std::string_view text, size_t bytes_max = std::string_view::npos);
// Of one line: nothing is lost. Bytes that are no printable ASCII, but for tabs, as \xNN.
std::string Escaped(std::string_view line);

}  // namespace outboard
