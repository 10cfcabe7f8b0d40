// Measures links to other workers, as the gateway asks when one of the two has joined: two ranks,
// one in each supervisor, exchange data as executors of a session would, through the links of
// group_links.h.
//
// Threads: any; each measurement has one of its own, and one more ends those that take too long.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "proto/fleet.pb.h"
#include "runtime/collective/collective.h"
#include "worker/groups/group_links.h"

namespace outboard::worker {

class LinkProbes {
 public:
  using Tell = std::function<void(const proto::WorkerEvent&)>;

  // `links` may be nullptr: then every measurement fails. It outlives this. `within`: of one
  // measurement; a partner may stand still, and then it has failed.
  LinkProbes(GroupLinks* links, Tell tell,
             std::chrono::milliseconds connect_within = std::chrono::seconds(10),
             std::chrono::milliseconds within = std::chrono::seconds(20))
      : links_(links), tell_(std::move(tell)), connect_within_(connect_within), within_(within) {}
  ~LinkProbes();  // ends those on their way

  // Returns at once. Where this worker is the one that connects, a LinkMeasured follows. Over
  // kProbesMax at a time it has failed.
  void Begin(const proto::MeasureLink& command);

  static constexpr size_t kProbesMax = 4;

 private:
  struct Probe {
    std::thread thread;
    std::unique_ptr<collective::Collective> rank;
    GroupLinks::Group group{};
    std::chrono::steady_clock::time_point until;
    bool is_ended = false;  // it took too long; under mutex_
    bool is_over = false;   // likewise
  };

  // Errors: INVALID_ARGUMENT  no such id, token or address
  //         UNAVAILABLE       no sockets, or no data address here
  absl::Status Connect(const proto::MeasureLink& command, Probe& probe);
  void Report(const proto::MeasureLink& command, double bytes_per_s, double message_s) const;
  void WatchTime();
  void JoinFinishedThreads();

  GroupLinks* const links_;
  const Tell tell_;
  const std::chrono::milliseconds connect_within_, within_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread watch_;  // from the first measurement on
  std::list<Probe> probes_;
};

}  // namespace outboard::worker
