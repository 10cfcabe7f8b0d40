// The queues of the gateway's threads, in which accounts take turns. Each kind of work that could
// keep a thread waiting for a lock or the disk has threads of its own.
//
// A job that throws does not end the gateway. What it had not done stays undone: a frame ends its
// session (ports.cc), a call is answered with the error (services.cc), and what nobody waits for,
// such as the blobs that a session leaves, waits for the next start of the gateway.
//
// Threads: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "base/fair_queue.h"
#include "gateway/base/limits.h"
#include "gateway/base/thrown.h"
#include "gateway/doors/step_times.h"
#include "gateway/streams/stall_watch.h"

namespace outboard::gateway {

struct WorkQueues {
  StepTimes steps;
  // Graphs, hashing, chunks: they let the threads go first that pass steps on.
  FairQueue pool{{.threads = kPoolThreads,
                  .at_once = kPoolThreads - 1,
                  .niceness = kPoolNiceness,
                  .gives_way = GivesWay(),
                  .caught = LogThrown}};
  FairQueue books{{.threads = kBooksThreads, .caught = LogThrown}};  // writes the accounts file
  FairQueue reports{{.threads = kBooksThreads,                       // usage, read in pages
                     .niceness = kPoolNiceness,
                     .gives_way = GivesWay(),
                     .caught = LogThrown}};
  // Calls that were let in and whose requests do not come.
  StallWatch requests{std::chrono::milliseconds(kTransferStalledMs)};

  void Stop() {
    for (FairQueue* queue : {&pool, &books, &reports}) queue->Stop();
  }

 private:
  static void LogThrown(uint64_t account) {
    ErrorOfThrown("a job of the pool", static_cast<int64_t>(account)).IgnoreError();
  }
  std::function<bool(uint64_t)> GivesWay() {
    return [this](uint64_t account) {
      return steps.OthersStep({static_cast<int64_t>(account)}, StepTimes::Clock::now());
    };
  }
};

}  // namespace outboard::gateway
