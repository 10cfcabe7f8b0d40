// The executors of one session on this worker, by rank: one for each device of its Assign. They
// begin together, and when the first of them ends, the others are to end too: what they hold is of
// no use without it. Of a session on several workers these are some of its ranks, and the others
// are reached by GroupLinks.
//
// Threads: any, except Add, Attach and the destructor, which only the owner calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/fleet.grpc.pb.h"
#include "worker/groups/group_links.h"
#include "worker/process/child_process.h"
#include "worker/supervisor/executor_host.h"

namespace outboard::worker {

class SessionExecutors {
 public:
  // `on_first_end`: called once, from a thread of an executor's host, with the rank that ended
  // first and how: OK, UNAVAILABLE or another code of ExecutorHostOptions::on_end. Likewise from
  // the thread of GroupLinks, with a rank that has lost a partner on another worker.
  SessionExecutors(proto::Assign assign,
                   std::function<void(uint32_t rank, const absl::Status&)> on_first_end);
  ~SessionExecutors();  // ends them, at the same time, and waits for it
  SessionExecutors(const SessionExecutors&) = delete;
  SessionExecutors& operator=(const SessionExecutors&) = delete;

  // The next rank of this worker. Sets `options.rank` and `options.on_end`. All are added before
  // any other thread sees this object.
  void Add(ExecutorHostOptions options, ChildProcess executor);
  // Gives each pair of them a socket between them, and each an eventfd of its own, which it may not
  // make in its sandbox, and each a socket for every rank elsewhere, to which `links` leads. Once
  // all are added and before Attach; a session of one device needs none. `links` outlives this;
  // null: this worker has no data address.
  // Errors: UNAVAILABLE  there are no more descriptors; a partner's address is none
  absl::Status Introduce(GroupLinks* links);
  // From now on nobody is told of an end.
  void Silence() { has_told_ = true; }

  // As in ExecutorHost, of each.
  void Attach(proto::Fleet::Stub& fleet, const std::string& local_socket);
  void UseBulk(const std::vector<std::shared_ptr<grpc::Channel>>& bulk);
  void End();

  const proto::Assign& assign() const { return assign_; }
  static uint32_t RanksOf(const proto::Assign& assign);  // here; 1, if it names no device
  proto::HeldSession Described() const;
  uint64_t memory_bytes() const;  // of all together

 private:
  absl::Status IntroduceElsewhere(GroupLinks& links);
  void Ended(uint32_t rank, const absl::Status& status);
  uint32_t first_rank() const { return assign_.group().first_rank(); }

  const proto::Assign assign_;
  const std::function<void(uint32_t rank, const absl::Status&)> on_first_end_;
  std::mutex ends_mutex_;
  bool are_ending_ = false;  // by the destructor
  std::atomic<bool> has_told_{false};
  std::vector<std::unique_ptr<ExecutorHost>> hosts_;  // by rank, from first_rank
  GroupLinks* links_ = nullptr;  // if this has a group there
  GroupLinks::Group group_{};
};

// What the gateway is told of an end.
proto::SessionEnded SessionEndedOf(const proto::Assign& assign, uint32_t rank,
                                   const absl::Status& status);

}  // namespace outboard::worker
