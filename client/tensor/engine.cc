#include "client/tensor/engine.h"

#include <mutex>
#include <utility>

#include "base/check.h"
#include "client/session/waiting.h"
#include "client/tensor/engine_scope.h"
#include "client/tensor/session_engine.h"

namespace outboard {
namespace {

struct Slot {
  std::mutex connecting;  // held while somebody connects, which takes its time
  std::mutex mutex;       // held for moments
  std::shared_ptr<Engine> engine;
};

Slot& TheSlot() {
  static Slot slot;
  return slot;
}

std::shared_ptr<Engine> EngineOfProcess() {
  Slot& slot = TheSlot();
  const std::lock_guard lock(slot.mutex);
  return slot.engine;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Engine>> CurrentEngine() {
  if (std::shared_ptr<Engine> engine = EngineIfConnected(); engine != nullptr) return engine;
  const transport::Waiting waiting;  // also for another thread that connects
  const std::lock_guard connecting(TheSlot().connecting);
  if (std::shared_ptr<Engine> engine = EngineOfProcess(); engine != nullptr) return engine;
  OB_ASSIGN_OR_RETURN(transport::SessionOptions options,
                      transport::SessionOptions::FromEnvironment());
  OB_ASSIGN_OR_RETURN(std::unique_ptr<transport::Session> session,
                      transport::Session::Connect(options));
  std::shared_ptr<Engine> engine = MakeSessionEngine(std::move(session));
  SetEngine(engine);
  return engine;
}

std::shared_ptr<Engine> EngineIfConnected() {
  const std::shared_ptr<Engine>& scoped = internal::ScopedEngine();
  return scoped != nullptr ? scoped : EngineOfProcess();
}

void SetEngine(std::shared_ptr<Engine> engine) {
  Slot& slot = TheSlot();
  const std::lock_guard lock(slot.mutex);
  std::swap(slot.engine, engine);  // the old one ends, which takes its time, without the lock
}

void ReleaseProcessEngine(const Engine& engine) {
  if (EngineOfProcess().get() == &engine) SetEngine(nullptr);
}

absl::StatusOr<transport::Stats> CloseEngine() {
  const std::shared_ptr<Engine> engine = EngineOfProcess();
  if (engine == nullptr) return transport::Stats{};
  OB_RETURN_IF_ERROR(engine->Close());
  const transport::Stats stats = engine->stats();
  SetEngine(nullptr);
  return stats;
}

}  // namespace outboard
