#include "tests/bench/gpu_engine_session.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "client/session/current_session.h"
#include "client/tensor/error.h"
#include "runtime/devices.h"
#include "worker/engine/compiled_engine.h"
#include "worker/engine/device_target.h"

namespace outboard::bench {

absl::StatusOr<std::unique_ptr<GpuEngineSession>> GpuEngineSession::Open() {
  std::unique_ptr<GpuEngineSession> own(new GpuEngineSession);
  OB_ASSIGN_OR_RETURN(auto device, runtime::MakeDevice(std::string(runtime::kCuda), {}));
  own->properties_ = device->properties();
  own->device_ = device.get();
  OB_ASSIGN_OR_RETURN(own->store_, worker::TuningFile::Open(own->folder_ / "kernels.db"));
  own->compiler_.emplace(CompileOptions{.target = worker::TargetOfDevice(own->properties_)});
  auto engine = worker::MakeCompiledEngine(
      &*own->compiler_, std::move(device),
      {.store = own->store_.get(), .idle_compiler = &*own->compiler_});
  own->engine_ = engine.get();
  auto link = std::make_unique<test::ExecutorLink>(std::move(engine));
  own->link_ = link.get();
  OB_ASSIGN_OR_RETURN(auto session,
                      Session::ConnectLink(std::move(link), session::SessionOptions{}));
  SetSession(std::move(session));
  return own;
}

GpuEngineSession::~GpuEngineSession() {
  if (SessionIfConnected() != nullptr) CloseSession().status().IgnoreError();
  SetSession(nullptr);
}

uint64_t GpuEngineSession::plans_made() {
  uint64_t plans = 0;
  link_->Between([&] { plans = engine_->stats().plans_made; });
  return plans;
}

absl::StatusOr<size_t> GpuEngineSession::Search(double seconds) {
  OB_RETURN_IF_ERROR(SessionIfConnected()->Sync());
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  absl::Status health = absl::OkStatus();
  link_->Between([&] {
    engine_->SearchForBetterKernels([&] { return std::chrono::steady_clock::now() > end; });
    engine_->UseBetterKernels([] { return false; });
    health = device_->health();
  });
  OB_RETURN_IF_ERROR(health);
  OB_ASSIGN_OR_RETURN(const std::vector<worker::Tuning> tunings, store_->List());
  size_t searched = 0;
  for (const worker::Tuning& tuning : tunings) searched += tuning.trials.size() > 1 ? 1 : 0;
  return searched;
}

void GpuEngineSession::SearchAndMeasure(const std::string& name, double seconds,
                                        SessionTimes& times,
                                        const std::function<absl::StatusOr<double>()>& measure) {
  if (seconds <= 0) return;
  std::fprintf(stderr, "%s: %g s without BEAM\n", name.c_str(), times.seconds_nobeam);
  const auto searched = [&]() -> absl::Status {
    OB_ASSIGN_OR_RETURN(const size_t kernels, Search(seconds));
    try {
      OB_ASSIGN_OR_RETURN(times.seconds, measure());
    } catch (const Error& error) {
      return error.status();
    }
    times.searched = kernels;
    return absl::OkStatus();
  }();
  if (!searched.ok())
    std::fprintf(stderr, "search for %s: %s\n", name.c_str(), searched.ToString().c_str());
}

}  // namespace outboard::bench
