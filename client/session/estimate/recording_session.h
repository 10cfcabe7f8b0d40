// A session without a device: counts what a program would do there, for its estimate.
//
// Nothing is sent and nothing computed. A value that the program reads is made up: 1 for floats, 0
// for everything else, in the shape that it would have; so a program that decides by its values
// (until a loss is small, say) decides by those. Names in the store, forks and sessions that are
// entered again are UNIMPLEMENTED.
//
// Where `outboard estimate` has started the program (OUTBOARD_ESTIMATE_FD), what was counted is
// written there once a second, at the end, and after OUTBOARD_ESTIMATE_STEPS steps, with which the
// session ends (CANCELLED). With OUTBOARD_ESTIMATE_GRAPHS its graphs are, too. Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/session/estimate/estimate.h"
#include "client/session/session.h"

namespace outboard {
namespace session {

// What can be asked for an estimate: a session over a link, too (RemoteSession).
class Estimated {
 public:
  // Of every class of the gateway, or of the one whose device the session has: by steps that were
  // measured there, once there were more than kStepsBeforeMeasure, else by the graphs of all steps
  // so far. `steps`: of so many steps like them; 0: of those that were sent.
  // Blocks for a round trip to the gateway. Errors: those of ClassesOf
  virtual absl::StatusOr<std::vector<ClassEstimate>> Estimates(uint64_t steps) const = 0;
  // What was sent so far. Reads its graphs, and asks nobody.
  virtual RecordedWork Recorded() const = 0;

 protected:
  ~Estimated() = default;
};

// Errors: UNIMPLEMENTED  of this kind of session; those of Estimates
absl::StatusOr<std::vector<ClassEstimate>> EstimatesOf(const Session& session, uint64_t steps = 0);

// `work` as if it had so many steps, in proportion; 0: as it is.
RecordedWork WithSteps(RecordedWork work, uint64_t steps);

// What came after `before`, an earlier record of the same session: its kernels count negatively.
RecordedWork Since(RecordedWork now, const RecordedWork& before);

// Whether `outboard estimate` has started this process: Session::Connect makes a recording session.
bool IsEstimated();

// Whether `outboard estimate --measure` has (OUTBOARD_MEASURE_FD): a session over a link tells it
// how long a step takes, with which it ends (CANCELLED): once it has measured enough, or when it is
// closed and has measured kStepsMeasured.
bool IsMeasured();
// What it tells.
struct MeasuredSteps {
  uint64_t steps = 0;
  double seconds_per_step = 0;
  uint64_t devices = 1;
  std::string device_class;
};
void TellMeasured(const MeasuredSteps& measured);
// Of the line that it writes. Errors: INVALID_ARGUMENT  no such line
absl::StatusOr<MeasuredSteps> MeasuredFromLine(std::string_view line);

}  // namespace session

// Asks the gateway of `options`, if they name one, for its classes when it is asked for estimates.
std::shared_ptr<Session> MakeRecordingSession(const session::SessionOptions& options);
// The same, as Session::Connect gives it.
std::unique_ptr<Session> NewRecordingSession(const session::SessionOptions& options);

}  // namespace outboard
