#include "client/session/heads/heads_seen.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "wire/proof/head_file.h"

namespace outboard::session {
namespace {
// A head is signed at each posting, some seconds apart for one session; of many, more often.
constexpr std::chrono::seconds kKeepEvery{5};
}  // namespace

std::optional<std::string> HeadsSeen::Note(const proto::ServerFrame& frame, Clock::time_point now) {
  if (file_.empty()) return std::nullopt;
  for (const proto::ServerItem& item : frame.items()) {
    if (!item.has_done() || !item.done().has_head()) continue;
    const proto::LedgerHead& head = item.done().head();
    if (head.signature() == last_signature_) continue;
    last_signature_ = head.signature();
    waiting_ = head;
  }
  if (!waiting_.has_value() || (kept_at_.has_value() && now - *kept_at_ < kKeepEvery))
    return std::nullopt;
  kept_at_ = now;
  return Keep();
}

std::optional<std::string> HeadsSeen::End() { return waiting_.has_value() ? Keep() : std::nullopt; }

std::optional<std::string> HeadsSeen::Keep() {
  const absl::Status kept = signing::HeadFile(file_).Add({target_, *std::exchange(waiting_, {})});
  if (kept.ok() || std::exchange(told_, true)) return std::nullopt;
  return absl::StrCat("a signed head of the gateway's ledger is not kept, so that a bill cannot be "
                      "compared with it later: ",
                      kept.message());
}

}  // namespace outboard::session
