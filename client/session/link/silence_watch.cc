#include "client/session/link/silence_watch.h"

#include <utility>

#include "client/session/link/grpc_link.h"

namespace outboard::session {
namespace {

// For a second connection; the rest of kSilentAfter goes by before it is tried.
constexpr std::chrono::seconds kConnectsWithin{2};
constexpr std::chrono::seconds kProbeEvery{30};  // where connections succeed

}  // namespace

void SilenceWatch::Begin(Clock::time_point now, uint64_t bytes_down) {
  if (told_) return;  // until something is heard
  bytes_down_ = bytes_down;
  probe_ = nullptr;
  probe_at_ = now + kSilentAfter - kConnectsWithin;
}

SilenceWatch::News SilenceWatch::Check(const std::string& target, const Protection& protection,
                                       Clock::time_point now, uint64_t bytes_down) {
  if (std::exchange(bytes_down_, bytes_down) != bytes_down) {
    probe_at_ = now + kSilentAfter - kConnectsWithin;
    return Heard();
  }
  if (probe_ == nullptr) {
    if (now < probe_at_) return News::kNone;
    probe_ = MakeChannel(target, protection);
    probe_at_ = now + kConnectsWithin;
  }
  if (probe_->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY) {
    probe_at_ = now + kProbeEvery;
    return Heard();
  }
  if (told_ || now < probe_at_) return News::kNone;
  told_ = true;
  return News::kSilent;
}

SilenceWatch::News SilenceWatch::Heard() {
  probe_ = nullptr;
  return std::exchange(told_, false) ? News::kHeardAgain : News::kNone;
}

}  // namespace outboard::session
