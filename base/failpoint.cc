#include "base/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

#include "base/check.h"

namespace outboard {
namespace {

// What OUTBOARD_FAILPOINT says; read once.
struct Wanted {
  std::string name;
  std::atomic<int64_t> passes{0};  // that are left before the one that kills
  Wanted() {
    const char* const text = std::getenv("OUTBOARD_FAILPOINT");
    if (text == nullptr) return;
    name = text;
    if (const size_t colon = name.rfind(':'); colon != std::string::npos) {
      passes = std::strtoll(name.c_str() + colon + 1, nullptr, 10);
      name.resize(colon);
    }
  }
};

}  // namespace

void PassFailpoint(std::string_view name) {
  static Wanted wanted;
  if (wanted.name.empty()) return;
  const auto is_of = [name](const auto& all) {
    return std::find(std::begin(all), std::end(all), name) != std::end(all);
  };
  OB_CHECK(is_of(kFailpoints) || is_of(kWorkerFailpoints));
  if (wanted.name != name || wanted.passes.fetch_sub(1) > 0) return;
  kill(getpid(), SIGKILL);
  pause();  // until it is there
}

}  // namespace outboard
