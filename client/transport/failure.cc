#include "client/transport/failure.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace outboard::transport {
namespace {
constexpr char kPayload[] = "outboard/failure";  // "seq" or "seq node"
}  // namespace

absl::Status WithFailure(absl::Status status, const Failure& failure) {
  std::string text = absl::StrCat(failure.seq);
  if (failure.node) absl::StrAppend(&text, " ", *failure.node);
  status.SetPayload(kPayload, absl::Cord(absl::string_view(text)));
  return status;
}

std::optional<Failure> FailureOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayload);
  if (!payload) return std::nullopt;
  const std::vector<std::string> parts = absl::StrSplit(std::string(*payload), ' ');
  Failure failure;
  uint32_t node;
  if (!absl::SimpleAtoi(parts[0], &failure.seq)) return std::nullopt;
  if (parts.size() > 1 && absl::SimpleAtoi(parts[1], &node)) failure.node = node;
  return failure;
}

}  // namespace outboard::transport
