#include "runtime/collective/collective.h"

#include <functional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace outboard::collective {

namespace {
constexpr char kAbortedPayload[] = "outboard/aborted-rank";
}  // namespace

std::string ToString(TransferPattern pattern) {
  switch (pattern) {
    case TransferPattern::kAllGather: return "all-gather";
    case TransferPattern::kAllToAll: return "all-to-all";
    default: return "broadcast";
  }
}

absl::Status CheckTransfer(const Member& member, const BlockTransfer& transfer) {
  const auto refuse = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(ToString(transfer.pattern), ": ", what...));
  };
  const int64_t count = transfer.count, stride = transfer.stride, ranks = member.ranks();
  if (count < 1 || stride < 1 || count > ranks || stride > ranks || ranks % (count * stride) != 0)
    return refuse("a group of ", count, " ranks with stride ", stride, " is not of the mesh ",
                  absl::StrJoin(member.mesh, "x"));
  if (transfer.root < 0 || transfer.root >= count)
    return refuse("root ", transfer.root, " is not in 0..", count - 1);
  const auto sent = static_cast<int64_t>(transfer.send.size()),
             received = static_cast<int64_t>(transfer.receive.size());
  const bool fits = transfer.pattern == TransferPattern::kAllGather
                        ? received / count == sent && received % count == 0
                    : transfer.pattern == TransferPattern::kAllToAll
                        ? received == sent && sent % count == 0
                        : received == sent;
  if (!fits) return refuse(sent, " bytes sent and ", received, " received by ", count, " ranks");
  const char *const from = transfer.send.data(), *const to = transfer.receive.data();
  if (sent > 0 && std::less<>()(from, to + received) && std::less<>()(to, from + sent))
    return refuse("what is sent and what is received overlap");
  return absl::OkStatus();
}

absl::Status AbortedBy(int64_t rank, const absl::Status& cause) {
  absl::Status status =
      absl::UnavailableError(absl::StrCat("rank ", rank, " left the group: ", cause.message()));
  status.SetPayload(kAbortedPayload, absl::Cord(absl::string_view(absl::StrCat(rank))));
  return status;
}

std::optional<int64_t> AbortedRank(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kAbortedPayload);
  int64_t rank = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &rank)) return std::nullopt;
  return rank;
}

}  // namespace outboard::collective
