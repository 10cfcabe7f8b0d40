#include "worker/executor/session_loop.h"

#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "worker/executor/executor_main.h"
#include "worker/process/message_limits.h"

namespace outboard::worker {
namespace {

using std::chrono::milliseconds;

// Longer than between two steps of most programs; shorter than what the worker waits before it
// searches (idle_searcher.h), which begins with the costs that are told then.
constexpr milliseconds kQuietAfter{500};
// In the store, for what the search has found meanwhile.
constexpr milliseconds kLookAgainAfter{2000};
// Of a kernel's name in a line for people: a kernel of many buffers has a long one.
constexpr size_t kNameBytesMax = 400;

uint64_t NowNs() {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

}  // namespace

void TellDeviceTrouble(ExecutorSockets& sockets, proto::DeviceTrouble::Kind kind,
                       std::string_view line, uint64_t seq) {
  std::fprintf(stderr, "outboard: %.*s\n", static_cast<int>(line.size()), line.data());
  proto::FromExecutor event;
  event.mutable_trouble()->set_kind(kind);
  event.mutable_trouble()->set_message(std::string(line.substr(0, kTroubleTextBytesMax)));
  event.mutable_trouble()->set_seq(seq);
  sockets.Tell(event);
}

SessionLoop::SessionLoop(ExecutorSockets& sockets, Engine& engine, const DeviceInfo& device,
                         const SessionLoopOptions& options)
    : sockets_(sockets),
      engine_(engine),
      launch_watchdog_(options.launch_watchdog),
      requests_([&sockets](const proto::FromExecutor& event) { sockets.Tell(event); }),
      core_(&engine, {.device_name = device.name,
                      .hardware_class = device.hardware_class,
                      .let_go = [this] { requests_.LetGo(); },
                      .now_ns = NowNs}),
      watchdog_(options.step_most, [this] { return core_.progress(); }),
      send_([this](const proto::ServerFrame& answer) { Send(answer); }),
      uses_idle_time_(options.uses_idle_time),
      tells_costs_(options.uses_idle_time) {}

absl::Status SessionLoop::Serve() {
  proto::ClientFrame frame;
  proto::ToExecutor command;
  while (!core_.ended()) {
    const std::optional<milliseconds> of_pace = PatienceOfPace();
    const std::optional<milliseconds> of_requests = requests_.patience(core_);
    const bool requests_first = of_requests && (!of_pace || *of_requests < *of_pace);
    int passed = -1;
    const ExecutorSockets::Came came =
        sockets_.Next(frame, command, passed, requests_first ? of_requests : of_pace);
    if (came == ExecutorSockets::Came::kEnd) break;  // the supervisor has let go
    if (came == ExecutorSockets::Came::kFrame)
      OnFrame(std::move(frame));
    else if (came == ExecutorSockets::Came::kCommand)
      OB_RETURN_IF_ERROR(OnCommand(command, passed));
    else if (!requests_first)
      OnNothing();
    requests_.SendPending(core_, send_);
  }
  // The session is over; what its kernels have cost is for those that come after it.
  if (tells_costs_) engine_.TellCosts([] { return false; });
  requests_.TellCounts();
  return absl::OkStatus();
}

void SessionLoop::OnFrame(proto::ClientFrame frame) {
  BeginWork();
  core_.On(std::move(frame), send_);
  watchdog_.Working(false);
}

absl::Status SessionLoop::OnCommand(const proto::ToExecutor& command, int passed) {
  if (command.has_group_socket()) group_.Take(command.group_socket(), std::exchange(passed, -1));
  if (command.has_begin()) OB_RETURN_IF_ERROR(OnBegin(command.begin()));
  // Runs may have waited for the blob.
  if (command.has_blob_here())
    BeginWork();
  else
    watchdog_.Working(true);
  requests_.OnCommand(command, passed, core_, engine_, send_);
  watchdog_.Working(false);
  return absl::OkStatus();
}

absl::Status SessionLoop::OnBegin(const proto::Begin& begin) {
  if (begin.memory_bytes_max() > 0)
    engine_.LimitMemory(static_cast<int64_t>(begin.memory_bytes_max()));
  core_.SetRank(begin.rank());
  OB_RETURN_IF_ERROR(group_.JoinGroup(begin, engine_));
  // Ranks change to other kernels together, in a Run (worker/engine/plans/group_plans.cc), as
  // rank 0 says. So its costs are those that a search is told of.
  if (begin.mesh_size() > 0) {
    tells_costs_ = uses_idle_time_ && begin.rank() == 0;
    uses_idle_time_ = false;
  }
  for (const proto::RefusedItem& item : begin.refused())
    core_.Refuse(item.seq(),
                 absl::Status(static_cast<absl::StatusCode>(item.code()), item.message()));
  return absl::OkStatus();
}

void SessionLoop::OnNothing() {
  const auto preempted = [this] { return sockets_.Knocked(milliseconds(0)); };
  if (pace_ == Pace::kWorking) {
    TellActivity(false);
    if (tells_costs_) engine_.TellCosts(preempted);
  }
  pace_ = uses_idle_time_ ? Pace::kLookingAgain : Pace::kQuiet;
  if (uses_idle_time_) engine_.UseBetterKernels(preempted);
  if (uses_idle_time_) engine_.SearchForBetterKernels(preempted);
}

std::optional<milliseconds> SessionLoop::PatienceOfPace() const {
  switch (pace_) {
    case Pace::kQuiet: return std::nullopt;
    case Pace::kWorking: return kQuietAfter;
    case Pace::kLookingAgain: return kLookAgainAfter;
  }
  return std::nullopt;
}

void SessionLoop::BeginWork() {
  if (std::exchange(pace_, Pace::kWorking) != Pace::kWorking) TellActivity(true);
  watchdog_.Working(true);
}

void SessionLoop::TellActivity(bool working) {
  proto::FromExecutor event;
  event.mutable_activity()->set_working(working);
  sockets_.Tell(event);
}

void SessionLoop::Send(const proto::ServerFrame& answer) {
  // Before anybody hears of a step that failed with its device: it may succeed elsewhere.
  if (const absl::Status health = engine_.device().health(); !health.ok()) {
    std::string line(health.message());
    if (launch_watchdog_ != nullptr && !launch_watchdog_->lost_in().empty())
      absl::StrAppend(&line, ", in ", launch_watchdog_->lost_in().substr(0, kNameBytesMax));
    TellDeviceTrouble(sockets_,
                      runtime::IsMemoryFault(health) ? proto::DeviceTrouble::MEMORY_FAULT
                                                     : proto::DeviceTrouble::LOST,
                      line, core_.lost_seq());
    _exit(kExitDeviceLost);  // what its driver would do at exit may not end
  }
  // A client that is slow to read is not a slow step; and what is sent between two frames is
  // none.
  const bool working = watchdog_.Working(false);
  sockets_.Send(answer);
  watchdog_.Working(working);
}

}  // namespace outboard::worker
