#include "client/session/waiting.h"

namespace outboard::session {

namespace {
WaitHooks hooks_in_use;
}  // namespace

void SetWaitHooks(const WaitHooks& hooks) { hooks_in_use = hooks; }

Waiting::Waiting() {
  if (hooks_in_use.begin != nullptr) begun_ = hooks_in_use.begin();
}

Waiting::~Waiting() {
  if (hooks_in_use.end != nullptr) hooks_in_use.end(begun_);
}

absl::Status Waiting::Check() {
  return hooks_in_use.check != nullptr ? hooks_in_use.check() : absl::OkStatus();
}

}  // namespace outboard::session
