// The loop of an executor's process, from its first message to the session's end: what comes goes
// to the core; when the session is quiet, better kernels are looked up and searched for.
//
//   kQuiet        --BeginWork--> kWorking
//   kWorking      --OnNothing--> kLookingAgain; kQuiet, where idle time is not used
//   kLookingAgain --BeginWork--> kWorking; --OnNothing--> kLookingAgain
//
// The supervisor hears when kWorking begins and ends.
//
// Threads: one, the session's, except begun_seq.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "proto/cloud.pb.h"
#include "proto/executor.pb.h"
#include "worker/devices/device_info.h"
#include "worker/engine/engine.h"
#include "worker/executor/executor_core.h"
#include "worker/executor/executor_sockets.h"
#include "worker/executor/launch_watchdog.h"
#include "worker/executor/step_watchdog.h"
#include "worker/executor/supervisor_client.h"
#include "worker/groups/group_sockets.h"

namespace outboard::worker {

struct SessionLoopOptions {
  std::chrono::seconds step_most{0};  // a step that takes longer ends the process
  bool uses_idle_time = false;        // to search for better kernels
  const LaunchWatchdog* launch_watchdog = nullptr;  // knows in what a device was lost
};

// Says on stderr and to the supervisor what is wrong with the device, in which the item `seq` was.
// Any thread; the process is to end then.
void TellDeviceTrouble(ExecutorSockets& sockets, proto::DeviceTrouble::Kind kind,
                       std::string_view line, uint64_t seq);

class SessionLoop {
 public:
  SessionLoop(ExecutorSockets& sockets, Engine& engine, const DeviceInfo& device,
              const SessionLoopOptions& options);

  // Until the session is over or the supervisor has let go. Ends the process with kExitDeviceLost
  // when the device is lost to it.
  // Errors: those of GroupSockets::JoinGroup
  absl::Status Serve();
  uint64_t begun_seq() const { return core_.begun_seq(); }  // any thread

 private:
  enum class Pace { kQuiet, kWorking, kLookingAgain };

  void OnFrame(proto::ClientFrame frame);
  absl::Status OnCommand(const proto::ToExecutor& command, int passed);
  absl::Status OnBegin(const proto::Begin& begin);
  void OnNothing();
  std::optional<std::chrono::milliseconds> PatienceOfPace() const;
  void BeginWork();
  void TellActivity(bool working);
  void Send(const proto::ServerFrame& answer);

  ExecutorSockets& sockets_;
  Engine& engine_;
  const LaunchWatchdog* const launch_watchdog_;
  SupervisorClient requests_;
  ExecutorCore core_;
  StepWatchdog watchdog_;  // asks core_
  const ExecutorCore::SendFrame send_;
  GroupSockets group_;
  bool uses_idle_time_;
  bool tells_costs_;  // what kernels cost, to the search
  Pace pace_ = Pace::kQuiet;
};

}  // namespace outboard::worker
