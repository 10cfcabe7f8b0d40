// What a child says to a test on its socket, as sandbox_attempts_main.cc does: lines of a name, a
// tab and a number.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <map>
#include <string>

#include "worker/process/child_process.h"

namespace outboard::test {

// All that it says, by name, until `until` or its end.
inline std::map<std::string, int64_t> Hear(const worker::ChildProcess& child,
                                           const std::string& until = "end") {
  std::map<std::string, int64_t> heard;
  std::string line;
  for (char c; !heard.contains(until) && read(child.fd(), &c, 1) == 1;) {
    if (c != '\n') {
      line += c;
      continue;
    }
    const size_t tab = line.find('\t');
    heard[line.substr(0, tab)] = std::stoll(line.substr(tab + 1));
    line.clear();
  }
  return heard;
}

}  // namespace outboard::test
