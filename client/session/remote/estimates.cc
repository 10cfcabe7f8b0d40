// What a session over a link knows for its estimate: RemoteSession's part of Estimated.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/session/estimate/device_class.h"
#include "client/session/remote/remote_session.h"

namespace outboard::session {

// Requires mutex_. Runs are done in the order of their numbers.
void RemoteSession::NoteDone(const proto::ServerFrame& frame) {
  uint64_t through = 0, done = 0;
  for (const proto::ServerItem& item : frame.items())
    if (item.has_done()) through = std::max(through, item.done().through_seq());
  for (; !steps_by_seq_.empty() && steps_by_seq_.front().first <= through;
       steps_by_seq_.pop_front())
    done = steps_by_seq_.front().second;
  if (done > 0) step_times_.Note(done, Clock::now());
  if (IsMeasured() && step_times_.HasEnough()) TellMeasured();
}

// Requires mutex_.
void RemoteSession::TellMeasured() {
  const std::optional<StepPace::Measured> measured = step_times_.PerStep();
  if (!IsMeasured() || measured_ || !measured.has_value()) return;
  measured_ = true;
  session::TellMeasured({.steps = measured->steps,
                         .seconds_per_step = measured->seconds_per_step,
                         .devices = std::max(1u, core_.opened().devices()),
                         .device_class = core_.opened().price_class()});
}

RecordedWork RemoteSession::Recorded() const {
  RecordedWork work = run_log_.Work();
  std::lock_guard lock(mutex_);
  work.devices = std::max(1u, core_.opened().devices());
  work.waits = round_trips_;
  work.client_s =
      std::max(0.0, work.client_s - std::chrono::duration<double>(slept_).count());
  return work;
}

absl::StatusOr<std::vector<ClassEstimate>> RemoteSession::Estimates(uint64_t steps) const {
  if (!here()) return ForkedError();
  std::optional<StepPace::Measured> measured;
  std::string own_class;
  uint32_t devices = 1;
  {
    std::lock_guard lock(mutex_);
    measured = step_times_.PerStep();
    own_class = core_.opened().price_class();
    devices = std::max(1u, core_.opened().devices());
  }
  if (target_.empty())
    return absl::UnimplementedError("this session's connection has no classes of devices");
  OB_ASSIGN_OR_RETURN(const std::vector<DeviceClass> classes,
                      ClassesOf(target_, options_.key, options_.protection));
  const RecordedWork of_all = WithSteps(Recorded(), steps);
  std::vector<ClassEstimate> estimates;
  for (const DeviceClass& of : classes)
    estimates.push_back(
        measured.has_value() && of.name == own_class
            ? EstimateMeasured(of, of_all.steps, measured->seconds_per_step, devices)
            : EstimateFor(of, of_all));
  return estimates;
}

std::string RemoteSession::EstimateAtEnd() const {
  const Stats actual = stats();
  std::string own_class;
  {
    std::lock_guard lock(mutex_);
    own_class = core_.opened().price_class();
  }
  const auto classes = ClassesOf(target_, options_.key, options_.protection);
  if (!classes.ok())
    return absl::StrCat("estimate: unknown: ", classes.status().message());
  const RecordedWork work = Recorded();
  for (const DeviceClass& of : *classes)
    if (of.name == own_class)
      return EstimateLine(EstimateFor(of, work), actual.seconds_billed, actual.cost_micro_usd);
  return "estimate: unknown: the gateway has no such class any more";
}

}  // namespace outboard::session
