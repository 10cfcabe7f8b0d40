// The queues of the gateway's threads, in which accounts take turns. Each kind of work that could
// keep a thread waiting for a lock or the disk has threads of its own.
//
// Threads: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "base/fair_queue.h"
#include "gateway/base/limits.h"
#include "gateway/doors/step_times.h"
#include "gateway/streams/stall_watch.h"

namespace outboard::gateway {

struct WorkQueues {
  StepTimes steps;
  // Graphs, hashing, chunks: they let the threads go first that pass steps on.
  FairQueue pool{{.threads = kPoolThreads,
                  .at_once = kPoolThreads - 1,
                  .niceness = kPoolNiceness,
                  .gives_way = GivesWay()}};
  FairQueue books{{.threads = kBooksThreads}};  // writes to the accounts file
  FairQueue reports{{.threads = kBooksThreads,  // usage, read in pages
                     .niceness = kPoolNiceness,
                     .gives_way = GivesWay()}};
  // Calls that were let in and whose requests do not come.
  StallWatch requests{std::chrono::milliseconds(kTransferStalledMs)};

  void Stop() {
    for (FairQueue* queue : {&pool, &books, &reports}) queue->Stop();
  }

 private:
  std::function<bool(uint64_t)> GivesWay() {
    return [this](uint64_t account) {
      return steps.OthersStep({static_cast<int64_t>(account)}, StepTimes::Clock::now());
    };
  }
};

}  // namespace outboard::gateway
