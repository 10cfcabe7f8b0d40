#include "client/tensor/engine.h"

#include <mutex>

#include "client/tensor/session_engine.h"
#include "compiler/ir/check.h"

namespace outboard {
namespace {

struct Slot {
  std::mutex mutex;
  std::shared_ptr<Engine> engine;
};

Slot& TheSlot() {
  static Slot slot;
  return slot;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Engine>> CurrentEngine() {
  Slot& slot = TheSlot();
  const std::lock_guard lock(slot.mutex);
  if (slot.engine == nullptr) {
    OB_ASSIGN_OR_RETURN(transport::SessionOptions options,
                        transport::SessionOptions::FromEnvironment());
    OB_ASSIGN_OR_RETURN(std::unique_ptr<transport::Session> session,
                        transport::Session::Connect(options));
    slot.engine = MakeSessionEngine(std::move(session));
  }
  return slot.engine;
}

std::shared_ptr<Engine> EngineIfConnected() {
  Slot& slot = TheSlot();
  const std::lock_guard lock(slot.mutex);
  return slot.engine;
}

void SetEngine(std::shared_ptr<Engine> engine) {
  Slot& slot = TheSlot();
  const std::lock_guard lock(slot.mutex);
  slot.engine = std::move(engine);
}

absl::StatusOr<transport::Stats> CloseEngine() {
  const std::shared_ptr<Engine> engine = EngineIfConnected();
  if (engine == nullptr) return transport::Stats{};
  OB_RETURN_IF_ERROR(engine->Close());
  const transport::Stats stats = engine->stats();
  SetEngine(nullptr);
  return stats;
}

}  // namespace outboard
