// The sessions that a worker runs: their executors, from Assign until they end or are released.
//
// A session that ends by itself stays in the table, marked as ended, until its threads are joined
// (Reap): the gateway may assign it again before that, and the two must not meet.
//
// Threads: only one adds and removes sessions, here "the owner": Add, Release, ReleaseAllBut,
// EndAll, Reap, and those that say so. The others may be called by any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "proto/fleet.grpc.pb.h"
#include "worker/groups/session_executors.h"

namespace outboard::worker {

class HeldSessions {
 public:
  void Add(const std::string& id, std::unique_ptr<SessionExecutors> executors);
  // The session has ended by itself. Also of one that is not added yet: it is removed by the first
  // Reap after its Add, or forgotten.
  void MarkEnded(const std::string& id);

  bool Has(const std::string& id) const;
  size_t count() const;  // with those that have ended
  size_t running_count() const;
  bool AnyUses(uint32_t device) const;  // whether one of them does

  void Describe(proto::Register& entry) const;  // those that have not ended
  void Describe(proto::Heartbeat& heartbeat) const;  // with those that have

  // Removes sessions and joins their threads, in which their executors end. What is not there is
  // ignored.
  void Release(const std::string& id);
  void ReleaseAllBut(const std::set<std::string>& kept);
  void Reap();    // those that have ended
  void EndAll();  // signals all executors first, then waits for each

  // Calls `visit` with each session's executors. The owner alone, without the lock.
  void ForEach(const std::function<void(SessionExecutors&)>& visit) const;

 private:
  std::unique_ptr<SessionExecutors> Take(const std::string& id);
  bool HasEnded(const std::string& id) const;  // mutex_ is held

  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<SessionExecutors>> sessions_;
  std::vector<std::string> ended_;
};

}  // namespace outboard::worker
