#include "worker/sandbox/sandbox_plan.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace outboard::worker {

std::string SandboxPlan::Encoded() const {
  return absl::StrCat(static_cast<int>(profile), ":", parts.bits(), ":", user, ":",
                      has_driver ? 1 : 0);
}

std::optional<SandboxPlan> SandboxPlan::Decode(const std::string& text) {
  const std::vector<std::string> fields = absl::StrSplit(text, ':');
  int profile = 0;
  uint32_t bits = 0;
  int driver = 0;
  SandboxPlan plan;
  if (fields.size() != 4 || !absl::SimpleAtoi(fields[0], &profile) || profile < 0 || profile > 2 ||
      !absl::SimpleAtoi(fields[1], &bits) || !absl::SimpleAtoi(fields[2], &plan.user) ||
      !absl::SimpleAtoi(fields[3], &driver) || driver < 0 || driver > 1)
    return std::nullopt;
  plan.profile = static_cast<SandboxProfile>(profile);
  plan.parts = SandboxParts(bits);
  plan.has_driver = driver == 1;
  return plan;
}

}  // namespace outboard::worker
