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

constexpr size_t kNowhere = SIZE_MAX;

// What OUTBOARD_FAILPOINT says; read once.
struct Wanted {
  size_t row = kNowhere;
  std::atomic<int64_t> passes{0};  // that are left before the one that kills
  Wanted() {
    const char* const text = std::getenv("OUTBOARD_FAILPOINT");
    if (text == nullptr || *text == '\0') return;
    std::string name = text;
    if (const size_t colon = name.rfind(':'); colon != std::string::npos) {
      passes = std::strtoll(name.c_str() + colon + 1, nullptr, 10);
      name.resize(colon);
    }
    const auto* const at = std::ranges::find(kFailpoints, name, &Failpoint::name);
    OB_CHECK(at != std::end(kFailpoints));
    row = static_cast<size_t>(at - std::begin(kFailpoints));
  }
};

}  // namespace

void PassFailpoint(FailpointName name) {
  static Wanted wanted;
  if (wanted.row != name.row() || wanted.passes.fetch_sub(1) > 0) return;
  kill(getpid(), SIGKILL);
  pause();  // until it is there
}

}  // namespace outboard
