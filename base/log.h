// Logging: writes one line with the UTC time to stderr. Callers never pass a key, a token or a
// tenant's data.
#pragma once

#include <cstdio>
#include <ctime>
#include <string>

namespace outboard {

inline void Log(const std::string& line) {
  std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &parts);
  std::fprintf(stderr, "%s %s\n", stamp, line.c_str());
}

}  // namespace outboard
